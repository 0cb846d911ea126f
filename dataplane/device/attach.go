package device

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
)

func (s Spec) validate() error {
	if s.Volume == "" || s.Volume != filepath.Base(s.Volume) || strings.HasPrefix(s.Volume, ".") {
		return fmt.Errorf("volume name %q must not be empty, contain '/' or start with '.'", s.Volume)
	}
	if s.SizeBytes <= 0 || s.SizeBytes%logicalBlock != 0 {
		return fmt.Errorf("size %d must be a positive multiple of %d bytes", s.SizeBytes, logicalBlock)
	}
	return nil
}

// Attach implements Keeper.
func (s session) Attach(_ context.Context, spec Spec, conn, file int) (Held, error) {
	spec.Kind = KindFUSE
	return s.attach(spec, func(k *heldDevice) error { return s.make(k, conn, file) })
}

// AttachSocket implements Keeper.
func (s session) AttachSocket(_ context.Context, spec Spec, socket int) (Held, error) {
	if makes, reason := s.MakesNBD(); !makes {
		return Held{}, fmt.Errorf("%w: %s", ErrNoNBD, reason)
	}
	spec.Kind = KindNBD
	return s.attach(spec, func(k *heldDevice) error { return s.makeNBD(k, socket) })
}

// attach creates a device by the function make, and keeps it.
func (s session) attach(spec Spec, make func(*heldDevice) error) (Held, error) {
	l := s.Local
	if err := spec.validate(); err != nil {
		return Held{}, err
	}
	k := &heldDevice{op: oneAtATime(), conn: -1, held: Held{Spec: spec, Path: filepath.Join(l.opts.DeviceDir, spec.Volume), Served: true}}
	k.op <- struct{}{}
	defer func() { <-k.op }()
	l.mu.Lock()
	if s.number != l.server {
		l.mu.Unlock()
		return Held{}, ErrEnded
	}
	if _, found := l.devices[spec.Volume]; found {
		l.mu.Unlock()
		return Held{}, fmt.Errorf("%s is the device of a running engine: %w", k.held.Path, ErrServed)
	}
	l.devices[spec.Volume] = k
	l.mu.Unlock()
	if err := make(k); err != nil {
		return Held{}, errors.Join(err, l.removeIncomplete(k))
	}
	l.mu.Lock()
	ended := k.serverChanges > 0
	k.phase = keeping
	held := k.held
	l.mu.Unlock()
	if ended { // ServerEnded has aborted the connection
		return Held{}, errors.Join(ErrEnded, l.remove(k))
	}
	return held, nil
}

// removeIncomplete removes the remaining parts of a device that could not be created.
func (l *Local) removeIncomplete(k *heldDevice) error {
	if k.nbd != nil {
		return l.remove(k)
	}
	l.forget(k)
	return nil
}

func oneAtATime() chan struct{} { return make(chan struct{}, 1) }

// makeNBD creates all parts of a device from a socket. If it fails and k has an nbdDevice, the caller must remove that.
func (l *Local) makeNBD(k *heldDevice, socket int) error {
	own, err := fuse.Dup(socket) // its number is closed before that of the device, see lowestConnFD
	if err != nil {
		return err
	}
	configured, err := l.opts.NBD.Connect(l.nbdID(k.held.Volume), k.held.SizeBytes, logicalBlock, own)
	if err != nil {
		_ = unix.Close(own)
		return err
	}
	d := &nbdDevice{
		blockNode: blockNode{path: filepath.Join(l.opts.LoopDir, fmt.Sprintf("nbd%d", configured.Index)), held: -1},
		link:      l.opts.NBD, device: configured, later: l.later, socket: own, parked: -1,
	}
	l.mu.Lock()
	k.nbd = d
	l.mu.Unlock()
	if err := d.prepare(k.held.Path); err != nil {
		return err
	}
	if err := d.link.Limit(configured); err != nil {
		l.opts.Log.WithError(err).WithField("device", d.path).Warn("Cannot change the kernel's limits of an NBD device")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.held.Loop, k.held.Dev = d.path, d.dev
	return nil
}

// prepare puts the node at the path where users find it.
func (d *nbdDevice) prepare(path string) (err error) {
	if d.dev, err = d.link.Number(d.device); err != nil {
		return err
	}
	switch is, err := d.link.IsConfigured(d.device); {
	case err != nil:
		return err
	case !is:
		return fmt.Errorf("%s: %w: the kernel does not show the owners of devices (before Linux 5.14)", d.path, ErrNoNBD)
	}
	if err = d.makeNode(); err != nil {
		return err
	}
	return makeNode(path, d.dev)
}

// make creates all parts of a device, or none.
func (l *Local) make(k *heldDevice, conn, file int) error {
	number, err := fuse.Number(file)
	if err != nil {
		return err
	}
	l.mu.Lock()
	k.held.Connection = number
	l.mu.Unlock()
	fd, err := fuse.Dup(conn)
	if err != nil {
		return err
	}
	loop, err := attachLoop(l.opts.LoopDir, file, "longhorn:"+k.held.Volume)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	if err := loop.limit(); err != nil {
		l.opts.Log.WithError(err).WithField("loop", loop.path).Debug("Cannot change the kernel's limits of a loop device")
	}
	if err := makeNode(k.held.Path, loop.dev); err != nil {
		_ = unix.Close(fd)
		if _, inUse := loop.detach(func() error { return nil }, func() {}); inUse != nil {
			loop.release() // another process inspects the new device: all parts disappear when it closes the device
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.conn, k.loop = fd, loop
	k.held.Loop, k.held.Dev = loop.path, loop.dev
	return nil
}
