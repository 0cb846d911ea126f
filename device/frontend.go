package device

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// FrontendOptions say where a frontend has its device kept, and for whom.
type FrontendOptions struct {
	Keeper Keeper
	Owner  Owner
	Log    *logrus.Entry
}

// Frontend offers a volume as a block device. It needs root, a kernel of 5.8 or later, and /dev/fuse. It belongs to one start of one
// engine.
type Frontend struct {
	opts FrontendOptions

	mu    sync.Mutex
	held  *Held  // guarded by mu; the device, nil while there is none
	image *image // guarded by mu; what is served
}

var (
	_ engine.Frontend = (*Frontend)(nil)
	_ engine.Aborter  = (*Frontend)(nil)
)

// NewFrontend returns a frontend for one start of an engine.
func NewFrontend(opts FrontendOptions) *Frontend {
	if opts.Log == nil {
		opts.Log = silent()
	}
	return &Frontend{opts: opts}
}

// Start implements engine.Frontend. A device of the volume that is kept is taken over, with all its users.
func (f *Frontend) Start(ctx context.Context, volume string, sizeBytes int64, b nbd.Backend) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.image != nil {
		return "", errors.New("the frontend was started before")
	}
	spec := Spec{Volume: volume, SizeBytes: sizeBytes, Owner: f.opts.Owner, MaxWrite: fuseMaxIO}
	if err := spec.validate(); err != nil {
		return "", err
	}
	image, err := mountImage(sizeBytes, b)
	if err != nil {
		return "", err
	}
	held, err := f.opts.Keeper.Attach(ctx, spec, image.dev, image.file)
	if err != nil { // nothing was written; whoever looks at the loop device already must not keep the file system alive
		err = errors.Join(err, image.abort())
		image.closeFile()
		return "", errors.Join(err, image.wait(ctx))
	}
	image.closeFile() // the loop device has its own hold
	f.image, f.held = image, &held
	f.opts.Log.WithFields(logrus.Fields{"device": held.Path, "loop": held.Loop}).Info("Device made")
	return held.Path, nil
}

// Stop implements engine.Frontend. Whoever has the device mounted or open, under any of its names and in any mount namespace, makes it
// return ErrInUse.
func (f *Frontend) Stop(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		if err := f.opts.Keeper.Detach(ctx, f.held.Volume, f.opts.Owner); err != nil {
			return err
		}
		f.opts.Log.WithField("device", f.held.Path).Info("Device removed")
		f.held = nil
	}
	if f.image != nil {
		if err := f.image.wait(ctx); err != nil {
			return err
		}
		f.image = nil
	}
	return nil
}

// Abort implements engine.Aborter.
func (f *Frontend) Abort(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.held != nil {
		err = f.opts.Keeper.Abort(ctx, f.held.Volume)
		f.held = nil
	}
	if f.image != nil && err == nil {
		err = f.image.wait(ctx)
		f.image = nil
	}
	if err != nil {
		return fmt.Errorf("abort the device: %w", err)
	}
	return nil
}

// Leave ends the service and leaves the device to a successor: no request is read any more, those under way are answered. When it fails
// a request is still under way, and only the end of this process makes room for a successor.
func (f *Frontend) Leave(ctx context.Context) error {
	return errors.ErrUnsupported
}
