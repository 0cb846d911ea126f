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

// controller is the core of the controller service. Its methods must be called with
// the volume's lock held.
type controller struct {
	volumes VolumeService
	driver  string
	// poll is the time between two looks at a volume; wait is how long a call looks at
	// most. A caller's earlier deadline shortens it.
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
		return about(err, "looking for volume "+r.Name, r.Name)
	}
	if err := c.checkFirstNode(ctx, r); err != nil {
		return err
	}
	err = c.volumes.CreateVolume(ctx, r)
	if errors.Is(err, ErrConflict) { // made between the two calls: by another process of ours, or by a person
		if v, getErr := c.volumes.Volume(ctx, r.Name); getErr == nil {
			return checkExisting(v, r)
		}
	}
	if err != nil {
		return about(err, "creating volume "+r.Name, r.Name)
	}
	c.log.WithFields(logrus.Fields{"volume": r.Name, "sizeBytes": r.SizeBytes}).Info("Created volume")
	_, err = c.await(ctx, r.Name, func(v Volume) (bool, error) {
		return v.State != "" && v.State != stateCreating, nil
	})
	if errors.Is(err, errWaitOver) {
		return status.Errorf(codes.DeadlineExceeded, "creating volume %s: it was not ready in time", r.Name)
	}
	return err
}

// delete removes the volume and waits until it is gone. It refuses a volume that a node
// holds through this driver: its pod may still be writing. It asks for the deletion of a
// shared volume only when the share has left its node: until then the share's server has
// the volume mounted, and may still write.
func (c *controller) delete(ctx context.Context, name string) error {
	v, err := c.volumes.Volume(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return about(err, "looking for volume "+name, name)
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
			return about(err, "deleting volume "+name, name)
		}
		c.log.WithField("volume", name).Info("Asked for the volume to be deleted")
	}
	_, err = c.await(ctx, name, func(Volume) (bool, error) { return false, nil })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if errors.Is(err, errWaitOver) {
		return status.Errorf(codes.DeadlineExceeded, "deleting volume %s: it is still there", name)
	}
	return err
}

// checkUnpublished refuses to delete a volume that this driver published to a node.
func checkUnpublished(v Volume) error {
	for _, t := range v.Tickets {
		if t.Type == attacherType && t.Satisfied {
			return status.Errorf(codes.FailedPrecondition, "deleting volume %s: it is published to node %s", v.Name, t.NodeID)
		}
	}
	return nil
}

// errWaitOver: the volume did not come to the awaited state in time.
var errWaitOver = errors.New("the wait is over")

// await looks at a volume until done answers true or an error, and returns what it saw
// last. It ends with errWaitOver early enough to meet the caller's own deadline with an
// answer that says more than "too late".
func (c *controller) await(ctx context.Context, name string, done func(Volume) (bool, error)) (Volume, error) {
	end := time.NewTimer(c.patience(ctx))
	defer end.Stop()
	next := time.NewTicker(c.poll)
	defer next.Stop()
	var last Volume
	for {
		v, err := c.volumes.Volume(ctx, name)
		if err != nil {
			return last, about(err, "waiting for volume "+name, name)
		}
		last = v
		if ok, err := done(v); ok || err != nil {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for volume %s: %w", name, ctx.Err())
		case <-end.C:
			return last, errWaitOver
		case <-next.C:
		}
	}
}

// patience is how long await may look: what is left of the deadline, less a tenth for
// tidying up and answering, but never more than c.wait.
func (c *controller) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return c.wait
	}
	left := time.Until(deadline)
	return min(c.wait, left-left/10)
}

// volumeContext is what the node service and people find in the PersistentVolume: the
// parameters as they were given, and what became of the access mode.
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
