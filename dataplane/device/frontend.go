package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

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

// createNBD creates a device of KindNBD, and serves it.
func (f *Frontend) createNBD(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error) {
	return f.onSocket(ctx, spec, b, func(socket int) (Held, error) { return f.opts.Keeper.AttachSocket(ctx, spec, socket) })
}

// onSocket serves one end of a socket pair and gives the other end to the kernel.
func (f *Frontend) onSocket(ctx context.Context, spec Spec, b nbd.Backend, give func(socket int) (Held, error)) (Held, service, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Held{}, nil, fmt.Errorf("create a socket pair: %w", err)
	}
	defer unix.Close(pair[0])
	conn, err := connOf(pair[1])
	if err != nil {
		return Held{}, nil, err
	}
	server := serveNBD(conn, spec.Volume, spec.SizeBytes, b)
	held, err := give(pair[0])
	if err != nil {
		server.Stop()
		return Held{}, nil, errors.Join(err, awaitEnd(ctx, server))
	}
	return held, server, nil
}

// connOf returns a connection for the descriptor of a socket. It takes over the descriptor.
func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "device")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use a socket pair: %w", err)
	}
	return conn, nil
}

// nbdService serves one device of KindNBD.
type nbdService struct {
	server *nbd.Server
	size   atomic.Int64
	ended  chan struct{}
}

// serveNBD serves a connection, which it takes over.
func serveNBD(conn net.Conn, volume string, sizeBytes int64, b nbd.Backend) *nbdService {
	s := &nbdService{server: nbd.NewServer(nil, nbd.ServerOptions{}), ended: make(chan struct{})}
	s.size.Store(sizeBytes)
	export := &nbd.Export{Name: volume, Size: sizeBytes, SizeNow: s.size.Load, BlockSize: nbd.BlockSize{Min: logicalBlock}, Backend: zeroing{b}}
	go func() {
		defer close(s.ended)
		s.server.ServeExport(conn, export)
	}()
	return s
}

// Stop implements service.
func (s *nbdService) Stop() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-s.ended
		cancel()
	}()
	// Shutdown returns with the end of the service. It does not interrupt the requests that the backend has.
	go func() { _ = s.server.Shutdown(ctx) }()
}

// Ended implements service.
func (s *nbdService) Ended() <-chan struct{} { return s.ended }

// Grow implements service.
func (s *nbdService) Grow(sizeBytes int64) error {
	for {
		now := s.size.Load()
		if now >= sizeBytes || s.size.CompareAndSwap(now, sizeBytes) {
			return nil
		}
	}
}

// HoldChanges implements service. The kernel learns the size from this process, and sends no request for it. So nothing
// must be delayed.
func (s *nbdService) HoldChanges() (resume func()) { return func() {} }

// zeroing is a backend on which discarded ranges read as zeroes, as on a FUSE device. So both kinds of device behave
// the same for users.
type zeroing struct{ nbd.Backend }

// ReadLate implements nbd.LateReader.
func (z zeroing) ReadLate(ctx context.Context, p []byte, off int64, elsewhere func([]byte, error)) (left bool, err error) {
	return backend(z).ReadLate(ctx, p, off, elsewhere)
}

// Trim implements nbd.Backend.
func (z zeroing) Trim(ctx context.Context, off, length int64, fua bool) error {
	var flags nbd.ZeroFlags
	if fua {
		flags = nbd.ZeroFUA
	}
	return z.Zero(ctx, off, length, flags)
}

// adoptNBD takes a device of KindNBD over. The kernel resends the requests that the predecessor had not answered.
func (f *Frontend) adoptNBD(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error) {
	return f.onSocket(ctx, spec, b, func(socket int) (Held, error) {
		held, err := f.opts.Keeper.AdoptSocket(ctx, spec.Volume, f.opts.Owner, socket)
		if err != nil {
			return Held{}, fmt.Errorf("take over the device: %w", err)
		}
		return held, nil
	})
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
