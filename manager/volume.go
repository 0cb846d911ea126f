package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// VolumeView is a volume with all objects that belong to it. Callers must not modify it.
type VolumeView struct {
	Volume   *Volume
	Engines  []*Engine
	Replicas []ReplicaView
	// Rebuilds are the rebuilds under way, failed or complete, by the engine on the node where the volume is attached,
	// sorted by replica.
	Rebuilds []RebuildView
	// Purges have an entry for each healthy replica, sorted by replica, while the volume is attached and has snapshots.
	Purges []PurgeView
	// Attachment is nil while there is none.
	Attachment *VolumeAttachment
	// StrictLocalNodes are the only nodes on which the volume may be attached, according to types.StrictLocalNodes;
	// nil: all nodes.
	StrictLocalNodes []string
	// Robustness is the volume's robustness, corrected for changes of the spec that the controller has not seen yet: a
	// volume that has fewer healthy replicas than requested is degraded.
	Robustness longhorn.VolumeRobustness
	// ExpansionRequired: users still have less than spec.size.
	ExpansionRequired bool
	// Unplaced is the number of requested replicas that have no place yet.
	Unplaced int
	// Image is the image of the data plane; empty while no node has one.
	Image string
	// PersistentVolume is the volume's PersistentVolume, reduced to the fields that ClaimStore has; nil: there is none.
	PersistentVolume *corev1.PersistentVolume
	// Workloads are set by FindWorkloads.
	Workloads []Workload
	// Ready reports whether a workload may have the volume attached; if not, NotReadyMessage gives the reason.
	Ready           bool
	NotReadyMessage string
}

// ReplicaView is a replica as its volume's engine sees it.
type ReplicaView struct {
	*Replica
	// Mode is RW, WO or ERR; empty while the volume has no engine running.
	Mode string
	// Removed: the replica was removed, serves nothing, and other replicas have the data. Its object exists until its
	// node has removed its data.
	Removed bool
}

// RebuildView is the progress of the rebuild of a replica.
type RebuildView struct {
	Replica string
	RebuildStatus
}

// ListVolumes returns all volumes, sorted by name.
func (m *Manager) ListVolumes() ([]VolumeView, error) {
	volumes, err := m.deps.Volumes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	views := make([]VolumeView, 0, len(volumes))
	for _, v := range volumes {
		view, err := m.view(v, nil)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// Volume returns one volume. If the cache lacks it, Volume reads it from the API server. So it finds a volume that was
// just created, and "not found" is certain.
func (m *Manager) Volume(ctx context.Context, name string) (VolumeView, error) {
	v, err := m.deps.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		v, err = byName(ctx, m.deps.Volumes, name)
	}
	if err != nil {
		return VolumeView{}, storeError("volume", name, err)
	}
	return m.view(v, nil)
}

// DeleteVolume requests the deletion of a volume and its data, and does not wait for it. A repeated request is not an
// error until the volume is gone. The API server decides: for every account, its admission policies refuse to delete a
// volume that is attached, or that has the data of a claim. Then DeleteVolume fails with ErrConflict and the text of
// the policy.
func (m *Manager) DeleteVolume(ctx context.Context, name string) error {
	v, err := byName(ctx, m.deps.Volumes, name)
	if err != nil {
		return storeError("volume", name, err)
	}
	if v.DeletionTimestamp != nil {
		return nil
	}
	// By UID: not another volume that was created with this name in between.
	if err := m.deps.Volumes.Delete(ctx, name, datastore.Preconditions{UID: v.UID}); err != nil {
		return storeError("volume", name, err)
	}
	m.deps.Log.WithField("volume", name).Info("volume deletion requested")
	return nil
}

// view composes a volume's view from the caches; attachment, if not nil, is newer than the cached one.
func (m *Manager) view(v *Volume, attachment *VolumeAttachment) (VolumeView, error) {
	view := VolumeView{Volume: v, Attachment: attachment}
	engines, err := m.deps.Engines.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return view, fmt.Errorf("list engines of volume %s: %w", v.Name, err)
	}
	replicas, err := m.deps.Replicas.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return view, fmt.Errorf("list replicas of volume %s: %w", v.Name, err)
	}
	if attachment == nil {
		cached, err := m.deps.Attachments.GetRO(v.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return view, fmt.Errorf("get attachment of volume %s: %w", v.Name, err)
		}
		if err == nil && belongs(cached, v) {
			view.Attachment = cached
		}
	}
	for _, e := range engines {
		if belongs(e, v) {
			view.Engines = append(view.Engines, e)
		}
	}
	engine := servingEngine(v, view.Engines)
	modes := map[string]longhorn.ReplicaMode{}
	if engine != nil {
		modes = engine.Status.ReplicaModeMap
	}
	for _, r := range replicas {
		if belongs(r, v) {
			view.Replicas = append(view.Replicas, ReplicaView{Replica: r, Mode: string(modes[r.Name])})
		}
	}
	for i, r := range view.Replicas {
		view.Replicas[i].Removed = v.DeletionTimestamp == nil && r.DeletionTimestamp != nil && r.Mode == "" && hasData(view.Replicas)
	}
	if engine != nil {
		view.Rebuilds = rebuildsOf(engine, view.Replicas)
		if view.Purges, err = m.purgesOf(v, engine); err != nil {
			return view, err
		}
	}
	view.Unplaced = unplaced(v, replicas)
	if view.Image, err = m.image(); err != nil {
		return view, err
	}
	if view.PersistentVolume, err = m.persistentVolume(v.Name); err != nil {
		return view, err
	}
	view.StrictLocalNodes = strictLocalNodes(v, view.Engines, view.Replicas)
	view.Robustness = robustness(v, view.Engines, view.Replicas)
	view.ExpansionRequired = types.IsExpansionRequired(v, servingEngine(v, view.Engines))
	view.NotReadyMessage = notReadyMessage(v, view.Replicas)
	view.Ready = view.NotReadyMessage == ""
	return view, nil
}

// unplaced counts the replicas that a volume without any data lacks because no disk can take them. A volume that has
// been used is degraded instead: clients assume that each listed replica exists. The number is not known for a volume
// that no controller has seen yet, or that is being deleted.
func unplaced(v *Volume, replicas []*Replica) int {
	if v.Status.State == "" || v.DeletionTimestamp != nil || isUsed(v, replicas) {
		return 0
	}
	wanted := v.Spec.NumberOfReplicas
	for _, r := range replicas {
		if belongs(r, v) && r.DeletionTimestamp == nil {
			wanted--
		}
	}
	return max(wanted, 0)
}

// isUsed reports whether a volume is attached, or has ever had a healthy replica.
func isUsed(v *Volume, replicas []*Replica) bool {
	return v.Status.CurrentNodeID != "" || slices.ContainsFunc(replicas, func(r *Replica) bool { return belongs(r, v) && r.Spec.LastHealthyAt != "" })
}

func robustness(v *Volume, engines []*Engine, replicas []ReplicaView) longhorn.VolumeRobustness {
	e := servingEngine(v, engines)
	if v.Status.Robustness != longhorn.VolumeRobustnessHealthy || e == nil {
		return v.Status.Robustness
	}
	if len(types.GoodCopies(e, plain(replicas))) < v.Spec.NumberOfReplicas {
		return longhorn.VolumeRobustnessDegraded
	}
	return longhorn.VolumeRobustnessHealthy
}

func plain(views []ReplicaView) []*Replica {
	replicas := make([]*Replica, 0, len(views))
	for _, r := range views {
		replicas = append(replicas, r.Replica)
	}
	return replicas
}

func strictLocalNodes(v *Volume, engines []*Engine, replicas []ReplicaView) []string {
	var e *Engine
	if len(engines) > 0 {
		e = engines[0]
	}
	return types.StrictLocalNodes(v, e, plain(replicas))
}

// belongs reports whether an object belongs to this volume, and not to an earlier volume of the same name.
func belongs(o metav1.Object, v *Volume) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == v.UID })
}

// servingEngine returns the engine on the node where the volume is attached; nil if there is none.
func servingEngine(v *Volume, engines []*Engine) *Engine {
	for _, e := range engines {
		if v.Status.CurrentNodeID != "" && e.Spec.NodeID == v.Status.CurrentNodeID {
			return e
		}
	}
	return nil
}

// rebuildsOf omits the replicas that were removed: their rebuilds stopped because of the removal, and have not failed.
func rebuildsOf(e *Engine, replicas []ReplicaView) []RebuildView {
	var views []RebuildView
	for _, replica := range slices.Sorted(maps.Keys(e.Status.RebuildStatus)) {
		if !slices.ContainsFunc(replicas, func(r ReplicaView) bool { return r.Name == replica && r.DeletionTimestamp == nil }) {
			continue
		}
		views = append(views, RebuildView{Replica: replica, RebuildStatus: e.Status.RebuildStatus[replica]})
	}
	return views
}

// notReadyMessage returns the reason why a workload cannot have the volume attached; empty if it can. A replica without
// a place does not prevent the use of a volume that has data: the volume is degraded, and can be served.
func notReadyMessage(v *Volume, replicas []ReplicaView) string {
	detached := v.Status.State == longhorn.VolumeStateDetached
	switch {
	case v.DeletionTimestamp != nil:
		return "volume is being deleted"
	case v.Spec.NodeID == "" && !detached:
		state := v.Status.State
		if state == "" {
			state = longhorn.VolumeStateCreating
		}
		return fmt.Sprintf("volume is %s, not detached", state)
	case detached && !types.IsConditionTrue(v.Status.Conditions, types.ConditionScheduled) && !hasData(replicas) && hasUnplaced(v, replicas):
		return "replicas of the volume cannot be placed: " +
			types.FindCondition(v.Status.Conditions, types.ConditionScheduled).Message
	case v.Status.Robustness == longhorn.VolumeRobustnessFaulted:
		return "volume is faulted"
	}
	return ""
}

// hasData reports whether a replica was good once and is not known to have failed.
func hasData(replicas []ReplicaView) bool {
	return slices.ContainsFunc(replicas, func(r ReplicaView) bool {
		return r.Spec.LastHealthyAt != "" && r.Spec.FailedAt == "" && r.DeletionTimestamp == nil
	})
}

func hasUnplaced(v *Volume, replicas []ReplicaView) bool {
	return len(replicas) < v.Spec.NumberOfReplicas ||
		slices.ContainsFunc(replicas, func(r ReplicaView) bool { return r.Spec.NodeID == "" })
}

// unplaceable returns the scheduler's refusal as an error for the user who requested the volume.
func unplaceable(v *Volume, err error) error {
	problem := &Problem{Class: ErrInsufficient, Cause: err, Text: fmt.Sprintf(
		"volume %q: size %s with numberOfReplicas %d does not fit on the disks: %v",
		v.Name, types.SizeText(int64(v.Spec.Size)), v.Spec.NumberOfReplicas, err)}
	var u *scheduler.Unschedulable
	if errors.As(err, &u) {
		problem.Detail = u.Details()
	}
	return problem
}
