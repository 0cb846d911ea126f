package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// ControllerExpandVolume returns when the volume has the size. This means its device, or, while it is detached, its
// record.
func (s *controllerServer) ControllerExpandVolume(ctx context.Context, req *csipb.ControllerExpandVolumeRequest) (*csipb.ControllerExpandVolumeResponse, error) {
	volume := req.GetVolumeId()
	if volume == "" {
		return nil, missing("volume id")
	}
	if req.GetCapacityRange().GetRequiredBytes() == 0 && req.GetCapacityRange().GetLimitBytes() == 0 {
		return nil, missing("capacity range")
	}
	if !isVolumeID(volume) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	var c capability
	if req.GetVolumeCapability() != nil {
		var err error
		if c, err = readCapability(req.GetVolumeCapability()); err != nil {
			return nil, invalid(err)
		}
	}
	size, err := expandedSize(req.GetCapacityRange(), c)
	if err != nil {
		return nil, invalid(err)
	}
	unlock, ok := s.locks.tryLock(volume)
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	v, err := s.core.expand(ctx, volume, size, req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerExpandVolumeResponse{
		CapacityBytes: v.SizeBytes,
		// A volume that is staged later grows at that time. The share manager grows the file system of a shared volume.
		NodeExpansionRequired: !c.block && v.State != stateDetached && !v.isShared(),
	}, nil
}

// maxSettleReads is how many reads of a volume after the request for its expansion may still show why an earlier
// expansion waited.
const maxSettleReads = 3

// expandedSize is the requested size of a volume: the required size, adjusted to the rules for sizes.
func expandedSize(r *csipb.CapacityRange, c capability) (int64, error) {
	size, err := volumeSize(r, "")
	if err != nil || c.block {
		return size, err
	}
	if most := types.MaximumFilesystemSize(c.fsType); size > most {
		return 0, errOutOfRange{fmt.Sprintf("capacity range: %s is more than the largest possible size of an %s file system, %s", types.ExactSizeText(size), c.fsType, types.ExactSizeText(most))}
	}
	return size, nil
}

// expand requests a size, unless the volume has it, and waits until its users get it. It may be repeated.
//
// The resizer treats OutOfRange as final: nothing is under way, and the claim may request less. So before expand
// returns that answer, it cancels its request. If that fails because the expansion has started after all, the answer
// becomes Aborted, after which the resizer requests the same size again. Usually the manager knows that there is not
// enough space and refuses, so there is nothing to cancel. A manager of an earlier release does not.
func (c *controller) expand(ctx context.Context, name string, size, limit int64) (Volume, error) {
	v, err := c.volumes.Volume(ctx, name)
	if err != nil {
		return v, withAction(err, "reading volume "+name, name)
	}
	switch {
	case v.State == stateDeleting:
		return v, status.Errorf(codes.NotFound, "volume %s is being deleted", name)
	case limit > 0 && v.SizeBytes > limit:
		return v, status.Errorf(codes.OutOfRange, "expanding volume %s: its size %s is more than the limit %s", name, types.ExactSizeText(v.SizeBytes), types.ExactSizeText(limit))
	case v.SizeBytes < size:
		if err := c.volumes.Expand(ctx, name, size); errors.Is(err, ErrInsufficientStorage) {
			return v, status.Error(codes.OutOfRange, withAction(err, fmt.Sprintf("expanding volume %s to %s", name, types.ExactSizeText(size)), name).Error())
		} else if err != nil {
			return v, withAction(err, "expanding volume "+name, name)
		}
		c.log.WithFields(logrus.Fields{"volume": name, "sizeBytes": size}).Info("Requested the expansion of the volume")
	}
	reads := 0
	v, err = c.await(ctx, name, func(v Volume) (bool, error) {
		reads++
		if reads > maxSettleReads && v.Expanding && isInfeasible(v.ExpansionReason) {
			return false, errInfeasible
		}
		return v.SizeBytes >= size && !v.Expanding, nil
	})
	switch {
	case errors.Is(err, errInfeasible):
		return v, c.cancelInfeasible(ctx, v)
	case errors.Is(err, errWaitTimeout):
		return v, status.Errorf(codes.DeadlineExceeded, "expanding volume %s to %s: the expansion did not finish in time: %s", name, types.ExactSizeText(size), v.ExpansionMessage)
	}
	return v, err
}

// errInfeasible: the expansion has not started, and will not start under the present conditions.
var errInfeasible = errors.New("the expansion does not fit")

// isInfeasible reports whether a user must free space, or request less.
func isInfeasible(reason string) bool {
	return reason == types.ReasonSizeLimit || reason == types.ReasonNoRoomToGrow
}

func (c *controller) cancelInfeasible(ctx context.Context, v Volume) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if err := c.volumes.CancelExpansion(ctx, v.Name); err != nil {
		return status.Errorf(codes.Aborted, "expanding volume %s: %s; cancelling the expansion: %v", v.Name, v.ExpansionMessage, err)
	}
	c.log.WithFields(logrus.Fields{"volume": v.Name, "reason": v.ExpansionReason}).Info("Cancelled an expansion for which there is not enough space")
	return status.Errorf(codes.OutOfRange, "expanding volume %s to %s: %s", v.Name, types.ExactSizeText(v.SizeBytes), v.ExpansionMessage)
}
