package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// IsExpansionRequired reports whether users still get less than spec.size. There are two cases: the size is not yet
// recorded in status.size, or the volume is in use and its engine offers less than the recorded size. The expansion
// of a detached volume is complete once the size is recorded: its replicas grow when they are opened. The engine may
// be nil. CSI, REST and the volume controller all use this function.
func IsExpansionRequired(v *longhorn.Volume, e *longhorn.Engine) bool {
	switch {
	case v.Status.Size == 0: // spec.size cannot grow before it is recorded
		return false
	case v.Spec.Size > v.Status.Size:
		return true
	case e == nil || v.Status.State == longhorn.VolumeStateDetached:
		return false
	}
	return e.Status.CurrentState == longhorn.InstanceStateRunning && e.Status.CurrentSize < v.Status.Size
}

// ReplicasGrow reports whether the process of an instance manager can enlarge replicas.
func ReplicasGrow(im *longhorn.InstanceManager) bool {
	g := growthOf(im)
	return g != nil && g.Replicas
}

// DevicesGrow reports whether the process of an instance manager can enlarge devices.
func DevicesGrow(im *longhorn.InstanceManager) bool {
	g := growthOf(im)
	return g != nil && g.Devices
}

// growthOf returns the report of the present process about itself. nil: its release reports nothing, or it has not
// reported yet.
func growthOf(im *longhorn.InstanceManager) *longhorn.ProcessGrowth {
	if im == nil || im.Status.Growth == nil || im.Status.UUID == "" || im.Status.Growth.UUID != im.Status.UUID {
		return nil
	}
	return im.Status.Growth
}
