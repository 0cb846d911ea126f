package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// controller is the core of the controller service. The caller of its methods holds the volume's lock.
type controller struct {
	volumes VolumeService
	driver  string
	// poll is the time between two reads of a volume. wait is the longest time that a call waits for a volume. A
	// caller's earlier deadline shortens it.
	poll, wait time.Duration
	log        *logrus.Entry
}

// create creates the volume unless it exists. An existing volume must be one that the same request could have created
// (checkExisting).
func (c *controller) create(ctx context.Context, r VolumeRequest) error {
	v, err := c.volumes.Volume(ctx, r.Name)
	if err == nil {
		return checkExisting(v, r)
	}
	if !errors.Is(err, ErrNotFound) {
		return withAction(err, "reading volume "+r.Name, r.Name)
	}
	if err := c.checkFirstNode(ctx, r); err != nil {
		return err
	}
	err = c.volumes.CreateVolume(ctx, r)
	// created between the two calls, by another process of ours or by a user
	if errors.Is(err, ErrConflict) {
		if v, getErr := c.volumes.Volume(ctx, r.Name); getErr == nil {
			return checkExisting(v, r)
		}
	}
	if err != nil {
		return withAction(err, "creating volume "+r.Name, r.Name)
	}
	c.log.WithFields(logrus.Fields{"volume": r.Name, "sizeBytes": r.SizeBytes}).Info("Created volume")
	_, err = c.await(ctx, r.Name, func(v Volume) (bool, error) {
		return v.State != "" && v.State != stateCreating, nil
	})
	if errors.Is(err, errWaitTimeout) {
		return status.Errorf(codes.DeadlineExceeded, "creating volume %s: the volume was not ready in time", r.Name)
	}
	return err
}

// delete removes the volume and waits until it is gone. It refuses a volume that a node has through this driver: its
// pod may still be writing. It requests the deletion of a shared volume only when the share has left its node. Until
// then the share's server has mounted the volume, and may still write.
func (c *controller) delete(ctx context.Context, name string) error {
	v, err := c.volumes.Volume(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return withAction(err, "reading volume "+name, name)
	}
	if err := checkUnpublished(v); err != nil {
		return err
	}
	if isServed(v) {
		v, err = c.awaitShareLeft(ctx, v)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if v.State != stateDeleting {
		if err := c.volumes.DeleteVolume(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			return withAction(err, "deleting volume "+name, name)
		}
		c.log.WithField("volume", name).Info("Requested the deletion of the volume")
	}
	_, err = c.await(ctx, name, func(Volume) (bool, error) { return false, nil })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if errors.Is(err, errWaitTimeout) {
		return status.Errorf(codes.DeadlineExceeded, "deleting volume %s: the volume still exists", name)
	}
	return err
}

// checkUnpublished refuses to delete a volume that this driver published to a node.
func checkUnpublished(v Volume) error {
	for _, t := range v.Tickets {
		if t.Type == attacherType && t.Satisfied {
			return status.Errorf(codes.FailedPrecondition, "deleting volume %s: node %s still uses it", v.Name, t.NodeID)
		}
	}
	return nil
}

// errWaitTimeout: the volume did not reach the expected state in time.
var errWaitTimeout = errors.New("the wait is over")

// await reads a volume until done returns true or an error, and returns the last state. It returns errWaitTimeout early
// enough for an answer before the caller's own deadline, with a better message than "too late".
func (c *controller) await(ctx context.Context, name string, done func(Volume) (bool, error)) (Volume, error) {
	end := time.NewTimer(c.waitLimit(ctx))
	defer end.Stop()
	next := time.NewTicker(c.poll)
	defer next.Stop()
	var last Volume
	for {
		v, err := c.volumes.Volume(ctx, name)
		if err != nil {
			return last, withAction(err, "waiting for volume "+name, name)
		}
		last = v
		if ok, err := done(v); ok || err != nil {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for volume %s: %w", name, ctx.Err())
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

// volumeContext is the information in the PersistentVolume for the node service and for users: the parameters as they
// were given, and the resulting access mode.
func volumeContext(params map[string]string, r VolumeRequest) map[string]string {
	result := maps.Clone(params)
	if result == nil {
		result = map[string]string{}
	}
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, types.ReservedParameterPrefix) })
	result[paramShare] = strconv.FormatBool(r.AccessMode == accessModeRWX)
	result[paramExclusive] = strconv.FormatBool(r.AccessMode == accessModeRWOP)
	return result
}
