package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// NodeDaemons carries out on a volume's node what only the daemon of the node can do. Its errors are errors of a
// Manager.
type NodeDaemons interface {
	// TrimFilesystem trims the file system of a volume that is mounted on the node. address is the address of the
	// node's daemon. It returns within a minute, and false without an error if the trim continues after that.
	TrimFilesystem(ctx context.Context, node, address, volume string) (isDone bool, err error)
}

// TrimFilesystem makes the file system of an attached volume report to the volume which blocks it does not use, so that
// replicas free this space. isDone is false if the trim continues after the answer; then Events of the volume report
// the end. TrimFilesystem fails with ErrConflict if no file system of the volume is mounted. It fails with
// ErrUnavailable if the node's daemon cannot be reached, or cannot trim now.
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
		return VolumeView{}, false, &Problem{Class: ErrUnavailable, Text: fmt.Sprintf("volume %q cannot be trimmed: no longhorn-manager pod runs on node %q, where the volume is attached", name, node.Node.Name)}
	}
	if isDone, err = m.deps.Daemons.TrimFilesystem(ctx, node.Node.Name, node.Address, name); err != nil {
		return VolumeView{}, false, err
	}
	m.deps.Log.WithField("volume", name).WithField("node", node.Node.Name).Info("file system trimmed on request, or the trim continues")
	return view, isDone, nil
}

// notTrimmable returns the reason why a volume certainly has no mounted file system; empty: it may have one.
func notTrimmable(view VolumeView) string {
	v, pv := view.Volume, view.PersistentVolume
	if why := NotTrimmable(v); why != "" {
		return why
	}
	if pv != nil && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return fmt.Sprintf("the volumeMode of its PersistentVolume %q is Block, so only its pods know the content of the device", pv.Name)
	}
	return ""
}

// NotTrimmable returns the reasons of notTrimmable that only need the volume; the daemon of its node calls it, too.
func NotTrimmable(v *longhorn.Volume) string {
	switch {
	case v.DeletionTimestamp != nil:
		return "it is being deleted"
	case v.Status.State != longhorn.VolumeStateAttached || v.Status.CurrentNodeID == "":
		state := v.Status.State
		if state == "" {
			state = longhorn.VolumeStateCreating
		}
		return fmt.Sprintf("it is %s, and only a mounted file system can be trimmed", state)
	case v.Status.FrontendDisabled:
		return "it is attached without a block device"
	}
	return ""
}
