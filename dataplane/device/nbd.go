package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
)

// nbdDevice is a device of the kernel's NBD client. This process does not have it open: closing a device writes back
// its page cache, and a process that dies together with the server would wait for that without end. If this process
// dies, the next keeper of the node disconnects the devices that it left.
//
//	kernel ── socket ── the process that serves        while a process serves
//	kernel ── socket ── parked                         while none does: requests wait while this process lives
//
// If a connection has ended and gets no replacement, the kernel fails the requests after kernel.deadTimeout. This
// happens only when this process has died too.
type nbdDevice struct {
	blockNode
	link   nbdLink
	device kernel.Device
	later  *background

	mu     sync.Mutex
	socket int  // guarded by mu; the kernel's end, needed to shut it down; -1 when closed
	parked int  // guarded by mu; the other end while no process serves; otherwise -1
	cut    bool // guarded by mu; the device no longer gets a connection
	ended  bool // guarded by mu; disconnected: another device may have the number, even one of the same volume
	// connection counts the sockets of the device; guarded by mu.
	connection int
	// detaching counts the attempts to detach the device; guarded by mu.
	detaching int
}

// nbdLink is the part of kernel.Link that a device needs.
type nbdLink interface {
	Reconnect(d kernel.Device, socket int) error
	Disconnect(d kernel.Device) error
	EndWithUsers(d kernel.Device, ends bool) error
	Resize(d kernel.Device, sizeBytes int64) error
	Limit(d kernel.Device) error
	// IsConfigured reports whether the kernel has the device. An error means that this is unknown.
	IsConfigured(d kernel.Device) (bool, error)
	Number(d kernel.Device) (uint64, error)
	Size(d kernel.Device) (int64, error)
}

// nbdID returns the name by which the kernel knows a device.
func (l *Local) nbdID(volume string) string { return l.nbdPrefix() + volume }

func (l *Local) nbdPrefix() string { return "longhorn:" + l.opts.Node + "/" }

// disconnect makes all requests on the device fail, now and later. It waits for neither users nor a server. If it
// returns an error, the kernel may still have the device. The device then has no connection and gets none, so its
// requests fail within kernel.deadTimeout, and the caller must repeat disconnect.
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

// isGone reports whether the kernel is known not to have the device. If this cannot be found out, for example because
// no descriptor is available, the device counts as present: callers do nothing more for a device that is gone, and the
// users of a device that still exists would wait in vain.
func (d *nbdDevice) isGone() bool {
	is, err := d.link.IsConfigured(d.device)
	return err == nil && !is
}

// endConnectionLocked closes both ends of the connection: the requests that the kernel sends or waits for there fail.
// The caller holds mu.
func (d *nbdDevice) endConnectionLocked() {
	for _, fd := range []*int{&d.socket, &d.parked} {
		if *fd >= 0 {
			_ = unix.Shutdown(*fd, unix.SHUT_RDWR)
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// The kernel replaces a connection only after it has seen the connection's end, which it sees a moment later. Until
// then a command to replace the connection has no effect, and the kernel does not report this. A command to replace a
// working connection has no effect either. So another goroutine repeats the command until the kernel must have seen the
// end. The caller does not wait for it: it has many devices to connect before the first request fails.
const (
	reconnectRetryMin = time.Millisecond
	reconnectRetryMax = 10 * time.Second
	reconnectPause    = 4 // factor from one pause to the next
)

// errCut says that a device was aborted or removed.
var errCut = errors.New("the device was aborted")

// connect ends the connection, and tells the kernel to use another socket. It takes over the descriptors of socket and
// parked. It does nothing if may returns false. It calls may while no other caller can connect the device; a nil may
// means yes.
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

// connectAgain repeats the command to use the socket until the kernel must have seen the end of the earlier connection.
// It also repeats a command that failed, because an earlier one may have had no effect.
func (d *nbdDevice) connectAgain(ctx context.Context, number int) {
	for pause := reconnectRetryMin; pause < reconnectRetryMax; {
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

// ask tells the kernel once more to use the socket of a connection, unless there is a newer connection or the device is
// gone.
func (d *nbdDevice) ask(number int) (asked bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connection != number || d.socket < 0 || d.cut || d.isGone() {
		return false, nil
	}
	return true, d.link.Reconnect(d.device, d.socket)
}

// The pauses between attempts to park a device. Until it is parked, its requests may fail soon.
const (
	parkRetryMin = 10 * time.Millisecond
	parkRetryMax = time.Second
)

// park makes the requests of a device that no process serves wait, unless the serving process has changed already. If
// that fails because descriptors or memory are short, another goroutine repeats it. It stops when the device is parked,
// when the serving process has changed, when the device is known to be gone, or when the Local is closed.
func (l *Local) park(k *heldDevice, serverChanges int) {
	err := k.nbd.park(l.isSameServer(k, serverChanges))
	if !isRetryable(err) {
		return
	}
	log := l.opts.Log.WithField("device", k.held.Path)
	log.WithError(err).Error("Cannot pause the requests of a device without a serving process; they fail soon, unless the next attempt succeeds")
	l.later.run(func(ctx context.Context) {
		for pause := parkRetryMin; isRetryable(err) && !k.nbd.isGone(); pause = min(2*pause, parkRetryMax) {
			if !pauseFor(ctx, pause) {
				return
			}
			err = k.nbd.park(l.isSameServer(k, serverChanges))
		}
		if err == nil {
			log.Info("The requests of a device without a serving process wait for its successor")
		}
	})
}

func isRetryable(err error) bool {
	return err != nil && !errors.Is(err, errCut) && !errors.Is(err, ErrEnded)
}

// isSameServer returns a function that reports whether the serving process has not changed: no process has adopted or
// left it since, and its server has not exited.
func (l *Local) isSameServer(k *heldDevice, serverChanges int) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return k.serverChanges == serverChanges
	}
}

// park gives the kernel a socket, and reads nothing from the other end of it.
func (d *nbdDevice) park(may func() bool) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create a socket pair: %w", err)
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

// AdoptSocket implements Keeper. It does not wait for an operation on the device, because the operation may wait for
// the process that adopts. If the process has exited in the meantime, its socket is not used: its successor may already
// have the device.
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
	k.serverChanges++
	k.held.Owner, k.held.Served = owner, true
	serverChanges, held := k.serverChanges, k.held
	s.mu.Unlock()
	if err := k.nbd.connect(own, -1, s.isSameServer(k, serverChanges)); err != nil {
		s.park(k, serverChanges) // before another process may adopt it
		s.leave(k, serverChanges)
		return Held{}, err
	}
	return held, nil
}

// leave allows other processes to adopt a device, unless the serving process has changed already.
func (l *Local) leave(k *heldDevice, serverChanges int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.serverChanges == serverChanges {
		k.held.Served = false
	}
}

// grow makes the device larger. The owner already serves the new size.
func (d *nbdDevice) grow(wanted int64) (int64, error) {
	size, err := d.link.Size(d.device)
	if err != nil || size >= wanted {
		return size, err
	}
	if err := d.link.Resize(d.device, wanted); err != nil {
		return 0, err
	}
	if size, err = d.link.Size(d.device); err == nil && size < wanted {
		err = fmt.Errorf("%s has %d bytes, but should have grown to %d bytes", d.path, size, wanted)
	}
	return size, err
}

// detach removes the device if nothing else uses it. Otherwise it returns ErrInUse and the device stays. The steps:
//
//  1. Open the device exclusively. This fails while it is mounted or otherwise claimed, in any mount namespace. It
//     also prevents new claims.
//  2. Write back the data that plain writers left in its page cache. This takes as long as the server takes.
//  3. Call proceed: the last moment at which everything can stay as it is.
//  4. Tell the kernel to remove the device with its last user, and close it. If no other process has it open, the
//     kernel first writes back the data that came after step 2, and then disconnects it.
//  5. If the device is not known to be gone, other processes have it open. Tell the kernel to keep it after its last
//     user has closed it. By then these users may have closed it, and the device may be gone. If the kernel does not
//     accept the command, repeat it in the background.
//  6. Call gone.
//
// Between steps 4 and 6 the kernel may give the device's number to another program of the machine. The volume's node
// exists until step 6.
func (d *nbdDevice) detach(proceed func() error, gone func()) (syncErr, err error) {
	claim, err := openHandle(d.path, unix.O_RDWR|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%s: %w: %w", d.path, errClaimed, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open the device exclusively: %w", err)
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
		stays := errors.Join(err, d.keepAfterUsers())
		if !d.isGone() {
			return syncErr, errors.Join(fmt.Errorf("%s is open: %w", d.path, ErrInUse), stays)
		}
	}
	gone()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.ended = true, true
	d.endConnectionLocked()
	return syncErr, nil
}

// endWithUsers tells the kernel to remove the device with its last user, unless it was disconnected: see
// kernel.Link.Disconnect.
func (d *nbdDevice) endWithUsers() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return errCut
	}
	d.detaching++
	return d.link.EndWithUsers(d.device, true)
}

// The pauses between attempts to let a device outlive its users.
const (
	outliveRetryMin = 10 * time.Millisecond
	outliveRetryMax = 5 * time.Second
)

// keepAfterUsers undoes endWithUsers. If the kernel does not accept that, for example because memory is short, the
// device is still in use, and the next user that closes it would remove it. So another goroutine repeats the command.
// It stops when the kernel has accepted the command, when the device is cut or gone, when another attempt to detach it
// has started, or when the Local is closed.
func (d *nbdDevice) keepAfterUsers() error {
	d.mu.Lock()
	attempt := d.detaching
	d.mu.Unlock()
	asked, err := d.tryKeepAfterUsers(attempt)
	if err == nil {
		return nil
	}
	d.later.run(func(ctx context.Context) {
		for pause := outliveRetryMin; asked && err != nil; pause = min(2*pause, outliveRetryMax) {
			if !pauseFor(ctx, pause) {
				return
			}
			asked, err = d.tryKeepAfterUsers(attempt)
		}
	})
	return err
}

// tryKeepAfterUsers tells the kernel once to let the device outlive its users. It does nothing if that is useless, or
// if it would disturb another attempt to detach the device.
func (d *nbdDevice) tryKeepAfterUsers(attempt int) (asked bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut || d.detaching != attempt || d.isGone() {
		return false, nil
	}
	return true, d.link.EndWithUsers(d.device, false)
}
