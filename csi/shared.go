package csi

import (
	"context"
	"errors"

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

// isServed reports whether the volume is on the node of its share, or of a job of this product such as a snapshot. It is
// true as well while the volume is about to be attached there, or has not left the node yet. A faulted volume that stays
// detaching is not served: its node is away and may never return, and deletion is the only way out. Other users must
// detach the volume themselves.
func isServed(v Volume) bool {
	switch v.State {
	case stateAttaching, stateAttached, stateDetaching:
	default:
		return false
	}
	if v.State == stateDetaching && v.Faulted {
		return false
	}
	return v.isShared() || v.State == stateDetaching || hasOnlyJobs(v)
}

// hasOnlyJobs reports whether only jobs of this product have requested the attachment.
func hasOnlyJobs(v Volume) bool {
	for _, t := range v.Tickets {
		if t.Type != snapshotType {
			return false
		}
	}
	return len(v.Tickets) > 0
}

// awaitLeft returns when the share, or the job, has left its node. Aborted: it has not left in time, and the caller asks
// again.
func (c *controller) awaitLeft(ctx context.Context, v Volume) (Volume, error) {
	last, err := c.await(ctx, v.Name, func(v Volume) (bool, error) {
		return !isServed(v), checkUnpublished(v)
	})
	if !errors.Is(err, errWaitTimeout) {
		return last, err
	}
	what := "it"
	if last.isShared() {
		what = "its share"
	}
	return last, status.Errorf(codes.Aborted, "deleting volume %s: %s has not left node %s yet (the volume is %s); the data is deleted after that",
		last.Name, what, last.NodeID, last.State)
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
