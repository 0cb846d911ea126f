package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// detachTimeout is how long Detach waits for programs that open any new device for a moment, such as udev.
// detachRetryInterval is the time between two checks.
const (
	detachTimeout       = time.Second
	detachRetryInterval = 50 * time.Millisecond
)

// Detach implements Keeper.
func (s session) Detach(ctx context.Context, volume string, owner Owner) error {
	l := s.Local
	l.mu.Lock()
	k, err := s.findLocked(volume)
	if err != nil || k == nil {
		l.mu.Unlock()
		return err
	}
	serverChanges, fenced := k.serverChanges, k.held.Owner != owner
	l.mu.Unlock()
	if fenced {
		return fmt.Errorf("volume %s: %w", volume, ErrFenced)
	}
	k.op <- struct{}{}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return nil // aborted while Detach waited
	}
	deadline := time.NewTimer(detachTimeout)
	defer deadline.Stop()
	pause := time.NewTicker(detachRetryInterval)
	defer pause.Stop()
	for {
		err := l.tryDetach(k, serverChanges)
		if !errors.Is(err, ErrInUse) || errors.Is(err, errClaimed) {
			return err
		}
		select { // wait a moment for programs that only inspect the device
		case <-pause.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// tryDetach removes the device if it is not in use. The caller holds op.
func (l *Local) tryDetach(k *heldDevice, serverChanges int) error {
	detach := k.detacher()
	lost, err := detach(func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.serverChanges != serverChanges {
			return ErrEnded
		}
		k.phase = clearing
		return nil
	}, func() { l.removeNode(k) })
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		k.phase = keeping
		return err
	}
	if lost != nil {
		l.opts.Log.WithError(lost).WithField("device", k.held.Path).Error("The device's last data could not be written back")
	}
	if k.nbd == nil {
		_ = unix.Close(k.conn)
	}
	l.forget(k)
	return nil
}

// detacher returns the function that removes the device if it is not in use.
func (k *heldDevice) detacher() func(proceed func() error, gone func()) (lost, err error) {
	if k.nbd != nil {
		return k.nbd.detach
	}
	return k.loop.detach
}

func (l *Local) removeNode(k *heldDevice) {
	if err := removeNode(k.held.Path, k.held.Dev); err != nil {
		l.opts.Log.WithError(err).Warn("Cannot remove the device node of a removed device")
	}
}
