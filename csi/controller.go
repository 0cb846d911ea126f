package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// controllerServer is the shell of the controller service. It checks that a request is complete, takes the volume's
// lock and calls the core.
type controllerServer struct {
	csipb.UnimplementedControllerServer
	core  *controller
	locks volumeLocks
}

// controllerCapabilities are the capabilities that work today. Nothing else may be advertised.
var controllerCapabilities = []csipb.ControllerServiceCapability_RPC_Type{
	csipb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csipb.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csipb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csipb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csipb.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csipb.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csipb.ControllerServiceCapability_RPC_GET_CAPACITY,
	csipb.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csipb.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
}

func (s *controllerServer) ControllerGetCapabilities(context.Context, *csipb.ControllerGetCapabilitiesRequest) (*csipb.ControllerGetCapabilitiesResponse, error) {
	response := &csipb.ControllerGetCapabilitiesResponse{}
	capabilities := controllerCapabilities
	if s.core.clones {
		capabilities = append(slices.Clone(capabilities), csipb.ControllerServiceCapability_RPC_CLONE_VOLUME)
	}
	for _, c := range capabilities {
		response.Capabilities = append(response.Capabilities, &csipb.ControllerServiceCapability{
			Type: &csipb.ControllerServiceCapability_Rpc{Rpc: &csipb.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// ValidateVolumeCapabilities confirms the capabilities when all of them are supported.
func (s *controllerServer) ValidateVolumeCapabilities(ctx context.Context, req *csipb.ValidateVolumeCapabilitiesRequest) (*csipb.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, missing("volume id")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, missing("volume capabilities")
	}
	if !isVolumeID(req.GetVolumeId()) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	v, err := s.core.volumes.Volume(ctx, req.GetVolumeId())
	if err != nil {
		return nil, toStatus(err)
	}
	c, err := readCapabilities(req.GetVolumeCapabilities())
	if err == nil {
		err = checkMode(v, c)
	}
	if err != nil {
		return &csipb.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csipb.ValidateVolumeCapabilitiesResponse{Confirmed: &csipb.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}

// isVolumeID reports whether a text can be the name of a volume. If not, the text is not sent to the manager and never
// becomes part of a path.
func isVolumeID(text string) bool {
	name, err := types.VolumeName(text)
	return err == nil && name == text
}

// controller is the core of the controller service. The caller of its methods holds the volume's lock.
type controller struct {
	volumes VolumeService
	driver  string
	// poll is the time between two reads of a volume. wait is the longest time that a call waits for a volume. A
	// caller's earlier deadline shortens it.
	poll, wait time.Duration
	// clones: the manager creates volumes from snapshots and from other volumes; see clonesOffered.
	clones bool
	log    *logrus.Entry
}

// errWaitTimeout: the volume did not reach the expected state in time.
var errWaitTimeout = errors.New("the wait is over")

// await reads a volume until done returns true or an error; see the function await.
func (c *controller) await(ctx context.Context, name string, done func(Volume) (bool, error)) (Volume, error) {
	return await(ctx, c, "volume "+name, func() (Volume, error) {
		v, err := c.volumes.Volume(ctx, name)
		return v, withActionIf(err, "waiting for volume "+name, name)
	}, done)
}

// await reads an object until done returns true or an error, and returns the last state. It returns errWaitTimeout early
// enough for an answer before the caller's own deadline, with a better message than "too late".
func await[T any](ctx context.Context, c *controller, what string, read func() (T, error), done func(T) (bool, error)) (T, error) {
	end := time.NewTimer(c.waitLimit(ctx))
	defer end.Stop()
	next := time.NewTicker(c.poll)
	defer next.Stop()
	var last T
	for {
		now, err := read()
		if err != nil {
			return last, err
		}
		last = now
		if ok, err := done(now); ok || err != nil {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-end.C:
			return last, errWaitTimeout
		case <-next.C:
		}
	}
}

// waitLimit is how long await may wait: the rest of the deadline, less a tenth for cleaning up and answering, but never
// more than c.wait.
func (c *controller) waitLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.wait
	}
	left := time.Until(deadline)
	return min(c.wait, left-left/10)
}
