// Package ending has the rules of an engine's end that two controllers share: that of the
// engine's node (package engine), which stops it, and that of the leader (package abandon),
// which takes it for stopped.
//
// It owns: when an engine shall stop, when it counts as stopped, what its status says then,
// and the check before its finalizer is dropped. It must not know the data plane, nor nodes.
package ending

import (
	"context"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ShallStop tells whether an engine is not wanted to run.
func ShallStop(e *longhorn.Engine) bool {
	return e.DeletionTimestamp != nil || e.Spec.DesireState != longhorn.DesireStateRunning
}

// IsStopped tells whether the state is that of an engine that runs nowhere, or never ran.
func IsStopped(s longhorn.InstanceState) bool { return s == longhorn.InstanceStateStopped || s == "" }

// ForgetRun forgets the running engine; generation and epoch stay, for they describe the data.
func ForgetRun(s *longhorn.EngineStatus) {
	s.Session, s.UUID, s.InstanceManagerName, s.Endpoint = "", "", "", ""
	s.CurrentSize = 0
	s.IsExpanding, s.LastExpansionError, s.LastExpansionFailedAt = false, "", ""
	s.CurrentReplicaAddressMap, s.ReplicaModeMap, s.RebuildStatus = nil, nil, nil
}

// LetGo turns DeviceInUse off for an engine that nothing waits for any more. The status is the
// one that is about to be written.
func LetGo(e *longhorn.Engine, s *longhorn.EngineStatus, now time.Time) {
	ended := IsStopped(s.CurrentState) || s.CurrentState == longhorn.InstanceStateError
	if types.IsConditionTrue(s.Conditions, types.ConditionDeviceInUse) && (ended || !ShallStop(e)) {
		s.Conditions, _ = types.SetCondition(s.Conditions,
			longhorn.Condition{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionFalse}, now)
	}
}

// Store reads engines from the API server, and writes them.
type Store interface {
	Live(ctx context.Context, name string) (*longhorn.Engine, error)
	Update(ctx context.Context, e *longhorn.Engine) (*longhorn.Engine, error)
}

// Forget drops the finalizer after a live read that shows the deletion, and an engine that is
// stopped and on the node that it was on when that was decided, or still on none. A missing
// engine is the error of that read or write.
func Forget(ctx context.Context, engines Store, e *longhorn.Engine) error {
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
