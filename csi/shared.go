package csi

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// keyShareEndpoint is the key, in the context of a publication, of the endpoint of a shared volume:
// nfs://<address>/<volume>. A volume that is published without it has a device.
const keyShareEndpoint = "shareEndpoint"

// isShared reports whether a share manager serves the volume over NFS. This, and not the claim, decides how a volume is
// published: the access mode may have been changed while the volume was detached.
func (v Volume) isShared() bool { return v.AccessMode == accessModeRWX }

// publishContext is the information about a published volume that the node service needs.
func publishContext(v Volume) map[string]string {
	if !v.isShared() {
		return nil
	}
	return map[string]string{keyShareEndpoint: v.ShareEndpoint}
}

// checkMode refuses to publish a volume in another mode than its own. A single node may use a shared volume alone.
func checkMode(v Volume, as capability) error {
	switch {
	case as.isShared() && !v.isShared():
		mode := v.AccessMode
		if mode == "" {
			mode = accessModeRWO
		}
		return status.Errorf(codes.FailedPrecondition,
			"attaching volume %s: its claim allows several nodes, but the volume's accessMode is %s; change accessMode to %s while the volume is detached", v.Name, mode, accessModeRWX)
	case as.block && v.isShared():
		return status.Errorf(codes.FailedPrecondition,
			"attaching volume %s: its claim is for a block volume, but the volume's accessMode is %s, and NFS has no block devices", v.Name, v.AccessMode)
	}
	return nil
}

// shareNotServed is the answer if the share was not served in time.
func shareNotServed(v Volume, id, node string) error {
	reason := v.Tickets[id].Message
	switch {
	case reason != "":
	case v.ShareState != "":
		reason = "its share manager is " + v.ShareState
	default:
		reason = "the volume has no share manager yet"
	}
	return status.Errorf(codes.DeadlineExceeded, "attaching volume %s to node %s: the volume was not served over NFS in time: %s", v.Name, node, reason)
}
