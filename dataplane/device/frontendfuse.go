package device

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

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
