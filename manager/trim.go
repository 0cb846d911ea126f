package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// NodeDaemons does on a volume's node what only its daemon can. Errors are those of a Manager.
type NodeDaemons interface {
	// TrimFilesystem trims the file system of a volume that is mounted on the node, whose daemon has the address. It returns within
	// a minute: false without an error if the trim goes on.
	TrimFilesystem(ctx context.Context, node, address, volume string) (isDone bool, err error)
}

// TrimFilesystem has the file system of an attached volume tell the volume which blocks it does not use, so that replicas give their
// space back. isDone is false if that goes on after the answer: Events of the volume tell of the end. It fails with ErrConflict where
// there is no mounted file system, and with ErrUnavailable where the node's daemon cannot be asked, or cannot do it now.
func (m *Manager) TrimFilesystem(ctx context.Context, name string) (view VolumeView, isDone bool, err error) {
	v, err := byName(ctx, m.deps.Volumes, name)
	if err != nil {
		return VolumeView{}, false, storeError("volume", name, err)
	}
	if view, err = m.view(v, nil); err != nil {
		return VolumeView{}, false, err
	}
	if why := notTrimmable(view); why != "" {
		return VolumeView{}, false, conflict("volume %q cannot be trimmed: %s", name, why)
	}
	node, err := m.Node(v.Status.CurrentNodeID)
	if err != nil {
		return VolumeView{}, false, err
	}
	if node.Address == "" || m.deps.Daemons == nil {
		return VolumeView{}, false, &Problem{Class: ErrUnavailable, Text: fmt.Sprintf("volume %q cannot be trimmed: no daemon runs on node %q, where it is attached", name, node.Node.Name)}
	}
	if isDone, err = m.deps.Daemons.TrimFilesystem(ctx, node.Node.Name, node.Address, name); err != nil {
		return VolumeView{}, false, err
	}
	m.deps.Log.WithField("volume", name).WithField("node", node.Node.Name).Info("file system trimmed on request, or being trimmed")
	return view, isDone, nil
}

// notTrimmable says why a volume certainly has no file system that is mounted; empty: it may have one.
func notTrimmable(view VolumeView) string {
	v, pv := view.Volume, view.PersistentVolume
	if why := NotTrimmable(v); why != "" {
		return why
	}
	if pv != nil && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return fmt.Sprintf("the volumeMode of its PersistentVolume %q is Block, so it is its pods that know what is on it", pv.Name)
	}
	return ""
}

// NotTrimmable is what the volume alone says of that; the daemon of its node asks it, too.
func NotTrimmable(v *longhorn.Volume) string {
	switch {
	case v.DeletionTimestamp != nil:
		return "it is being deleted"
	case v.Status.State != longhorn.VolumeStateAttached || v.Status.CurrentNodeID == "":
		state := v.Status.State
		if state == "" {
			state = longhorn.VolumeStateCreating
		}
		return fmt.Sprintf("it is %s, and only a file system that is mounted can be trimmed", state)
	case v.Status.FrontendDisabled:
		return "it is attached without a block device"
	}
	return ""
}
