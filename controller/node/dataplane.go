package node

import (
	"fmt"
	"maps"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// DataPlane is what the instance manager of this node says that concerns the node and its
// disks.
type DataPlane struct {
	// Answers is false while it does not: then the rest is empty, and what it said before stays.
	Answers bool
	// SilentDisks has, by path, what is to be said of the disks that do not answer it.
	SilentDisks map[string]string
	// DevicesKept: block devices outlive the process that serves them.
	DevicesKept bool
}

func (d DataPlane) equal(other DataPlane) bool {
	return d.Answers == other.Answers && d.DevicesKept == other.DevicesKept && maps.Equal(d.SilentDisks, other.SilentDisks)
}

// deviceSuccession tells whether volumes attached to the node survive the death of the
// process that serves them, and get a new version of it without being detached. The
// instance manager has tried it out: it depends on the kernel (Linux 6.9).
func deviceSuccession(node string, d DataPlane) longhorn.Condition {
	if d.DevicesKept {
		return longhorn.Condition{
			Type: types.ConditionDeviceSuccession, Status: longhorn.ConditionTrue,
			Message: fmt.Sprintf("block devices on node %s outlive the process that serves them", node),
		}
	}
	return longhorn.Condition{
		Type: types.ConditionDeviceSuccession, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelTooOld,
		Message: fmt.Sprintf("the kernel of node %s does not send requests of a FUSE device again, which needs Linux 6.9: when the instance manager's process ends, "+
			"volumes attached here lose their device and are attached anew, and a new version reaches the data plane only while no volume is served here", node),
	}
}
