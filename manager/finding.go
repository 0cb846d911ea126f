package manager

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// FindingView is one deviation from the requested state, with the reason and the next steps.
type FindingView struct {
	explain.Finding
	// Volume is the volume that the object is, or belongs to; empty if there is none.
	Volume string
}

// ListFindings explains all problems, the worst first, from caches. It does not cover claims and the Nodes of
// Kubernetes: the leader may not list them all.
func (m *Manager) ListFindings() ([]FindingView, error) {
	s, err := m.snapshot()
	if err != nil {
		return nil, err
	}
	volumes := volumesOf(s)
	found := explain.All(s)
	views := make([]FindingView, 0, len(found))
	for _, f := range found {
		views = append(views, FindingView{Finding: f, Volume: volumes[f.Object]})
	}
	return views, nil
}

// volumesOf returns the volume of each object that a finding can be about. Tickets of several volumes may have the same
// id and node; these tickets have no volume.
func volumesOf(s *explain.Snapshot) map[explain.Object]string {
	byObject := map[explain.Object]string{}
	for _, v := range s.Volumes {
		byObject[explain.Object{Kind: explain.KindVolume, Name: v.Name}] = v.Name
		byObject[explain.Object{Kind: explain.KindEngine, Name: types.EngineName(v.Name)}] = v.Name
		byObject[explain.Object{Kind: explain.KindShareManager, Name: v.Name}] = v.Name
	}
	for _, taken := range s.Snapshots {
		byObject[explain.Object{Kind: explain.KindSnapshot, Name: taken.Name}] = taken.Spec.Volume
	}
	for _, r := range s.Replicas {
		byObject[explain.Object{Kind: explain.KindReplica, Name: r.Name, Node: r.Spec.NodeID}] = r.Spec.VolumeName
	}
	for _, a := range s.Attachments {
		for id, ticket := range a.Spec.AttachmentTickets {
			o := explain.Object{Kind: explain.KindTicket, Name: id, Node: ticket.NodeID}
			if _, taken := byObject[o]; taken {
				byObject[o] = ""
				continue
			}
			byObject[o] = a.Name
		}
	}
	return byObject
}

// snapshot returns the content of the caches, sorted by name, so that the same state has the same explanation.
func (m *Manager) snapshot() (*explain.Snapshot, error) {
	s := &explain.Snapshot{
		Now: m.deps.Clock.Now(), Namespace: m.deps.Namespace,
		Unseen: []string{
			explain.ResourceKubeNodes, explain.ResourceClaims, explain.ResourceClasses, explain.ResourceEvents,
			explain.ResourcePVs, explain.ResourceUserPods, explain.ResourceKubeAttachments,
		},
	}
	for _, read := range []func() error{
		reading(&s.Volumes, m.deps.Volumes.List), reading(&s.Engines, m.deps.Engines.List), reading(&s.Replicas, m.deps.Replicas.List),
		reading(&s.Attachments, m.deps.Attachments.List), reading(&s.Nodes, m.deps.Nodes.List),
		reading(&s.InstanceManagers, m.deps.InstanceManagers.List), reading(&s.ShareManagers, m.deps.ShareManagers.List),
		reading(&s.Pods, m.deps.Pods.List), reading(&s.Snapshots, func(labels.Selector) ([]*Snapshot, error) { return m.ListSnapshots() }),
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace != m.deps.Namespace })
	var err error
	s.Settings, err = m.settingObjects()
	return s, err
}

// reading fills a list of a snapshot.
func reading[T metav1.Object](into *[]T, list func(labels.Selector) ([]T, error)) func() error {
	return func() error {
		objects, err := list(labels.Everything())
		if err != nil {
			return fmt.Errorf("list the objects for the findings: %w", err)
		}
		*into = slices.SortedFunc(slices.Values(objects), func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) })
		return nil
	}
}

// settingObjects returns the settings that exist as objects.
func (m *Manager) settingObjects() ([]*longhorn.Setting, error) {
	var list []*longhorn.Setting
	for _, name := range settings.All() {
		s, err := m.deps.Settings.GetRO(string(name))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get setting %s: %w", name, err)
		}
		list = append(list, s)
	}
	return list, nil
}
