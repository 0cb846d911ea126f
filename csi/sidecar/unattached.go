package sidecar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

const (
	// unattachedWait is how long a volume stays published to a node although no VolumeAttachment requests it.
	unattachedWait = 2 * time.Minute
	// The reasons of Events about such volumes.
	eventAttachmentMissing = "VolumeAttachmentMissing"
	eventUnpublished       = "UnpublishedWithoutAttachment"
	// annotationNodeID of a VolumeAttachment is the driver's name for the node, which the attacher writes.
	annotationNodeID = "csi.alpha.kubernetes.io/node-id"
)

// publication is a volume that the driver has published to a node, with the driver's names for both.
type publication struct{ volume, node string }

// unattached removes publications that no VolumeAttachment requests. The attacher unpublishes a volume when its
// VolumeAttachment is deleted. But a user may remove the finalizers of a VolumeAttachment by hand, or etcd may be
// restored to a time before its creation. Then no component would ever unpublish the volume, and it could be attached
// to no other node.
//
//	publication                                            reaction
//	a VolumeAttachment requests it, or may do so           none
//	seen twice without one                                 an Event at the PersistentVolume
//	no VolumeAttachment for unattachedWait, nor in the     an Event, ControllerUnpublishVolume
//	API server now, and its node is not using it
//	the API server does not answer                         none, until it answers
//	a VolumeAttachment is created at that time             its publication comes before the last read from the API
//	                                                       server, which then shows it, or after the unpublication
//	                                                       (publicationlocks.go)
//
// The driver's list of publications comes from the attacher, which compares it with the existing VolumeAttachments.
type unattached struct {
	lister interface {
		ListVolumes(ctx context.Context) (map[string][]string, error)
	}
	kube        kubernetes.Interface
	driver      csipb.ControllerClient
	driverName  string
	attachments storagelisters.VolumeAttachmentLister
	volumes     corelisters.PersistentVolumeLister
	csiNodes    storagelisters.CSINodeLister
	// locks prevents the attacher from publishing a volume while it is being unpublished.
	locks    *publicationLocks
	recorder record.EventRecorder
	clock    clock.PassiveClock
	log      *logrus.Entry

	mu       sync.Mutex // guards latest and listedAt
	latest   map[string][]string
	listedAt time.Time

	seen map[publication]observation // only sync uses it
}

// observation is when a publication was first seen without a VolumeAttachment, and whether an Event reports it.
type observation struct {
	since      time.Time
	isReported bool
}

// ListVolumes is the attacher's list of publications; it is stored for the next sync.
func (u *unattached) ListVolumes(ctx context.Context) (map[string][]string, error) {
	// before the list: the list may be older than this time, never newer
	at := u.clock.Now()
	published, err := u.lister.ListVolumes(ctx)
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.latest, u.listedAt = published, at
	}
	return published, err
}

// run compares until ctx is done. A failed step is repeated in the next round.
func (u *unattached) run(ctx context.Context, interval time.Duration) {
	next := time.NewTicker(interval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if err := u.sync(ctx); err != nil && ctx.Err() == nil {
			u.log.WithError(err).Warn("Cannot compare published volumes with VolumeAttachments; trying again")
		}
	}
}

func (u *unattached) sync(ctx context.Context) error {
	u.mu.Lock()
	published, listedAt := u.latest, u.listedAt
	u.mu.Unlock()
	cached, err := u.attachments.List(labels.Everything())
	if err != nil {
		return err
	}
	lacking := u.withoutAttachment(published, cached)
	seen := map[publication]observation{}
	var due []publication
	for _, p := range lacking {
		s, known := u.seen[p]
		switch {
		case !known:
			s = observation{since: u.clock.Now()}
		case !listedAt.After(s.since): // still the same list
		case !s.isReported:
			s.isReported = true
			u.recorder.Eventf(u.subject(p), corev1.EventTypeWarning, eventAttachmentMissing,
				"volume %s is attached to node %s, but no VolumeAttachment requests this; the driver detaches it if this lasts for %s", p.volume, p.node, unattachedWait)
		}
		if known && listedAt.After(s.since) && u.clock.Since(s.since) >= unattachedWait {
			due = append(due, p)
		}
		seen[p] = s
	}
	u.seen = seen
	if len(due) == 0 {
		return nil
	}
	return u.unpublish(ctx, due)
}

// unpublish removes publications that have no VolumeAttachment in the API server either. It reads the VolumeAttachments
// again before each publication: unpublishing takes as long as the volume needs to leave the node.
func (u *unattached) unpublish(ctx context.Context, due []publication) error {
	for _, p := range due {
		if err := u.unpublishOne(ctx, p); err != nil {
			return fmt.Errorf("volume %s on node %s: %w", p.volume, p.node, err)
		}
	}
	return nil
}

func (u *unattached) unpublishOne(ctx context.Context, p publication) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	release, err := u.locks.acquire(ctx, p)
	if err != nil {
		return err
	}
	defer release()
	uses, err := u.isInUse(ctx, p)
	if err != nil || uses {
		return err
	}
	list, err := u.kube.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list VolumeAttachments: %w", err)
	}
	live := make([]*storagev1.VolumeAttachment, 0, len(list.Items))
	for i := range list.Items {
		live = append(live, &list.Items[i])
	}
	if len(u.withoutAttachment(map[string][]string{p.volume: {p.node}}, live)) == 0 {
		delete(u.seen, p) // the cache is late
		return nil
	}
	u.log.WithFields(logrus.Fields{"volume": p.volume, "node": p.node}).Warn("Detaching a volume that no VolumeAttachment requests")
	u.recorder.Eventf(u.subject(p), corev1.EventTypeWarning, eventUnpublished,
		"volume %s is being detached from node %s: no VolumeAttachment has requested it for %s", p.volume, p.node, unattachedWait)
	_, err = u.driver.ControllerUnpublishVolume(ctx, &csipb.ControllerUnpublishVolumeRequest{VolumeId: p.volume, NodeId: p.node})
	if err == nil {
		delete(u.seen, p) // the list may show it once more
	}
	return err
}

// isInUse reports whether a kubelet that answers reports that pods use the volume on that node. If so, Kubernetes
// creates the VolumeAttachment again. The report of a node that does not answer is old.
func (u *unattached) isInUse(ctx context.Context, p publication) (bool, error) {
	name := u.nodeOf(p.node)
	list, err := u.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + name})
	if err != nil {
		return false, fmt.Errorf("read node %s: %w", name, err)
	}
	for _, n := range list.Items {
		isReady := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		used := corev1.UniqueVolumeName("kubernetes.io/csi/" + u.driverName + "^" + p.volume)
		if n.Name == name && isReady && slices.Contains(n.Status.VolumesInUse, used) {
			return true, nil
		}
	}
	return false, nil
}

// withoutAttachment lists the publications that no VolumeAttachment requests, sorted. If the volume or the node of a
// VolumeAttachment is not known, it may request any.
func (u *unattached) withoutAttachment(published map[string][]string, attachments []*storagev1.VolumeAttachment) []publication {
	var wanted []publication // "": any
	for _, va := range attachments {
		if va.Spec.Attacher == u.driverName {
			wanted = append(wanted, publication{u.handleOf(va), u.nodeIDOf(va)})
		}
	}
	var lacking []publication
	for _, volume := range slices.Sorted(maps.Keys(published)) {
		for _, node := range published[volume] {
			asksFor := func(w publication) bool {
				return (w.volume == "" || w.volume == volume) && (w.node == "" || w.node == node)
			}
			if !slices.ContainsFunc(wanted, asksFor) {
				lacking = append(lacking, publication{volume, node})
			}
		}
	}
	return lacking
}

// handleOf is the driver's name for a VolumeAttachment's volume; "": it is not known.
func (u *unattached) handleOf(va *storagev1.VolumeAttachment) string {
	if inline := va.Spec.Source.InlineVolumeSpec; inline != nil && inline.CSI != nil {
		return inline.CSI.VolumeHandle
	}
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		if pv, err := u.volumes.Get(*name); err == nil && pv.Spec.CSI != nil {
			return pv.Spec.CSI.VolumeHandle
		}
	}
	return ""
}

// nodeIDOf is the driver's name for a VolumeAttachment's node; "": it is not known.
func (u *unattached) nodeIDOf(va *storagev1.VolumeAttachment) string {
	if n, err := u.csiNodes.Get(va.Spec.NodeName); err == nil {
		for _, d := range n.Spec.Drivers {
			if d.Name == u.driverName {
				return d.NodeID
			}
		}
	}
	return va.Annotations[annotationNodeID]
}

// nodeOf is Kubernetes' name for a node that the driver knows by an id. If it is not known, it is the id.
func (u *unattached) nodeOf(id string) string {
	nodes, err := u.csiNodes.List(labels.Everything())
	if err != nil {
		return id
	}
	for _, n := range nodes {
		for _, d := range n.Spec.Drivers {
			if d.Name == u.driverName && d.NodeID == id {
				return n.Name
			}
		}
	}
	return id
}

// subject is the object of the Events: the PersistentVolume, or only its name if it does not exist.
func (u *unattached) subject(p publication) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: p.volume}
	all, err := u.volumes.List(labels.Everything())
	if err != nil {
		return ref
	}
	for _, pv := range all {
		if csi := pv.Spec.CSI; csi != nil && csi.Driver == u.driverName && csi.VolumeHandle == p.volume {
			ref.Name, ref.UID = pv.Name, pv.UID
		}
	}
	return ref
}
