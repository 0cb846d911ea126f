package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// FrontendOptions name the keeper of a frontend's device, and the owner of the device.
type FrontendOptions struct {
	Keeper Keeper
	Owner  Owner
	// Predecessor is the session of the device that the frontend takes over. With "" the frontend creates a device, and
	// ends any device that the keeper has for the volume.
	Predecessor string
	Log         *logrus.Entry
}

// Frontend offers a volume as a block device. It needs root, Linux 5.8 or later, and /dev/fuse. It belongs to one start
// of one engine.
type Frontend struct {
	opts FrontendOptions

	mu     sync.Mutex
	held   *Held   // guarded by mu; the device, nil if there is none
	server service // guarded by mu; serves the device

	number atomic.Uint64 // of held; not guarded by mu, which is held for a long time
}

// service answers the requests of a device.
type service interface {
	// Stop stops reading requests. The service still answers the requests that it has read.
	Stop()
	// Ended is closed when the kernel has released the device, or after Stop. All requests that were read are answered
	// by then.
	Ended() <-chan struct{}
	// Grow serves a larger size from now on.
	Grow(sizeBytes int64) error
	// HoldChanges delays the answers to changes for as long as the kernel must not see them.
	HoldChanges() (resume func())
}

var (
	_ engine.Frontend = (*Frontend)(nil)
	_ engine.Aborter  = (*Frontend)(nil)
	_ engine.Resizer  = (*Frontend)(nil)
)

// NewFrontend returns a frontend for one start of an engine.
func NewFrontend(opts FrontendOptions) *Frontend {
	if opts.Log == nil {
		opts.Log = silent()
	}
	return &Frontend{opts: opts}
}

// Start implements engine.Frontend. It takes over the device of the predecessor, with all its users. The users of any
// other device may have cached data that is older than the volume. So Start ends such a device, and does not take it
// over only because it exists.
func (f *Frontend) Start(ctx context.Context, volume string, sizeBytes int64, b nbd.Backend) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return "", errors.New("the frontend was already started")
	}
	spec := Spec{Volume: volume, SizeBytes: sizeBytes, Owner: f.opts.Owner, MaxWrite: fuse.MaxWrite}
	if err := spec.validate(); err != nil {
		return "", err
	}
	start, done, err := f.prepare(ctx, spec)
	if err != nil {
		return "", err
	}
	held, server, err := start(ctx, spec, b)
	if err != nil {
		return "", err
	}
	f.held, f.server = &held, server
	f.number.Store(held.Dev)
	f.opts.Log.WithFields(logrus.Fields{"device": held.Path, "loop": held.Loop}).Info(done)
	return held.Path, nil
}

type starter func(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error)

// prepare decides whether the device is created or taken over. It returns the function for that, and the message to log
// afterwards.
func (f *Frontend) prepare(ctx context.Context, spec Spec) (start starter, done string, err error) {
	all, err := f.opts.Keeper.List(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("find the device of volume %s: %w", spec.Volume, err)
	}
	i := slices.IndexFunc(all, func(h Held) bool { return h.Volume == spec.Volume })
	switch predecessor := f.opts.Predecessor; {
	case i >= 0 && all[i].Served:
		return nil, "", fmt.Errorf("%s is the device of a running engine: %w", all[i].Path, ErrServed)
	case predecessor != "" && (i < 0 || all[i].Owner.Session != predecessor):
		return nil, "", fmt.Errorf("take over the device of session %s of volume %s: %w", predecessor, spec.Volume, ErrNotHeld)
	case predecessor != "" && all[i].SizeBytes > spec.SizeBytes:
		return nil, "", fmt.Errorf("the device of volume %s has %d bytes, but the engine's size is %d bytes", spec.Volume, all[i].SizeBytes, spec.SizeBytes)
	case predecessor != "" && all[i].Kind == KindNBD:
		return f.adoptNBD, "Device taken over", nil
	case predecessor != "":
		return f.adopt, "Device taken over", nil
	case i >= 0:
		if err := f.opts.Keeper.Abort(ctx, spec.Volume); err != nil {
			return nil, "", fmt.Errorf("remove the old device of volume %s: %w", spec.Volume, err)
		}
	}
	if makes, reason := f.opts.Keeper.MakesNBD(); !makes {
		f.opts.Log.WithField("reason", reason).Debug("The device is created with FUSE")
		return f.create, "Device created", nil
	}
	return f.createNBD, "Device created", nil
}

// create creates all parts of a device, or none.
func (f *Frontend) create(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error) {
	mount, err := fuse.NewMount()
	if err != nil {
		return Held{}, nil, err
	}
	defer mount.Close() // afterwards only the loop device, if created, holds the file system
	conn, err := fuse.Dup(mount.Conn())
	if err != nil {
		return Held{}, nil, err
	}
	server, err := f.serve(conn, spec, b)
	if err != nil {
		return Held{}, nil, err
	}
	file, err := mount.Open()
	if err != nil {
		return Held{}, nil, errors.Join(err, endService(ctx, server))
	}
	defer unix.Close(file)
	held, err := f.opts.Keeper.Attach(ctx, spec, mount.Conn(), file)
	// Nothing was written. If another process already inspects the loop device, it must not keep the file system alive.
	if err != nil {
		if number, e := fuse.Number(file); e == nil {
			err = errors.Join(err, fuse.Abort(number))
		}
		return Held{}, nil, errors.Join(err, endService(ctx, server))
	}
	return held, server, nil
}

// adopt takes a device over. The kernel resends the requests that the predecessor had taken, before any other
// request is read.
func (f *Frontend) adopt(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error) {
	conn, held, err := f.opts.Keeper.Adopt(ctx, spec.Volume, f.opts.Owner)
	if err != nil {
		return Held{}, nil, fmt.Errorf("take over the device: %w", err)
	}
	if err := fuse.Resend(conn); err != nil {
		_ = unix.Close(conn)
		return Held{}, nil, errors.Join(err, f.opts.Keeper.Leave(ctx, spec.Volume, f.opts.Owner))
	}
	served := held.Spec
	served.SizeBytes = spec.SizeBytes // the predecessor may have exited while the device grew; Resize finishes that
	server, err := f.serve(conn, served, b)
	if err != nil {
		return Held{}, nil, errors.Join(err, f.opts.Keeper.Leave(ctx, spec.Volume, f.opts.Owner))
	}
	return held, server, nil
}

// serve serves a connection. It takes over the descriptor.
func (f *Frontend) serve(conn int, spec Spec, b nbd.Backend) (*fuse.Server, error) {
	server, err := fuse.NewServer(conn, spec.SizeBytes, spec.MaxWrite, backend{b})
	if err != nil {
		return nil, err
	}
	go func() {
		if err := server.Serve(); err != nil {
			f.opts.Log.WithError(err).WithField("volume", spec.Volume).Error("The volume's device is no longer served")
		}
	}()
	return server, nil
}

// Resize implements engine.Resizer. It waits without holding mu, so that an Abort does not wait for it.
func (f *Frontend) Resize(ctx context.Context, sizeBytes int64) error {
	f.mu.Lock()
	held, server := f.held, f.server
	f.mu.Unlock()
	if held == nil || server == nil {
		return errors.New("there is no device")
	}
	defer server.HoldChanges()()
	if err := server.Grow(sizeBytes); err != nil {
		return err
	}
	if err := f.opts.Keeper.Resize(ctx, held.Volume, f.opts.Owner, sizeBytes); err != nil {
		return fmt.Errorf("resize %s: %w", held.Path, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		grown := *f.held
		grown.SizeBytes = max(grown.SizeBytes, sizeBytes)
		f.held = &grown
	}
	return nil
}

// Size implements engine.Resizer.
func (f *Frontend) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		return 0
	}
	return f.held.SizeBytes
}

// Device returns the major and minor number of the device, in the form of st_rdev, and of st_dev for a file system on
// the device. It returns 0 if there is no device.
func (f *Frontend) Device() uint64 { return f.number.Load() }

// endService stops the service of a device that could not be created, and waits for its end.
func endService(ctx context.Context, server service) error {
	server.Stop()
	return awaitEnd(ctx, server)
}

// awaitEnd waits until the kernel has released the file system. The kernel does so soon after the last user has closed
// it. So awaitEnd waits for a moment even if ctx is done.
func awaitEnd(ctx context.Context, server service) error {
	select {
	case <-server.Ended():
		return nil
	case <-ctx.Done():
	}
	moment := time.NewTimer(time.Second)
	defer moment.Stop()
	select {
	case <-server.Ended():
		return nil
	case <-moment.C:
		return fmt.Errorf("wait until the kernel releases the file system: %w", ctx.Err())
	}
}

// Stop implements engine.Frontend. It returns ErrInUse while the device is mounted or open, under any of its names and
// in any mount namespace.
func (f *Frontend) Stop(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		if err := f.opts.Keeper.Detach(ctx, f.held.Volume, f.opts.Owner); err != nil {
			return err
		}
		f.opts.Log.WithField("device", f.held.Path).Info("Device removed")
		f.held = nil
		f.number.Store(0)
	}
	if f.server != nil {
		if err := awaitEnd(ctx, f.server); err != nil {
			return err
		}
		f.server = nil
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
		f.number.Store(0)
	}
	if f.server != nil && err == nil {
		err = awaitEnd(ctx, f.server)
		f.server = nil
	}
	if err != nil {
		return fmt.Errorf("abort the device: %w", err)
	}
	return nil
}

// Leave ends the service and leaves the device to a successor. It reads no further requests, and answers those under
// way. If it fails, a request is still under way. Then only the exit of this process allows a successor to take over.
func (f *Frontend) Leave(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		return nil
	}
	f.server.Stop()
	if err := awaitEnd(ctx, f.server); err != nil {
		return fmt.Errorf("leave the device to a successor: %w", err)
	}
	if err := f.opts.Keeper.Leave(ctx, f.held.Volume, f.opts.Owner); err != nil {
		return fmt.Errorf("leave the device to a successor: %w", err)
	}
	f.opts.Log.WithField("device", f.held.Path).Info("Device left to a successor")
	f.held, f.server = nil, nil
	f.number.Store(0)
	return nil
}

// backend adapts the engine's backend to the interface that the file system needs.
type backend struct{ nbd.Backend }

// ReadLate implements fuse.LateReader.
func (b backend) ReadLate(ctx context.Context, p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	if r, ok := b.Backend.(nbd.LateReader); ok {
		return r.ReadLate(ctx, p, off, elsewhere)
	}
	return false, b.ReadAt(ctx, p, off)
}

// WriteAt implements fuse.Backend.
func (b backend) WriteAt(ctx context.Context, p []byte, off int64) error {
	return b.Backend.WriteAt(ctx, p, off, false)
}

// Zero implements fuse.Backend.
func (b backend) Zero(ctx context.Context, off, length int64, keep bool) error {
	var flags nbd.ZeroFlags
	if keep {
		flags = nbd.ZeroNoHole
	}
	return b.Backend.Zero(ctx, off, length, flags)
}
