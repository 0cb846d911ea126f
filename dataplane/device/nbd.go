package device

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
)

// nbdDevice is a device of the kernel's NBD client. This process does not have it open: closing a device writes back its page cache, and a
// process that dies together with the server would wait for that without end. The next keeper of the node ends what it left.
//
//	kernel ── socket ── the process that serves        while one does
//	kernel ── socket ── parked                         while none does: requests wait, for as long as this process lives
//
// The kernel gives up on requests a while (kernel.deadTimeout) after a connection has ended without another, which is when this process has died too.
type nbdDevice struct {
	blockNode
	link   nbdLink
	device kernel.Device
	later  *background

	mu     sync.Mutex
	socket int  // guarded by mu; the kernel's end, to shut it down by; -1 when closed
	parked int  // guarded by mu; the other end while no process serves; -1 else
	cut    bool // guarded by mu; it no longer gets a connection
	ended  bool // guarded by mu; disconnected, so the number may be that of another device, of the same volume too
	// connection counts the sockets; guarded by mu.
	connection int
	// detaching counts the attempts to detach the device; guarded by mu.
	detaching int
}

// nbdLink is what a device needs of a kernel.Link.
type nbdLink interface {
	Reconnect(d kernel.Device, socket int) error
	Disconnect(d kernel.Device) error
	EndWithUsers(d kernel.Device, ends bool) error
	Resize(d kernel.Device, sizeBytes int64) error
	Limit(d kernel.Device) error
	// IsConfigured tells whether the kernel has the device. An error says that it is not known.
	IsConfigured(d kernel.Device) (bool, error)
	Number(d kernel.Device) (uint64, error)
	Size(d kernel.Device) (int64, error)
}

// nbdID is how the kernel knows a device.
func (l *Local) nbdID(volume string) string { return l.nbdPrefix() + volume }

func (l *Local) nbdPrefix() string { return "longhorn:" + l.opts.Node + "/" }

// RemoveLostNBD ends the NBD devices of a keeper of the same node that died: no process serves them any more. It must be called before
// the first device is made.
func (l *Local) RemoveLostNBD() {
	if l.opts.NBD == nil {
		return
	}
	lost, err := l.opts.NBD.Configured(l.nbdPrefix())
	for _, d := range lost {
		err = errors.Join(err, l.opts.NBD.Disconnect(d))
	}
	if err != nil {
		l.opts.Log.WithError(err).Warn("Devices of a holder that died may be left")
	}
}

// makeNBD makes all parts of a device of a socket. When it fails and k has an nbdDevice, that must be removed.
func (l *Local) makeNBD(k *kept, socket int) error {
	own, err := fuse.Dup(socket) // at a number that is closed before the device is, see lowestConnFD
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
		l.opts.Log.WithError(err).WithField("device", d.path).Warn("The kernel keeps its limits of an NBD device")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.held.Loop, k.held.Dev = d.path, d.dev
	return nil
}

// prepare puts the node where users find it.
func (d *nbdDevice) prepare(path string) (err error) {
	if d.dev, err = d.link.Number(d.device); err != nil {
		return err
	}
	switch is, err := d.link.IsConfigured(d.device); {
	case err != nil:
		return err
	case !is:
		return fmt.Errorf("%s: %w: the kernel does not name the owners of devices (before Linux 5.14)", d.path, ErrNoNBD)
	}
	if err = d.makeNode(); err != nil {
		return err
	}
	return makeNode(path, d.dev)
}

// disconnect makes all that is done on the device fail, now and later. It waits for neither users nor a server. When it
// returns an error the kernel may have the device still, which has no connection and gets none: then what is done on it
// fails within kernel.deadTimeout, and disconnect must be repeated.
func (d *nbdDevice) disconnect() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	d.endConnectionLocked()
	if d.ended {
		return nil
	}
	if err := d.link.Disconnect(d.device); err != nil {
		return err
	}
	d.ended = true
	return nil
}

// isGone tells whether the kernel is known to have the device no longer. Where that cannot be found out, for example
// because no descriptor is left, the device counts as there: its users wait for what would be given up otherwise.
func (d *nbdDevice) isGone() bool {
	is, err := d.link.IsConfigured(d.device)
	return err == nil && !is
}

// endConnectionLocked ends what is left of the connection: what the kernel sends or waits for there fails.
func (d *nbdDevice) endConnectionLocked() {
	for _, fd := range []*int{&d.socket, &d.parked} {
		if *fd >= 0 {
			_ = unix.Shutdown(*fd, unix.SHUT_RDWR)
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// The kernel replaces a connection only when it has seen its end, which is moments after that, and does not say whether it has: until then
// it does nothing, and so it does with one that works. So it is asked again, by another goroutine, until it must have
// seen the end: its callers have many devices to connect before the first request fails.
const (
	reconnectSoon  = time.Millisecond
	reconnectLate  = 10 * time.Second
	reconnectPause = 4 // each pause is so many times as long as the one before
)

// errCut says that a device was aborted or removed.
var errCut = errors.New("the device was aborted")

// connect ends the connection, and has the kernel use another socket, of which it takes over the descriptors. It does
// nothing if may says no, which it asks when nobody else can connect the device; nil: it may.
func (d *nbdDevice) connect(socket, parked int, may func() bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	switch {
	case d.cut:
		err = errCut
	case may != nil && !may():
		err = ErrEnded
	}
	if err != nil {
		closeAll(socket, parked)
		return err
	}
	d.endConnectionLocked()
	d.socket, d.parked = socket, parked
	d.connection++
	if err := d.link.Reconnect(d.device, socket); err != nil {
		d.endConnectionLocked()
		return err
	}
	number := d.connection
	d.later.run(func(ctx context.Context) { d.connectAgain(ctx, number) })
	return nil
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// connectAgain asks the kernel for a connection's sake until it must have seen the end of the one before. A question
// that fails is asked again: whether an earlier one was heard is not known.
func (d *nbdDevice) connectAgain(ctx context.Context, number int) {
	for pause := reconnectSoon; pause < reconnectLate; {
		if !pauseFor(ctx, pause) { // the kernel has nothing to wait on
			return
		}
		asked, err := d.ask(number)
		if !asked {
			return
		}
		if err == nil || pause < time.Second {
			pause *= reconnectPause
		}
	}
}

// ask asks the kernel once more to use the socket of a connection, unless there is another one or the device is gone.
func (d *nbdDevice) ask(number int) (asked bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection != number || d.socket < 0 || d.cut || d.isGone() {
		return false, nil
	}
	return true, d.link.Reconnect(d.device, d.socket)
}

// The pauses between attempts to park a device whose requests fail soon otherwise.
const (
	parkSoon = 10 * time.Millisecond
	parkLate = time.Second
)

// park has the requests of a device that no process serves wait, unless it is another's turn already. When that
// fails because descriptors or memory are short, another goroutine repeats it until it succeeds, the device has
// another turn, the device is known to be gone, or the Local ends.
func (l *Local) park(k *kept, turn int) {
	err := k.nbd.park(l.isTurn(k, turn))
	if !isWorthAgain(err) {
		return
	}
	log := l.opts.Log.WithField("device", k.held.Path)
	log.WithError(err).Error("Requests of a device without a server fail soon: it could not be parked, which is tried again")
	l.later.run(func(ctx context.Context) {
		for pause := parkSoon; isWorthAgain(err) && !k.nbd.isGone(); pause = min(2*pause, parkLate) {
			if !pauseFor(ctx, pause) {
				return
			}
			err = k.nbd.park(l.isTurn(k, turn))
		}
		if err == nil {
			log.Info("Requests of a device without a server wait")
		}
	})
}

func isWorthAgain(err error) bool {
	return err != nil && !errors.Is(err, errCut) && !errors.Is(err, ErrEnded)
}

// isTurn returns what tells whether nobody has adopted or left a device since a turn, and its server has not ended.
func (l *Local) isTurn(k *kept, turn int) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return k.turn == turn
	}
}

// park gives the kernel a socket on whose other end nothing is read.
func (d *nbdDevice) park(may func() bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket pair: %w", err)
	}
	defer closeAll(pair[:]...)
	socket, err := fuse.Dup(pair[0])
	if err != nil {
		return err
	}
	parked, err := fuse.Dup(pair[1])
	if err != nil {
		closeAll(socket)
		return err
	}
	return d.connect(socket, parked, may)
}

// AdoptSocket implements Keeper. It is not in the way of an operation: one may wait for the very process that adopts.
// The socket of a process that has ended meanwhile is not used: its successor may have the device by then.
func (s session) AdoptSocket(_ context.Context, volume string, owner Owner, socket int) (Held, error) {
	own, err := fuse.Dup(socket)
	if err != nil {
		return Held{}, err
	}
	s.mu.Lock()
	k, err := s.adoptableLocked(volume, owner, KindNBD)
	if err != nil {
		s.mu.Unlock()
		_ = unix.Close(own)
		return Held{}, err
	}
	k.turn++
	k.held.Owner, k.held.Served = owner, true
	turn, held := k.turn, k.held
	s.mu.Unlock()
	if err := k.nbd.connect(own, -1, s.isTurn(k, turn)); err != nil {
		s.park(k, turn) // before another may adopt it
		s.leave(k, turn)
		return Held{}, err
	}
	return held, nil
}

// leave makes a device adoptable, unless it is another's turn already.
func (l *Local) leave(k *kept, turn int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.turn == turn {
		k.held.Served = false
	}
}

// grow makes the device larger. The owner serves the new size already.
func (d *nbdDevice) grow(wanted int64) (int64, error) {
	size, err := d.link.Size(d.device)
	if err != nil || size >= wanted {
		return size, err
	}
	if err := d.link.Resize(d.device, wanted); err != nil {
		return 0, err
	}
	if size, err = d.link.Size(d.device); err == nil && size < wanted {
		err = fmt.Errorf("%s has %d bytes after it was to grow to %d", d.path, size, wanted)
	}
	return size, err
}

// detach ends the device if nothing else uses it; otherwise it returns ErrInUse and the device stays.
//
//  1. open it exclusively: fails while it is mounted or otherwise claimed, in any mount namespace, and keeps new claims away
//  2. write back what plain writers left in its page cache; that takes as long as the server takes
//  3. ask proceed: the last moment at which all can stay as it is
//  4. have the device end with its last user, and close it: the kernel disconnects it if nobody else has it open, after it has written
//     back what came since 2
//  5. unless it is known to be gone, others have it open: it must no longer end with its last user. These may have gone by then, and the
//     device with them. Where the kernel does not accept that, it is repeated in the background
//  6. call gone
//
// Between 4 and 6 another program of the machine may be given the device's number; its node is there until 6.
func (d *nbdDevice) detach(proceed func() error, gone func()) (syncErr, err error) {
	claim, err := openHandle(d.path, unix.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w: %w", d.path, errClaimed, engine.ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	syncErr = claim.do(unix.Fsync)
	if err := proceed(); err != nil {
		claim.close()
		<-claim.ended
		return syncErr, err
	}
	err = d.endWithUsers()
	claim.close()
	<-claim.ended
	if !d.isGone() {
		stays := errors.Join(err, d.outliveUsers())
		if !d.isGone() {
			return syncErr, errors.Join(fmt.Errorf("%s is open: %w", d.path, engine.ErrInUse), stays)
		}
	}
	gone()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.ended = true, true
	d.endConnectionLocked()
	return syncErr, nil
}

// endWithUsers has the device end with its last user, unless it was disconnected: see kernel.Link.Disconnect.
func (d *nbdDevice) endWithUsers() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return errCut
	}
	d.detaching++
	return d.link.EndWithUsers(d.device, true)
}

// The pauses between attempts to have a device outlive its users.
const (
	outliveSoon = 10 * time.Millisecond
	outliveLate = 5 * time.Second
)

// outliveUsers undoes endWithUsers. If the kernel does not accept that, because memory is short for example, the device is
// still in use and would end with the next user that closes it. So another goroutine repeats it until the kernel accepts
// it, the device is cut or gone, another attempt to detach it has begun, or the Local ends.
func (d *nbdDevice) outliveUsers() error {
	d.mu.Lock()
	attempt := d.detaching
	d.mu.Unlock()
	asked, err := d.askToOutlive(attempt)
	if err == nil {
		return nil
	}
	d.later.run(func(ctx context.Context) {
		for pause := outliveSoon; asked && err != nil; pause = min(2*pause, outliveLate) {
			if !pauseFor(ctx, pause) {
				return
			}
			asked, err = d.askToOutlive(attempt)
		}
	})
	return err
}

// askToOutlive asks the kernel once to have the device outlive its users, unless that is of no use, or would be in the
// way of another attempt to detach it.
func (d *nbdDevice) askToOutlive(attempt int) (asked bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut || d.detaching != attempt || d.isGone() {
		return false, nil
	}
	return true, d.link.EndWithUsers(d.device, false)
}

// NodeName makes of a node's name what Options.Node may be.
func NodeName(name string) string { return strings.ReplaceAll(name, "/", "_") }
