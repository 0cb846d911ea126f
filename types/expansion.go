package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// IsExpansionRequired tells whether users still get less than spec.size: it is not recorded in status.size yet, or the volume is in use
// and its engine offers less than what is recorded. A detached volume is done once the size is recorded: its replicas grow when they are
// opened. The engine may be nil. CSI, REST and the volume controller all ask this function.
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

// ReplicasGrow tells whether the process that an instance manager shows makes replicas larger.
func ReplicasGrow(im *longhorn.InstanceManager) bool {
	g := growthOf(im)
	return g != nil && g.Replicas
}

// DevicesGrow tells whether the process that an instance manager shows makes devices larger.
func DevicesGrow(im *longhorn.InstanceManager) bool {
	g := growthOf(im)
	return g != nil && g.Devices
}

// growthOf is what the present process said of itself; nil: it is of a release that says nothing, or has not said it yet.
func growthOf(im *longhorn.InstanceManager) *longhorn.ProcessGrowth {
	if im == nil || im.Status.Growth == nil || im.Status.UUID == "" || im.Status.Growth.UUID != im.Status.UUID {
		return nil
	}
	return im.Status.Growth
}
