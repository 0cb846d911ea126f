package manager

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// RevertSnapshot makes a volume return to a snapshot, and returns the snapshot. All that was written since the snapshot
// is lost. It records the revert in the Engine, and the replicas follow it when the volume is next attached.
//
// It fails with ErrConflict unless the volume is detached, and while later snapshots exist: deleted ones do not count.
// An engine starts only after a write to the Engine's spec that requests it. If that write comes first, the revert's
// write is a conflict, and the next attempt is refused. If it comes later, the engine starts with the reverted line.
func (m *Manager) RevertSnapshot(ctx context.Context, volume, name string) (*Snapshot, error) {
	v, err := byName(ctx, m.deps.Volumes, volume)
	if err != nil {
		return nil, storeError("volume", volume, err)
	}
	s, err := m.liveSnapshot(ctx, v, name)
	if err != nil {
		return nil, err
	}
	if s.Status.MarkRemoved || s.DeletionTimestamp != nil {
		return nil, conflict("failed to revert volume %q to snapshot %q since it's marked as Removed", volume, name)
	}
	err = m.retry(ctx, func() error {
		if err := m.checkRevertible(ctx, volume); err != nil {
			return err
		}
		e, err := m.deps.Engines.Live(ctx, types.EngineName(volume))
		switch {
		case apierrors.IsNotFound(err):
			return conflict("failed to revert snapshot for volume %s: no record of its snapshots exists", volume)
		case err != nil:
			return err
		case !isStopped(e):
			return conflict("failed to revert snapshot for volume %s: its engine is not stopped yet; try again", volume)
		}
		line, err := types.RevertLine(e.Status.Line, name)
		if err != nil {
			return conflict("failed to revert volume %q to snapshot %q: %v", volume, name, err)
		}
		e.Status.Line = line
		_, err = m.deps.Engines.UpdateStatus(ctx, e)
		return err
	})
	if err != nil {
		return nil, storeError("engine", types.EngineName(volume), err)
	}
	m.deps.Log.WithField("volume", volume).WithField("snapshot", name).Info("volume reverted on request")
	return s, nil
}

// checkRevertible refuses a volume that is not detached.
func (m *Manager) checkRevertible(ctx context.Context, volume string) error {
	v, err := byName(ctx, m.deps.Volumes, volume)
	switch {
	case err != nil:
		return storeError("volume", volume, err)
	case v.DeletionTimestamp != nil:
		return conflict("failed to revert snapshot for volume %s: it is being deleted", volume)
	case isAtRest(v):
		return nil
	case v.Status.State == longhorn.VolumeStateAttached && !v.Status.FrontendDisabled:
		return conflict("failed to revert snapshot for volume %s with frontend enabled: detach the volume first", volume)
	}
	return conflict("failed to revert snapshot for volume %s: it is not detached, and this release reverts only detached volumes", volume)
}

// isStopped reports whether no engine runs, and none was requested.
func isStopped(e *Engine) bool {
	state := e.Status.CurrentState
	return e.Spec.DesireState != longhorn.DesireStateRunning && e.Status.Session == "" && (state == "" || state == longhorn.InstanceStateStopped)
}
