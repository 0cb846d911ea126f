package device

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
)

// Options say where devices are found and created.
type Options struct {
	DeviceDir string // where users find the volumes; /dev/longhorn if empty
	LoopDir   string // where loop-control and the loop devices are; /dev if empty
	// NBD creates devices of KindNBD, and disconnects the devices that a keeper of the same Node left. No such devices
	// are created if NBD is nil, or if NoNBD gives a reason. Node distinguishes the devices of this keeper from those
	// of other keepers on this kernel; it must not contain a slash.
	NBD   *kernel.Link
	NoNBD string
	Node  string
	Log   *logrus.Entry
}

// Local keeps devices in this process.
type Local struct {
	opts  Options
	later *background

	mu      sync.Mutex
	devices map[string]*heldDevice // guarded by mu; by volume
	server  int                    // guarded by mu; counts the processes that have served
}

// session is a Local as one serving process sees it. After that process has exited, the Local refuses all its requests
// that it has not started: a request that is read after its sender's death must not change anything.
type session struct {
	*Local
	number int
}

// Session returns the Keeper of the process that serves now. It is valid until ServerEnded.
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

// Resize implements Keeper.
func (l *Local) Resize(ctx context.Context, volume string, owner Owner, sizeBytes int64) error {
	return l.Session().Resize(ctx, volume, owner, sizeBytes)
}

// Detach implements Keeper. If the backend fails, data that cannot be written back is lost with the device, and the
// loss is logged.
func (l *Local) Detach(ctx context.Context, volume string, owner Owner) error {
	return l.Session().Detach(ctx, volume, owner)
}

// findLocked returns the device of a volume, or nil. The caller holds mu.
func (s session) findLocked(volume string) (*heldDevice, error) {
	if s.number != s.server {
		return nil, ErrEnded
	}
	if k := s.devices[volume]; k != nil && k.phase != creating {
		return k, nil
	}
	return nil, nil
}

// heldDevice is one device of a Local. Operations that may wait for the kernel hold op, one at a time. The fields are
// guarded by Local.mu, except loop, which belongs to the operation that holds op.
type heldDevice struct {
	op   chan struct{} // contains one token while an operation is under way
	held Held
	conn int // descriptor of the FUSE connection; -1 when closed
	loop *loopDevice
	nbd  *nbdDevice // set for KindNBD, which has neither conn nor loop
	// phase is the current part of the device's life. A device that is being created is not listed.
	phase phase
	// removing says that a goroutine removes the device, because that was not possible at once. It is guarded by
	// Local.mu.
	removing bool
	// serverChanges counts the changes of the serving process. By it an operation detects that the process which
	// requested it no longer serves.
	serverChanges int
}

type phase int

const (
	creating phase = iota
	keeping
	clearing // past the last point at which Detach can be undone
)

var _ Keeper = (*Local)(nil)

// NewLocal returns a Keeper in this process. The caller must Close it at the end, unless the process exits then.
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
	return &Local{opts: opts, later: newBackground(), devices: map[string]*heldDevice{}}
}

// Close removes all devices at once, as AbortAll does, and stops the background goroutines of the Local.
func (l *Local) Close() {
	l.AbortAll()
	l.later.end()
}

func silent() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// Successions implements Keeper. It returns false: the devices kept here disappear with this process.
func (l *Local) Successions() bool { return false }

// Resizes implements Keeper.
func (l *Local) Resizes() bool { return true }

// List implements Keeper.
func (l *Local) List(context.Context) ([]Held, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := []Held{}
	for _, k := range l.devices {
		if k.phase != creating {
			all = append(all, k.held)
		}
	}
	slices.SortFunc(all, func(a, b Held) int { return cmp.Compare(a.Volume, b.Volume) })
	return all, nil
}

func (l *Local) forget(k *heldDevice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.devices, k.held.Volume)
}

func (l *Local) find(volume string) *heldDevice {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.devices[volume]; k != nil && k.phase != creating {
		return k
	}
	return nil
}

// Adopt implements Keeper.
func (s session) Adopt(_ context.Context, volume string, owner Owner) (int, Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.adoptableLocked(volume, owner, KindFUSE)
	if err != nil {
		return -1, Held{}, err
	}
	fd, err := fuse.Dup(k.conn)
	if err != nil {
		return -1, Held{}, err
	}
	k.serverChanges++
	k.held.Owner, k.held.Served = owner, true
	return fd, k.held, nil
}

// adoptableLocked returns the device of a volume if the owner may adopt it. The caller holds mu.
func (s session) adoptableLocked(volume string, owner Owner, kind Kind) (*heldDevice, error) {
	k, err := s.findLocked(volume)
	switch {
	case err != nil:
		return nil, err
	case k == nil:
		return nil, fmt.Errorf("volume %s: %w", volume, ErrNotHeld)
	}
	last := k.held.Owner
	switch {
	case owner.Generation < last.Generation || owner.Generation == last.Generation && owner != last:
		return nil, fmt.Errorf("volume %s: %w: generation %d", volume, ErrFenced, last.Generation)
	case k.held.Served || k.phase == clearing:
		return nil, fmt.Errorf("volume %s: %w", volume, ErrServed)
	case k.held.Kind != kind:
		return nil, fmt.Errorf("volume %s: the device has the kind %q, expected %q", volume, k.held.Kind, kind)
	}
	return k, nil
}

// Leave implements Keeper.
func (s session) Leave(_ context.Context, volume string, owner Owner) error {
	s.mu.Lock()
	k, err := s.findLocked(volume)
	if err == nil && (k == nil || k.held.Owner != owner) {
		err = fmt.Errorf("volume %s: %w", volume, ErrNotHeld)
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	k.serverChanges++
	serverChanges := k.serverChanges
	s.mu.Unlock()
	if k.nbd != nil {
		s.park(k, serverChanges) // before another process may adopt it
	}
	s.leave(k, serverChanges)
	return nil
}

// AttachSocket implements Keeper.
func (l *Local) AttachSocket(ctx context.Context, spec Spec, socket int) (Held, error) {
	return l.Session().AttachSocket(ctx, spec, socket)
}

// AdoptSocket implements Keeper.
func (l *Local) AdoptSocket(ctx context.Context, volume string, owner Owner, socket int) (Held, error) {
	return l.Session().AdoptSocket(ctx, volume, owner, socket)
}

// MakesNBD implements Keeper.
func (l *Local) MakesNBD() (bool, string) {
	return l.opts.NBD != nil && l.opts.NoNBD == "", l.opts.NoNBD
}
