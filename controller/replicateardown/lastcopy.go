package replicateardown

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// retryKept is the time until a controller checks again whether a deleted replica must stay: no event tells it that
// another replica is good.
const retryKept = 30 * time.Second

// IsLastCopy reports whether a deleted replica must stay, regardless of the client that deleted it: its volume
// stays, and has no other healthy replica. v and e may be nil. nodes are the nodes of the siblings, by name; a missing
// node is gone.
//
//	volume                             engine's record           replica
//	gone, another one, or deleted      any                       goes
//	exists                             does not list it          goes
//	exists                             lists it, and a good one  goes
//	                                   that is not deleted, can
//	                                   be opened and reached
//	exists                             lists it and no such one  stays, even if it has failed: no other one has more data
//	exists                             none: no engine           stays, unless one that is not deleted
//	                                                             remains, and was good if this one was
//	exists                             none: the engine is new   the same, if it was good once;
//	                                                             else it never had data, and goes
func IsLastCopy(r *longhorn.Replica, v *longhorn.Volume, e *longhorn.Engine, siblings []*longhorn.Replica, nodes map[string]*longhorn.Node) bool {
	if v == nil || v.DeletionTimestamp != nil || !isOwner(v, r) || !r.Status.DirectoryCreated {
		return false
	}
	isRecorded, wasGood := e != nil && e.Status.Epoch != nil, r.Spec.HealthyAt != ""
	switch {
	case isRecorded && !slices.Contains(e.Status.Epoch.Members, r.Name):
		return false
	case e != nil && !isRecorded && !wasGood:
		return false
	}
	for _, s := range siblings {
		if s.Name == r.Name || s.DeletionTimestamp != nil || isNodeGone(s) {
			continue
		}
		if isRecorded && types.IsGoodCopy(e, s) && canServe(s, nodes[s.Spec.NodeID]) {
			return false
		}
		if !isRecorded && s.Spec.VolumeName == r.Spec.VolumeName && (s.Spec.HealthyAt != "" || !wasGood) {
			return false
		}
	}
	return true
}

// canServe reports whether a replica that has not failed can be opened and reached. While a volume is detached, no
// engine notices that a node or a disk is lost: the status of its replicas does not change.
func canServe(r *longhorn.Replica, n *longhorn.Node) bool {
	return r.Status.CurrentState != longhorn.InstanceStateError && types.IsReachable(r, n)
}

func isOwner(v *longhorn.Volume, r *longhorn.Replica) bool {
	for _, ref := range r.OwnerReferences {
		if ref.UID == v.UID {
			return true
		}
	}
	return false
}

func isNodeGone(r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateError &&
		types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone
}

// VolumeStore, EngineStore, NodeStore and ReplicaStore read live the objects that decide whether data may be
// removed.
type (
	VolumeStore interface {
		Live(ctx context.Context, name string) (*longhorn.Volume, error)
	}
	EngineStore interface {
		Live(ctx context.Context, name string) (*longhorn.Engine, error)
	}
	NodeStore interface {
		Live(ctx context.Context, name string) (*longhorn.Node, error)
	}
	ReplicaStore interface {
		ListLive(ctx context.Context, opts metav1.ListOptions) ([]*longhorn.Replica, error)
	}
)

// Stores are the sources for the decision whether a replica is the last copy.
type Stores struct {
	Volumes  VolumeStore
	Engines  EngineStore
	Nodes    NodeStore
	Replicas ReplicaStore
}

// IsLastCopy calls the function IsLastCopy with the current objects of the API server: the action that follows
// cannot be undone.
func (s Stores) IsLastCopy(ctx context.Context, r *longhorn.Replica) (bool, error) {
	v, err := s.Volumes.Live(ctx, r.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e, err := s.Engines.Live(ctx, types.EngineName(r.Spec.VolumeName))
	if apierrors.IsNotFound(err) {
		e, err = nil, nil
	}
	if err != nil {
		return false, err
	}
	siblings, err := s.Replicas.ListLive(ctx, metav1.ListOptions{LabelSelector: types.LabelVolume + "=" + r.Spec.VolumeName})
	if err != nil {
		return false, err
	}
	nodes, err := s.nodesOf(ctx, siblings)
	if err != nil {
		return false, err
	}
	return IsLastCopy(r, v, e, siblings, nodes), nil
}

// nodesOf reads the nodes of replicas. A node that is gone is nil in the result.
func (s Stores) nodesOf(ctx context.Context, replicas []*longhorn.Replica) (map[string]*longhorn.Node, error) {
	nodes := map[string]*longhorn.Node{}
	for _, r := range replicas {
		if _, known := nodes[r.Spec.NodeID]; known || r.Spec.NodeID == "" {
			continue
		}
		n, err := s.Nodes.Live(ctx, r.Spec.NodeID)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		nodes[r.Spec.NodeID] = n
	}
	return nodes, nil
}

// SetRemovable sets the condition Removable: False while a deleted replica must stay, True when it no longer must. It
// returns the time until the next check; 0: none is needed.
func SetRemovable(r *longhorn.Replica, kept bool, s *longhorn.ReplicaStatus, now time.Time) (after time.Duration) {
	was := types.FindCondition(r.Status.Conditions, types.ConditionRemovable)
	if !kept && was.Status == longhorn.ConditionUnknown {
		return 0
	}
	condition := longhorn.Condition{Type: types.ConditionRemovable, Status: longhorn.ConditionTrue}
	if kept {
		after = retryKept
		condition.Status, condition.Reason = longhorn.ConditionFalse, types.ReasonLastReplica
		condition.Message = fmt.Sprintf("the replica was deleted, but is the last healthy replica of volume %s: it stays and serves until another replica is healthy; "+
			"to delete the data, delete the volume", r.Spec.VolumeName)
	}
	s.Conditions, _ = types.SetCondition(s.Conditions, condition, now)
	return after
}

// RecordKept records the Event about that, once.
func RecordKept(recorder record.EventRecorder, r *longhorn.Replica, next longhorn.ReplicaStatus) {
	was, is := types.FindCondition(r.Status.Conditions, types.ConditionRemovable), types.FindCondition(next.Conditions, types.ConditionRemovable)
	if is.Status == longhorn.ConditionFalse && was.Status != longhorn.ConditionFalse {
		recorder.Event(r, corev1.EventTypeWarning, types.EventFailedDeleting, is.Message)
	}
}
