package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// BlockOptions say where a block frontend finds and makes its devices.
type BlockOptions struct {
	DeviceDir string // where users find the volumes; /dev/longhorn if empty
	LoopDir   string // where loop-control and the loop devices are; /dev if empty
	Log       *logrus.Entry
}

// BlockFrontend offers a volume as DeviceDir/<volume>: a FUSE file, a loop device with direct I/O on it, and a node with that
// device's numbers. It needs root, a kernel of 5.8 or later, and /dev/fuse.
type BlockFrontend struct {
	opts BlockOptions

	mu    sync.Mutex
	node  string      // guarded by mu; path of the node, empty while there is none
	loop  *loopDevice // guarded by mu
	image *image      // guarded by mu
}

var (
	_ Frontend = (*BlockFrontend)(nil)
	_ Aborter  = (*BlockFrontend)(nil)
)

// NewBlockFrontend returns a frontend for one engine.
func NewBlockFrontend(opts BlockOptions) *BlockFrontend {
	if opts.DeviceDir == "" {
		opts.DeviceDir = "/dev/longhorn"
	}
	if opts.LoopDir == "" {
		opts.LoopDir = "/dev"
	}
	if opts.Log == nil {
		opts.Log = Config{}.withDefaults().Log
	}
	return &BlockFrontend{opts: opts}
}

// detachPatience is how long Stop waits for those who open any new device for a moment, such as udev, and detachPause how often it
// looks.
const (
	detachPatience = time.Second
	detachPause    = 50 * time.Millisecond
)

// Start implements Frontend.
func (f *BlockFrontend) Start(ctx context.Context, volume string, sizeBytes int64, b nbd.Backend) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.image != nil {
		return "", errors.New("the frontend was started before")
	}
	if volume == "" || volume != filepath.Base(volume) || strings.HasPrefix(volume, ".") {
		return "", fmt.Errorf("%q cannot be the name of a device", volume)
	}
	if sizeBytes%logicalBlock != 0 {
		return "", fmt.Errorf("a device of %d bytes, not a multiple of %d", sizeBytes, logicalBlock)
	}
	node := filepath.Join(f.opts.DeviceDir, volume)
	if !nodes.claim(node) {
		return "", fmt.Errorf("%s is the device of a running engine", node)
	}
	if err := f.makeDevice(ctx, volume, node, sizeBytes, b); err != nil {
		nodes.release(node)
		return "", err
	}
	f.opts.Log.WithFields(logrus.Fields{"device": node, "loop": f.loop.path}).Info("Device made")
	return node, nil
}

// makeDevice makes all parts of the device, or none.
func (f *BlockFrontend) makeDevice(ctx context.Context, volume, node string, sizeBytes int64, b nbd.Backend) error {
	image, err := mountImage(sizeBytes, b)
	if err != nil {
		return err
	}
	loop, err := attachLoop(f.opts.LoopDir, image.file, "longhorn:"+volume)
	image.closeFile() // the loop device has its own hold, or there is none
	if err != nil {
		return errors.Join(err, image.wait(ctx))
	}
	if err := makeNode(node, loop.dev); err != nil {
		if _, inUse := loop.detach(); inUse != nil {
			loop.release() // somebody looks at the new device: all of it frees itself when they let go
			return err
		}
		return errors.Join(err, image.wait(ctx))
	}
	f.image, f.loop, f.node = image, loop, node
	return nil
}

// Stop implements Frontend. Whoever has the device mounted or open, under any of its names and in any mount namespace, makes it
// return ErrInUse. What cannot be written back because the backend fails is lost with the device, and logged.
func (f *BlockFrontend) Stop(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loop != nil {
		if err := f.detach(ctx); err != nil {
			return err
		}
		node, dev := f.node, f.loop.dev
		f.loop, f.node = nil, ""
		if err := removeNode(node, dev); err != nil {
			f.opts.Log.WithError(err).Warn("The node of a removed device stays")
		}
		nodes.release(node)
		f.opts.Log.WithField("device", node).Info("Device removed")
	}
	if f.image != nil {
		if err := f.image.wait(ctx); err != nil {
			return err
		}
		f.image = nil
	}
	return nil
}

// Abort implements Aborter. The node goes, the file system is aborted, and the loop device clears itself with its last user.
func (f *BlockFrontend) Abort(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.image != nil {
		err = f.image.abort()
	}
	if f.loop != nil {
		err = errors.Join(err, removeNode(f.node, f.loop.dev))
		if _, inUse := f.loop.detach(); inUse != nil {
			f.opts.Log.WithError(inUse).WithField("device", f.node).Warn("Device aborted while it was in use")
		}
		f.loop.release()
		nodes.release(f.node)
		f.loop, f.node = nil, ""
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

// detach ends the loop device. Those who only look at it are waited for a moment.
func (f *BlockFrontend) detach(ctx context.Context) error {
	deadline := time.NewTimer(detachPatience)
	defer deadline.Stop()
	pause := time.NewTicker(detachPause)
	defer pause.Stop()
	for {
		lost, err := f.loop.detach()
		if err == nil && lost != nil {
			f.opts.Log.WithError(lost).WithField("device", f.node).Error("The device's last data could not be written back")
		}
		if !errors.Is(err, ErrInUse) || errors.Is(err, errClaimed) {
			return err
		}
		select {
		case <-pause.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
