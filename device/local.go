package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/fuse"
)

// Options say where devices are found and made.
type Options struct {
	DeviceDir string // where users find the volumes; /dev/longhorn if empty
	LoopDir   string // where loop-control and the loop devices are; /dev if empty
	Log       *logrus.Entry
}

// Local keeps devices in this process.
type Local struct {
	opts Options

	mu      sync.Mutex
	devices map[string]*kept // guarded by mu; by volume
}

// kept is one device of a Local. Operations that wait for the kernel hold op, one at a time; the fields are guarded by Local.mu.
type kept struct {
	op   chan struct{} // holds one token while an operation is under way
	held Held
	conn int // descriptor of the FUSE connection; -1 when closed
	loop *loopDevice
	// ready says that the device was made; before it is nobody's but its maker's.
	ready bool
	// turn counts the changes of owner, so that an operation can tell that its owner is no more.
	turn int
}

// The numbers of kept descriptors. A process that is killed closes its files from the highest number down, and closing a loop device
// writes back its page cache: the FUSE connection must be gone by then, or nobody answers and the process never ends.
const (
	lowestLoopFD = 2048
	lowestFuseFD = 4096
)

// detachPatience is how long Detach waits for those who open any new device for a moment, such as udev, and detachPause how often it
// looks.
const (
	detachPatience = time.Second
	detachPause    = 50 * time.Millisecond
)

var _ Keeper = (*Local)(nil)

// NewLocal returns a Keeper in this process.
func NewLocal(opts Options) *Local {
	if opts.DeviceDir == "" {
		opts.DeviceDir = "/dev/longhorn"
	}
	if opts.LoopDir == "" {
		opts.LoopDir = "/dev"
	}
	if opts.Log == nil {
		opts.Log = silent()
	}
	return &Local{opts: opts, devices: map[string]*kept{}}
}

func silent() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// Successions implements Keeper: what is kept here ends with this process.
func (l *Local) Successions() bool { return false }

// List implements Keeper.
func (l *Local) List(context.Context) ([]Held, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []Held{}
	for _, k := range l.devices {
		if k.ready {
			all = append(all, k.held)
		}
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.Volume, b.Volume) })
	return all, nil
}

func (s Spec) validate() error {
	if s.Volume == "" || s.Volume != filepath.Base(s.Volume) || strings.HasPrefix(s.Volume, ".") {
		return fmt.Errorf("%q cannot be the name of a device", s.Volume)
	}
	if s.SizeBytes <= 0 || s.SizeBytes%logicalBlock != 0 {
		return fmt.Errorf("a device of %d bytes, not a multiple of %d", s.SizeBytes, logicalBlock)
	}
	return nil
}

// Attach implements Keeper.
func (l *Local) Attach(_ context.Context, spec Spec, conn, file int) (Held, error) {
	if err := spec.validate(); err != nil {
		return Held{}, err
	}
	k := &kept{op: make(chan struct{}, 1), conn: -1, held: Held{Spec: spec, Path: filepath.Join(l.opts.DeviceDir, spec.Volume), Served: true}}
	k.op <- struct{}{}
	defer func() { <-k.op }()
	l.mu.Lock()
	if _, found := l.devices[spec.Volume]; found {
		l.mu.Unlock()
		return Held{}, fmt.Errorf("%s is the device of a running engine: %w", k.held.Path, ErrServed)
	}
	l.devices[spec.Volume] = k
	l.mu.Unlock()
	if err := l.make(k, conn, file); err != nil {
		l.forget(k)
		return Held{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.ready = true
	return k.held, nil
}

// make makes all parts of a device, or none.
func (l *Local) make(k *kept, conn, file int) error {
	connection, err := fuse.Number(file)
	if err != nil {
		return err
	}
	fd, err := fuse.Dup(conn)
	if err != nil {
		return err
	}
	loop, err := attachLoop(l.opts.LoopDir, file, "longhorn:"+k.held.Volume)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	if err := makeNode(k.held.Path, loop.dev); err != nil {
		_ = unix.Close(fd)
		if _, inUse := loop.detach(); inUse != nil {
			loop.release() // somebody looks at the new device: all of it frees itself when they let go
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.conn, k.loop = fd, loop
	k.held.Loop, k.held.Dev, k.held.Connection = loop.path, loop.dev, connection
	return nil
}

func (l *Local) forget(k *kept) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.devices, k.held.Volume)
}

func (l *Local) find(volume string) *kept {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.devices[volume]; k != nil && k.ready {
		return k
	}
	return nil
}

// Adopt implements Keeper.
func (l *Local) Adopt(_ context.Context, volume string, owner Owner) (int, Held, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.devices[volume]
	if k == nil || !k.ready {
		return -1, Held{}, fmt.Errorf("%s: %w", volume, ErrNotHeld)
	}
	last := k.held.Owner
	if owner.Generation < last.Generation || owner.Generation == last.Generation && owner != last {
		return -1, Held{}, fmt.Errorf("%s: %w: generation %d", volume, ErrFenced, last.Generation)
	}
	if k.held.Served {
		return -1, Held{}, fmt.Errorf("%s: %w", volume, ErrServed)
	}
	fd, err := fuse.Dup(k.conn)
	if err != nil {
		return -1, Held{}, err
	}
	k.turn++
	k.held.Owner, k.held.Served = owner, true
	return fd, k.held, nil
}

// Leave implements Keeper.
func (l *Local) Leave(_ context.Context, volume string, owner Owner) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.devices[volume]
	if k == nil || k.held.Owner != owner {
		return fmt.Errorf("%s: %w", volume, ErrNotHeld)
	}
	k.turn++
	k.held.Served = false
	return nil
}

// Detach implements Keeper. What cannot be written back because the backend fails is lost with the device, and logged.
func (l *Local) Detach(ctx context.Context, volume string, owner Owner) error {
	k := l.find(volume)
	if k == nil {
		return nil
	}
	if k.held.Owner != owner {
		return fmt.Errorf("%s: %w", volume, ErrFenced)
	}
	k.op <- struct{}{}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return nil // aborted while this waited
	}
	if err := l.detach(ctx, k); err != nil {
		return err
	}
	if err := removeNode(k.held.Path, k.held.Dev); err != nil {
		l.opts.Log.WithError(err).Warn("The node of a removed device stays")
	}
	_ = unix.Close(k.conn)
	l.forget(k)
	return nil
}

// detach ends the loop device. Those who only look at it are waited for a moment.
func (l *Local) detach(ctx context.Context, k *kept) error {
	deadline := time.NewTimer(detachPatience)
	defer deadline.Stop()
	pause := time.NewTicker(detachPause)
	defer pause.Stop()
	for {
		lost, err := k.loop.detach()
		if err == nil && lost != nil {
			l.opts.Log.WithError(lost).WithField("device", k.held.Path).Error("The device's last data could not be written back")
		}
		if !errors.Is(err, engine.ErrInUse) || errors.Is(err, errClaimed) {
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

// Abort implements Keeper. What is under way on the device fails first, so whoever has op is soon done with it.
func (l *Local) Abort(_ context.Context, volume string) error {
	k := l.find(volume)
	if k == nil {
		return nil
	}
	err := fuse.Abort(k.held.Connection)
	k.op <- struct{}{}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return err
	}
	err = errors.Join(err, removeNode(k.held.Path, k.held.Dev))
	if _, inUse := k.loop.detach(); inUse != nil {
		l.opts.Log.WithError(inUse).WithField("device", k.held.Path).Warn("Device aborted while it was in use")
	}
	k.loop.release()
	_ = unix.Close(k.conn)
	l.forget(k)
	return err
}
