package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// createNBD creates a device of KindNBD, and serves it.
func (f *Frontend) createNBD(ctx context.Context, spec Spec, b nbd.Backend) (Held, service, error) {
	return f.onSocket(ctx, spec, b, func(socket int) (Held, error) { return f.opts.Keeper.AttachSocket(ctx, spec, socket) })
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
