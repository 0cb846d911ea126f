package device

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
)

// abortTimeout is how long Abort waits for another operation on the device. That operation fails with the connection.
const abortTimeout = 5 * time.Second

// Abort implements Keeper.
func (l *Local) Abort(_ context.Context, volume string) error {
	k := l.find(volume)
	if k == nil {
		return nil
	}
	return l.abort(k)
}

// Abort implements Keeper.
func (s session) Abort(_ context.Context, volume string) error {
	s.mu.Lock()
	k, err := s.findLocked(volume)
	s.mu.Unlock()
	if err != nil || k == nil {
		return err
	}
	return s.abort(k)
}

// abort removes a device. It first makes the requests on the device fail, so the operation that holds op soon finishes.
// If that takes longer, abort returns ErrServed. If the kernel cannot disconnect the device at this time, abort returns
// that error. In both cases it removes the remaining parts later, because the caller may never call it again.
func (l *Local) abort(k *heldDevice) error {
	l.removeNode(k)
	if err := k.cut(); err != nil {
		if k.nbd != nil { // the number of a FUSE connection may belong to another one later
			l.removeLater(k)
		}
		return err
	}
	if !k.lock(abortTimeout) {
		l.removeLater(k)
		return fmt.Errorf("volume %s: %w", k.held.Volume, ErrServed)
	}
	return l.removeOnce(k)
}

// The pauses between attempts to remove a device that could not be removed at once.
const (
	removeRetryMin = 10 * time.Millisecond
	removeRetryMax = 5 * time.Second
)

// removeLater starts one goroutine that removes a device as soon as possible. It is for devices that could not be
// removed at once.
func (l *Local) removeLater(k *heldDevice) {
	l.mu.Lock()
	again := k.removing
	k.removing = true
	l.mu.Unlock()
	if again {
		return
	}
	l.later.run(func(ctx context.Context) {
		for pause := removeRetryMin; k.nbd != nil && k.nbd.disconnect() != nil; pause = min(2*pause, removeRetryMax) {
			if !pauseFor(ctx, pause) {
				return
			}
		}
		select {
		case k.op <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if err := l.removeOnce(k); err != nil {
			l.opts.Log.WithError(err).WithField("device", k.held.Path).Error("Removing a device failed")
		}
	})
}

// removeOnce removes a device unless it was removed before. The caller holds op; removeOnce releases it.
func (l *Local) removeOnce(k *heldDevice) error {
	defer func() { <-k.op }()
	if l.find(k.held.Volume) != k {
		return nil
	}
	return l.remove(k)
}

// lock takes op, or returns false after the timeout.
func (k *heldDevice) lock(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case k.op <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// remove removes a device, in use or not. The caller holds op. If the kernel cannot disconnect the device at this time,
// the Local still lists it, so that its volume gets no second device. It is then removed later.
func (l *Local) remove(k *heldDevice) error {
	err := k.cut()
	l.removeNode(k)
	if k.nbd != nil {
		if err != nil {
			l.removeLater(k)
			return err
		}
		k.nbd.release()
		l.forget(k)
		return nil
	}
	if _, inUse := k.loop.detach(func() error { return nil }, func() {}); inUse != nil {
		l.opts.Log.WithError(inUse).WithField("device", k.held.Path).Warn("Device aborted while it was in use")
	}
	k.loop.release()
	_ = unix.Close(k.conn)
	l.forget(k)
	return err
}

// parkersAtOnce is how many devices are parked in parallel. A disconnection that waits in the kernel holds the lock of
// one device, and so delays one of these.
const parkersAtOnce = 64

// ServerEnded says that the process which served all devices has exited. If it was creating a device, that device is
// removed. If it waited for a removal, the removal is abandoned, or completed where it cannot be undone. All other
// devices stay for a successor, which must not start before ServerEnded returns. The requests of each device must find
// a connection before the kernel fails them. So the devices are parked first, and in parallel.
func (l *Local) ServerEnded() {
	l.mu.Lock()
	l.server++
	var pending []*heldDevice
	var parking errgroup.Group
	parking.SetLimit(parkersAtOnce)
	parted := map[*heldDevice]int{} // the serverChanges of each device
	for _, k := range l.devices {
		k.serverChanges++
		k.held.Served = false
		if k.phase != keeping {
			pending = append(pending, k)
		}
		if k.nbd != nil {
			parted[k] = k.serverChanges
		}
	}
	l.mu.Unlock()
	for k, serverChanges := range parted {
		parking.Go(func() error {
			l.park(k, serverChanges)
			return nil
		})
	}
	_ = parking.Wait()
	for _, k := range pending {
		l.awaitOperation(k)
	}
}

// awaitOperation waits for the operation on a device. An operation that waits for the exited server can no longer get
// an answer, so its connection is aborted.
func (l *Local) awaitOperation(k *heldDevice) {
	l.mu.Lock()
	number, device, timeout := k.held.Connection, k.nbd, time.Second
	if k.phase == creating {
		timeout = 0
	}
	l.mu.Unlock()
	for !k.lock(timeout) {
		var err error
		switch {
		case device != nil:
			err = device.disconnect()
		case number != 0:
			err = fuse.Abort(number)
		}
		if err != nil {
			l.opts.Log.WithError(err).WithField("device", k.held.Path).Error("An operation on a device did not end after the exit of its serving process")
		}
		l.mu.Lock()
		number, device, timeout = k.held.Connection, k.nbd, time.Second
		l.mu.Unlock()
	}
	<-k.op
}

// cut makes all requests on a device fail, now and later.
func (k *heldDevice) cut() error {
	if k.nbd != nil {
		return k.nbd.disconnect()
	}
	return fuse.Abort(k.held.Connection)
}

// AbortAll removes all devices at once.
func (l *Local) AbortAll() { l.abortAll(func(Held) bool { return true }) }

// AbortFUSE removes the devices of KindFUSE.
func (l *Local) AbortFUSE() { l.abortAll(func(h Held) bool { return h.Kind == KindFUSE }) }

func (l *Local) abortAll(which func(Held) bool) {
	all, _ := l.List(context.Background())
	var aborting sync.WaitGroup
	for _, h := range all {
		if !which(h) {
			continue
		}
		aborting.Go(func() {
			if err := l.Abort(context.Background(), h.Volume); err != nil {
				l.opts.Log.WithError(err).WithField("device", h.Path).Error("Cannot abort a device")
			}
		})
	}
	aborting.Wait()
}
