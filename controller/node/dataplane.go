package node

import (
	"fmt"
	"maps"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// DeviceKindNBD is the data plane's word for devices of the kernel's NBD client.
const DeviceKindNBD = "nbd"

// DataPlane is what the instance manager of this node says that concerns the node and its
// disks.
type DataPlane struct {
	// Answers is false while it does not: then the rest is empty, and what it said before stays.
	Answers bool
	// HangingDisks has, by path, what to say of the disks that do not answer it.
	HangingDisks map[string]string
	// DevicesKept: block devices outlive the process that serves them.
	DevicesKept bool
	// DeviceKind is what new block devices are made with, "nbd" or "fuse"; "": it is of a release that does not say. WhyNoNBD says
	// why not with the first.
	DeviceKind, WhyNoNBD string
	// DisksOnVolumes: it also keeps replicas on file systems that lie on volumes attached here.
	DisksOnVolumes bool
}

func (d DataPlane) equal(other DataPlane) bool {
	return d.Answers == other.Answers && d.DevicesKept == other.DevicesKept && d.DisksOnVolumes == other.DisksOnVolumes &&
		d.DeviceKind == other.DeviceKind && d.WhyNoNBD == other.WhyNoNBD && maps.Equal(d.HangingDisks, other.HangingDisks)
}

// mayUse tells whether the data plane can use a disk that lies on a volume. While the data plane
// does not answer, what it said when the disk was accepted counts.
func (d DataPlane) mayUse(disk longhorn.DiskStatus) bool {
	if !d.Answers {
		return disk.OnVolume != ""
	}
	return d.DisksOnVolumes
}

// deviceSuccession tells whether the node's volumes stay attached when the process that serves
// them dies or gets a new version. The instance manager has tried it out: it depends on the
// kernel (Linux 6.9).
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

// kernelNBDClient tells what new block devices of a node are made with. The other kind works everywhere, and one flush holds up all else
// of the device (docs/decisions/0012).
func kernelNBDClient(node string, d DataPlane) longhorn.Condition {
	if d.DeviceKind == DeviceKindNBD {
		return longhorn.Condition{
			Type: types.ConditionKernelNBDClient, Status: longhorn.ConditionTrue,
			Message: fmt.Sprintf("new block devices on node %s are made with the kernel's NBD client", node),
		}
	}
	return longhorn.Condition{
		Type: types.ConditionKernelNBDClient, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelNBDClientNotUsed,
		Message: fmt.Sprintf("new block devices on node %s are made with FUSE and a loop device: %s", node, d.WhyNoNBD),
	}
}
