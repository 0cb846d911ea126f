package node

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Environment is the daemon's view of its node's mounts and kernel.
type Environment struct {
	// RootMount holds the optional fields (proc_pid_mountinfo(5)) of the mount by which the daemon sees the node's root
	// directory. "master:1": it receives new mounts of the node. "shared:1": mounts propagate in both directions.
	RootMount string
	// Devices are the NeededDevices that the kernel offers, or will offer upon use.
	Devices []string
	// Filesystems are the types that the kernel can mount now.
	Filesystems []string
	// Addresses are the addresses of the node's own network, sorted; none: they could not be read.
	Addresses []string
	// Err is why the kernel's properties could not be read.
	Err error
}

// NeededDevices are the devices, below /dev, that serve volumes.
var NeededDevices = []string{"fuse", "loop-control"}

// environmentConditions are the node's conditions that follow from the environment. They inform the user, and none of
// them prevents the use of a node. An existing disk can be used without mounts that appear later. If the kernel lacks a
// feature, a volume fails with its own reason.
func environmentConditions(node string, e Environment) []longhorn.Condition {
	return []longhorn.Condition{mountPropagation(node, e), kernelModules(node, e), nfsClient(node, e)}
}

// Conditions are all conditions that follow from observations on the node itself, for callers that examine it without a
// controller.
func Conditions(node string, e Environment, d DataPlane) []longhorn.Condition {
	return append(environmentConditions(node, e), deviceSuccession(node, d), kernelNBDClient(node, d))
}

func mountPropagation(node string, e Environment) longhorn.Condition {
	c := longhorn.Condition{
		Type: types.ConditionMountPropagation, Status: longhorn.ConditionTrue,
		Message: fmt.Sprintf("longhorn-manager sees the mounts of node %s, including later ones", node),
	}
	for _, field := range strings.Fields(e.RootMount) {
		if strings.HasPrefix(field, "master:") || strings.HasPrefix(field, "shared:") {
			return c
		}
	}
	c.Status, c.Reason = longhorn.ConditionFalse, types.ReasonNoMountPropagation
	c.Message = fmt.Sprintf("longhorn-manager does not see file systems that are mounted on node %s after it started. "+
		"The node's root directory must be a shared mount (mount --make-rshared /). "+
		"It must be mounted into the pod of longhorn-manager with mountPropagation HostToContainer", node)
	return c
}

func kernelModules(node string, e Environment) longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionKernelModulesLoaded, Status: longhorn.ConditionFalse}
	var missing []string
	for _, device := range NeededDevices {
		if !slices.Contains(e.Devices, device) {
			missing = append(missing, "/dev/"+device)
		}
	}
	switch {
	case e.Err != nil:
		c.Reason, c.Message = types.ReasonKernelCheckFailed, fmt.Sprintf("the kernel of node %s could not be examined: %v", node, e.Err)
	case len(missing) > 0:
		c.Reason = types.ReasonKernelModulesNotLoaded
		c.Message = fmt.Sprintf("the kernel of node %s lacks %s, which volumes need to be attached; load the modules fuse and loop (modprobe -a fuse loop)", node, strings.Join(missing, " and "))
	default:
		c.Status, c.Message = longhorn.ConditionTrue, fmt.Sprintf("the kernel of node %s has the devices that volumes need to be attached", node)
	}
	return c
}

func nfsClient(node string, e Environment) longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionNFSClientInstalled, Status: longhorn.ConditionFalse}
	switch {
	case e.Err != nil:
		c.Reason, c.Message = types.ReasonKernelCheckFailed, fmt.Sprintf("the kernel of node %s could not be examined: %v", node, e.Err)
	case !slices.Contains(e.Filesystems, "nfs4"):
		c.Reason = types.ReasonNFSClientNotFound
		c.Message = fmt.Sprintf("the kernel of node %s has no NFSv4 client loaded. Only volumes with access mode ReadWriteMany need it; to load it, run modprobe nfsv4", node)
	default:
		c.Status, c.Message = longhorn.ConditionTrue, fmt.Sprintf("the kernel of node %s has an NFSv4 client", node)
	}
	return c
}
