package node

import (
	"fmt"
	"maps"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// DeviceKindNBD is the data plane's name for devices of the kernel's NBD client.
const DeviceKindNBD = "nbd"

// DataPlane is the part of the instance manager's report that concerns the node and its disks.
type DataPlane struct {
	// Answers is false while the instance manager does not answer. Then the other fields are empty, and its former
	// report stays in the status.
	Answers bool
	// HangingDisks has, by path, a message about each disk that does not answer.
	HangingDisks map[string]string
	// DevicesKept: block devices outlive the process that serves them.
	DevicesKept bool
	// DeviceKind is the kind of new block devices, "nbd" or "fuse"; "": the instance manager's release does not report
	// it. WhyNoNBD is why it is not nbd.
	DeviceKind, WhyNoNBD string
	// DisksOnVolumes: the data plane can also store replicas on file systems that lie on volumes attached here.
	DisksOnVolumes bool
}

func (d DataPlane) equal(other DataPlane) bool {
	return d.Answers == other.Answers && d.DevicesKept == other.DevicesKept && d.DisksOnVolumes == other.DisksOnVolumes &&
		d.DeviceKind == other.DeviceKind && d.WhyNoNBD == other.WhyNoNBD && maps.Equal(d.HangingDisks, other.HangingDisks)
}

// mayUse reports whether the data plane can use a disk that lies on a volume. While the data plane does not answer, its
// report from when the disk was accepted counts.
func (d DataPlane) mayUse(disk longhorn.DiskStatus) bool {
	if !d.Answers {
		return disk.OnVolume != ""
	}
	return d.DisksOnVolumes
}

// deviceSuccession says whether the node's volumes stay attached when the process that serves them dies or is upgraded.
// The instance manager has tested it: it depends on the kernel (Linux 6.9).
func deviceSuccession(node string, d DataPlane) longhorn.Condition {
	if d.DevicesKept {
		return longhorn.Condition{
			Type: types.ConditionDeviceSuccession, Status: longhorn.ConditionTrue,
			Message: fmt.Sprintf("block devices on node %s survive a restart of the process that serves them", node),
		}
	}
	return longhorn.Condition{
		Type: types.ConditionDeviceSuccession, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelTooOld,
		Message: fmt.Sprintf("the kernel of node %s cannot send pending requests of a FUSE device again, which needs Linux 6.9. "+
			"When the instance manager's process exits, volumes attached here lose their device and are attached again. "+
			"The data plane is upgraded only while no volume is served here. "+
			"To change this, install Linux 6.9 or later, or load the kernel module nbd with Linux 5.14 or later", node),
	}
}

// kernelNBDClient says which kind new block devices of a node have. The other kind works everywhere, but one flush
// delays all other requests of the device (docs/decisions/0012).
func kernelNBDClient(node string, d DataPlane) longhorn.Condition {
	if d.DeviceKind == DeviceKindNBD {
		return longhorn.Condition{
			Type: types.ConditionKernelNBDClient, Status: longhorn.ConditionTrue,
			Message: fmt.Sprintf("new block devices on node %s use the kernel's NBD client", node),
		}
	}
	return longhorn.Condition{
		Type: types.ConditionKernelNBDClient, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelNBDClientNotUsed,
		Message: fmt.Sprintf("new block devices on node %s use FUSE and a loop device: %s", node, d.WhyNoNBD),
	}
}
