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
	server  int              // guarded by mu; counts the processes that have served
}

// session is what one serving process sees of a Local. When it has ended, what it asked for and was not begun yet is refused: a request
// that is read after its sender's death must not change anything.
type session struct {
	*Local
	number int
}

// Session returns the Keeper of the process that serves now, until ServerEnded.
func (l *Local) Session() Keeper {
	l.mu.Lock()
	defer l.mu.Unlock()
	return session{Local: l, number: l.server}
}

// Attach implements Keeper.
func (l *Local) Attach(ctx context.Context, spec Spec, conn, file int) (Held, error) {
	return l.Session().Attach(ctx, spec, conn, file)
}

// Adopt implements Keeper.
func (l *Local) Adopt(ctx context.Context, volume string, owner Owner) (int, Held, error) {
	return l.Session().Adopt(ctx, volume, owner)
}

// Leave implements Keeper.
func (l *Local) Leave(ctx context.Context, volume string, owner Owner) error {
	return l.Session().Leave(ctx, volume, owner)
}

// Detach implements Keeper. What cannot be written back because the backend fails is lost with the device, and logged.
func (l *Local) Detach(ctx context.Context, volume string, owner Owner) error {
	return l.Session().Detach(ctx, volume, owner)
}

// findLocked returns the device of a volume, nil if there is none. The caller must have mu.
func (s session) findLocked(volume string) (*kept, error) {
	if s.number != s.server {
		return nil, ErrEnded
	}
	if k := s.devices[volume]; k != nil && k.phase != making {
		return k, nil
	}
	return nil, nil
}

// kept is one device of a Local. Operations that may wait for the kernel hold op, one at a time. The fields are guarded by Local.mu, but
// loop, which belongs to whoever has op.
type kept struct {
	op   chan struct{} // holds one token while an operation is under way
	held Held
	conn int // descriptor of the FUSE connection; -1 when closed
	loop *loopDevice
	// phase is where the device is in its life; one that is being made is not listed.
	phase phase
	// turn counts the changes of who serves, so that an operation can tell that the process which asked for it serves no more.
	turn int
}

type phase int

const (
	making phase = iota
	keeping
	clearing // past the point of no return of Detach
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
		if k.phase != making {
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
func (s session) Attach(_ context.Context, spec Spec, conn, file int) (Held, error) {
	l := s.Local
	if err := spec.validate(); err != nil {
		return Held{}, err
	}
	k := &kept{op: make(chan struct{}, 1), conn: -1, held: Held{Spec: spec, Path: filepath.Join(l.opts.DeviceDir, spec.Volume), Served: true}}
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
	if err := l.make(k, conn, file); err != nil {
		l.forget(k)
		return Held{}, err
	}
	l.mu.Lock()
	ended := k.turn > 0
	k.phase = keeping
	held := k.held
	l.mu.Unlock()
	if ended { // ServerEnded has aborted the connection
		return Held{}, errors.Join(ErrEnded, l.remove(k))
	}
	return held, nil
}

// make makes all parts of a device, or none.
func (l *Local) make(k *kept, conn, file int) error {
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
		l.opts.Log.WithError(err).WithField("loop", loop.path).Debug("The kernel keeps its limits of a loop device")
	}
	if err := makeNode(k.held.Path, loop.dev); err != nil {
		_ = unix.Close(fd)
		if _, inUse := loop.detach(func() error { return nil }, func() {}); inUse != nil {
			loop.release() // somebody looks at the new device: all of it frees itself when they let go
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.conn, k.loop = fd, loop
	k.held.Loop, k.held.Dev = loop.path, loop.dev
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
	if k := l.devices[volume]; k != nil && k.phase != making {
		return k
	}
	return nil
}

// Adopt implements Keeper.
func (s session) Adopt(_ context.Context, volume string, owner Owner) (int, Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.findLocked(volume)
	if err != nil {
		return -1, Held{}, err
	}
	if k == nil {
		return -1, Held{}, fmt.Errorf("%s: %w", volume, ErrNotHeld)
	}
	last := k.held.Owner
	if owner.Generation < last.Generation || owner.Generation == last.Generation && owner != last {
		return -1, Held{}, fmt.Errorf("%s: %w: generation %d", volume, ErrFenced, last.Generation)
	}
	if k.held.Served || k.phase == clearing {
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
func (s session) Leave(_ context.Context, volume string, owner Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.findLocked(volume)
	if err != nil {
		return err
	}
	if k == nil || k.held.Owner != owner {
		return fmt.Errorf("%s: %w", volume, ErrNotHeld)
	}
	k.turn++
	k.held.Served = false
	return nil
}

// Detach implements Keeper.
func (s session) Detach(ctx context.Context, volume string, owner Owner) error {
	l := s.Local
	l.mu.Lock()
	k, err := s.findLocked(volume)
	if err != nil || k == nil {
		l.mu.Unlock()
		return err
	}
	turn, fenced := k.turn, k.held.Owner != owner
	l.mu.Unlock()
	if fenced {
		return fmt.Errorf("%s: %w", volume, ErrFenced)
	}
	k.op <- struct{}{}
	defer func() { <-k.op }()
	if l.find(volume) != k {
		return nil // aborted while this waited
	}
	deadline := time.NewTimer(detachPatience)
	defer deadline.Stop()
	pause := time.NewTicker(detachPause)
	defer pause.Stop()
	for {
		err := l.tryDetach(k, turn)
		if !errors.Is(err, engine.ErrInUse) || errors.Is(err, errClaimed) {
			return err
		}
		select { // those who only look at the device are waited for a moment
		case <-pause.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// tryDetach ends the device if nobody uses it. The caller has op.
func (l *Local) tryDetach(k *kept, turn int) error {
	lost, err := k.loop.detach(func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.turn != turn {
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
	_ = unix.Close(k.conn)
	l.forget(k)
	return nil
}

func (l *Local) removeNode(k *kept) {
	if err := removeNode(k.held.Path, k.held.Dev); err != nil {
		l.opts.Log.WithError(err).Warn("The node of a removed device stays")
	}
}

// abortPatience is how long Abort waits for another operation on the device, which fails with the connection.
const abortPatience = 5 * time.Second

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

// abort ends a device. What is under way on it fails first, so whoever has op is soon done with it; when that takes longer, what is left of
// the device is removed by then, for nobody will ask again.
func (l *Local) abort(k *kept) error {
	l.removeNode(k)
	if err := fuse.Abort(k.held.Connection); err != nil {
		return err
	}
	if !k.lock(abortPatience) {
		go func() {
			k.op <- struct{}{}
			if err := l.removeOnce(k); err != nil {
				l.opts.Log.WithError(err).WithField("device", k.held.Path).Error("A device was not aborted in order")
			}
		}()
		return fmt.Errorf("%s: %w", k.held.Volume, ErrServed)
	}
	return l.removeOnce(k)
}

// removeOnce removes a device unless that has been done, and gives op back, which the caller has.
func (l *Local) removeOnce(k *kept) error {
	defer func() { <-k.op }()
	if l.find(k.held.Volume) != k {
		return nil
	}
	return l.remove(k)
}

// lock takes op, within a time.
func (k *kept) lock(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case k.op <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// remove ends a device, in use or not. The caller has op.
func (l *Local) remove(k *kept) error {
	err := fuse.Abort(k.held.Connection)
	l.removeNode(k)
	if _, inUse := k.loop.detach(func() error { return nil }, func() {}); inUse != nil {
		l.opts.Log.WithError(inUse).WithField("device", k.held.Path).Warn("Device aborted while it was in use")
	}
	k.loop.release()
	_ = unix.Close(k.conn)
	l.forget(k)
	return err
}

// ServerEnded says that the process which served all devices has ended. A device that it was having made is removed; a removal that it
// waited for is given up, or finished where it cannot be; all others stay, for a successor, which must not start before this returns.
func (l *Local) ServerEnded() {
	l.mu.Lock()
	l.server++
	var unsettled []*kept
	for _, k := range l.devices {
		k.turn++
		k.held.Served = false
		if k.phase != keeping {
			unsettled = append(unsettled, k)
		}
	}
	l.mu.Unlock()
	for _, k := range unsettled {
		l.settle(k)
	}
}

// settle waits for the operation on a device. One that waits for the server that ended gets no answer any more: its connection is aborted.
func (l *Local) settle(k *kept) {
	l.mu.Lock()
	number, patience := k.held.Connection, time.Second
	if k.phase == making {
		patience = 0
	}
	l.mu.Unlock()
	for !k.lock(patience) {
		if number != 0 {
			if err := fuse.Abort(number); err != nil {
				l.opts.Log.WithError(err).WithField("device", k.held.Path).Error("A device whose server ended cannot be settled")
			}
		}
		l.mu.Lock()
		number, patience = k.held.Connection, time.Second
		l.mu.Unlock()
	}
	<-k.op
}

// AbortAll removes all devices at once.
func (l *Local) AbortAll() {
	all, _ := l.List(context.Background())
	var aborting sync.WaitGroup
	for _, h := range all {
		aborting.Go(func() {
			if err := l.Abort(context.Background(), h.Volume); err != nil {
				l.opts.Log.WithError(err).WithField("device", h.Path).Error("A device could not be aborted")
			}
		})
	}
	aborting.Wait()
}
