package csi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/csi/sidecar"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// checkFirstNode refuses a strict-local volume if its first pod's node has no space for it: its data cannot be
// elsewhere, and Kubernetes can still choose another node.
func (c *controller) checkFirstNode(ctx context.Context, r VolumeRequest) error {
	if r.FirstNode == "" || r.DataLocality != localityStrict {
		return nil
	}
	size, err := c.volumes.Capacity(ctx, r, r.FirstNode)
	switch {
	case errors.Is(err, ErrNotFound): // a manager of an earlier release cannot say
		return nil
	case err != nil:
		return withAction(err, "asking the manager for the capacity of node "+r.FirstNode, r.FirstNode)
	case size < r.SizeBytes:
		return status.Errorf(codes.ResourceExhausted, "creating volume %s: node %s has no space for its %s; the largest possible strict-local volume there is %s",
			r.Name, r.FirstNode, types.ExactSizeText(r.SizeBytes), types.ExactSizeText(size))
	}
	return nil
}

// withDataNode adds the node that has the data of an attached strict-local volume to the context of its publication.
// There the sidecar finds it, and leads later pods to that node. If the data of a volume is on several nodes, the node
// is added when only one is left.
func withDataNode(publication map[string]string, v Volume) map[string]string {
	if v.Asked.DataLocality != localityStrict || len(v.StrictLocalNodes) != 1 {
		return publication
	}
	if publication == nil {
		publication = map[string]string{}
	}
	publication[sidecar.KeyStrictLocalNode] = v.StrictLocalNodes[0]
	return publication
}

// lacksDataNode reports whether the manager has not yet found where the data of a strict-local volume is. A manager of
// an earlier release never reports the node.
func lacksDataNode(v Volume) bool {
	return v.Asked.DataLocality == localityStrict && len(v.StrictLocalNodes) == 0
}
