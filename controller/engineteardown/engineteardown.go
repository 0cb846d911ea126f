// Package engineteardown answers: when must an engine stop, when is it stopped, and when may its object go? Two
// controllers share these rules. The controller of the engine's node (package engine) stops the engine. The leader's
// controller (package strandedengine) assumes that the engine is stopped.
//
// The package owns these rules: when an engine must stop, when it counts as stopped, its status then, and the check
// before its finalizer is dropped. It must not know the data plane, nor nodes.
package engineteardown

import (
	"context"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// MustStop reports whether an engine must not run.
func MustStop(e *longhorn.Engine) bool {
	return e.DeletionTimestamp != nil || e.Spec.DesireState != longhorn.DesireStateRunning
}

// IsStopped reports whether a state means that an engine runs nowhere, or never ran.
func IsStopped(s longhorn.InstanceState) bool { return s == longhorn.InstanceStateStopped || s == "" }

// ClearRunStatus clears the status of the running engine. Generation and epoch stay, because they describe the data.
func ClearRunStatus(s *longhorn.EngineStatus) {
	s.Session, s.UUID, s.InstanceManagerName, s.Endpoint = "", "", "", ""
	s.CurrentSize = 0
	s.IsExpanding, s.LastExpansionError, s.LastExpansionFailedAt = false, "", ""
	s.CurrentReplicaAddressMap, s.ReplicaModeMap, s.RebuildStatus = nil, nil, nil
}

// ClearDeviceInUse sets DeviceInUse to False for an engine when its stop no longer waits for the device. The status is
// the one that is about to be written.
func ClearDeviceInUse(e *longhorn.Engine, s *longhorn.EngineStatus, now time.Time) {
	isOver := IsStopped(s.CurrentState) || s.CurrentState == longhorn.InstanceStateError
	if types.IsConditionTrue(s.Conditions, types.ConditionDeviceInUse) && (isOver || !MustStop(e)) {
		s.Conditions, _ = types.SetCondition(s.Conditions,
			longhorn.Condition{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionFalse}, now)
	}
}

// Store reads engines from the API server, and writes them.
type Store interface {
	Live(ctx context.Context, name string) (*longhorn.Engine, error)
	Update(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
}

// DropFinalizer drops the finalizer after a live read. The read must show that the engine is deleted and stopped, and
// has the same node in its spec as at the decision, or still none. A missing engine is the error of that read or write.
func DropFinalizer(ctx context.Context, engines Store, e *longhorn.Engine) error {
	live, err := engines.Live(ctx, e.Name)
	if err != nil {
		return err
	}
	if live.UID != e.UID || live.DeletionTimestamp == nil || live.Spec.NodeID != e.Spec.NodeID || !IsStopped(live.Status.CurrentState) {
		return queue.ErrStale
	}
	types.RemoveFinalizer(live)
	_, err = engines.Update(ctx, live)
	return err
}
