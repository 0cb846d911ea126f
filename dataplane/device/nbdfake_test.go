package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
)

// fakeKernel imitates the kernel's NBD client for a keeper.
type fakeKernel struct {
	takes time.Duration // duration of each command
	// late is the number of commands to reconnect that have no effect, because the kernel has not yet seen the end of
	// the connection.
	late int

	mu     sync.Mutex
	refuse error          // guarded by mu; answer to a command to reconnect
	asked  map[uint32]int // guarded by mu; number of commands to reconnect, by device
	uses   map[uint32]int // guarded by mu; the socket that the device uses
	gone   bool           // guarded by mu; the kernel has no device
	blind  error          // guarded by mu; the reason why sysfs cannot be read
	ended  map[uint32]int // guarded by mu; accepted commands to disconnect, by device

	endsWithUsers map[uint32]bool // guarded by mu; the kernel removes the device when its last user closes it
	outlives      map[uint32]int  // guarded by mu; number of commands to let a device outlive its users
	keepsEnd      error           // guarded by mu; answer to such a command
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		asked: map[uint32]int{}, uses: map[uint32]int{}, ended: map[uint32]int{}, endsWithUsers: map[uint32]bool{}, outlives: map[uint32]int{},
	}
}

func (f *fakeKernel) Reconnect(d kernel.Device, socket int) error {
	time.Sleep(f.takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[d.Index]++
	if f.refuse != nil {
		return f.refuse
	}
	if f.asked[d.Index] > f.late {
		f.uses[d.Index] = socket
	}
	return nil
}

func (f *fakeKernel) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeKernel) IsConfigured(kernel.Device) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.gone && f.blind == nil, f.blind
}

func (f *fakeKernel) Disconnect(d kernel.Device) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blind == nil {
		f.ended[d.Index]++
	}
	return f.blind
}

func (f *fakeKernel) EndWithUsers(d kernel.Device, ends bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ends {
		f.outlives[d.Index]++
		if f.keepsEnd != nil {
			return f.keepsEnd
		}
	}
	f.endsWithUsers[d.Index] = ends
	return nil
}

func (f *fakeKernel) Resize(kernel.Device, int64) error    { return nil }
func (f *fakeKernel) Limit(kernel.Device) error            { return nil }
func (f *fakeKernel) Number(kernel.Device) (uint64, error) { return 0, nil }
func (f *fakeKernel) Size(d kernel.Device) (int64, error)  { return 0, nil }

func (f *fakeKernel) count(d *nbdDevice) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[d.device.Index]
}

// endsWith reports whether the kernel removes a device with its last user.
func (f *fakeKernel) endsWith(d *nbdDevice) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.endsWithUsers[d.device.Index]
}

func (f *fakeKernel) outlivesAsked(d *nbdDevice) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outlives[d.device.Index]
}

func (f *fakeKernel) isUsing(d *nbdDevice, socket int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uses[d.device.Index] == socket
}

// keepNBD returns a keeper with devices of a kernel, each served by the session's process.
func keepNBD(t *testing.T, f *fakeKernel, devices int) *Local {
	t.Helper()
	l := NewLocal(Options{DeviceDir: t.TempDir(), LoopDir: t.TempDir(), Node: "n"})
	t.Cleanup(l.later.end)
	for i := range devices {
		v := fmt.Sprintf("vol-%d", i)
		d := &nbdDevice{
			blockNode: blockNode{path: filepath.Join(l.opts.LoopDir, "nbd"+v), held: -1}, link: f,
			device: kernel.Device{Index: uint32(i), ID: l.nbdID(v)}, later: l.later, socket: socketTo(t), parked: -1,
		}
		l.devices[v] = &heldDevice{op: oneAtATime(), conn: -1, phase: keeping, nbd: d, held: Held{
			Spec: Spec{Volume: v, SizeBytes: 1 << 20, Kind: KindNBD, Owner: owner(1)}, Path: filepath.Join(l.opts.DeviceDir, v), Served: true,
		}}
		t.Cleanup(func() { _ = d.disconnect() })
	}
	return l
}

// socketTo returns one end of a socket pair. Its other end is closed, as if its process had exited.
func socketTo(t *testing.T) int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Close(pair[1]))
	return pair[0]
}

// ends returns the kernel's end, and the other end if the device is parked; -1 means that there is none.
func (d *nbdDevice) ends() (socket, parked int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.socket, d.parked
}

// assertParked fails the test unless requests of the device wait.
func assertParked(t *testing.T, f *fakeKernel, d *nbdDevice) {
	t.Helper()
	socket, parked := d.ends()
	assert.True(t, socket >= 0 && parked >= 0, "%s has no parked connection: requests fail in 10 s", d.path)
	assert.True(t, f.isUsing(d, socket), "%s: the kernel was not given the parked connection", d.path)
}

// disconnectAll disconnects all devices, which stops the attempts in the background.
func disconnectAll(l *Local) {
	for _, k := range l.devices {
		_ = k.nbd.disconnect()
	}
}

// The kernel fails the requests of a device 10 s after its connection has ended. A node has hundreds of devices, and
// the next process starts only after that.
func TestAllDevicesOfAServerThatEndedAreParkedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 300
		f := newFakeKernel()
		f.takes = 20 * time.Millisecond
		l := keepNBD(t, f, devices)
		began := time.Now()
		l.ServerEnded()
		assert.LessOrEqual(t, time.Since(began), (devices+parkersAtOnce-1)/parkersAtOnce*f.takes, "%d devices were parked", devices)
		time.Sleep(2 * reconnectRetryMax)
		for _, k := range l.devices {
			assertParked(t, f, k.nbd)
			assert.LessOrEqual(t, f.count(k.nbd), 8, "commands for one device")
		}
		disconnectAll(l)
	})
}

// A disconnection that waits in the kernel holds only the lock of its own device.
func TestADeviceThatIsBeingDisconnectedKeepsNoOtherFromBeingParked(t *testing.T) {
	f := newFakeKernel()
	l := keepNBD(t, f, 5)
	hangs := l.devices["vol-2"].nbd
	hangs.mu.Lock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.ServerEnded()
	}()
	for _, k := range l.devices {
		if k.nbd != hangs {
			eventually(t, "a parked device", func() bool {
				_, parked := k.nbd.ends()
				return parked >= 0
			})
		}
	}
	hangs.mu.Unlock()
	<-ended
	assertParked(t, f, hangs)
}

// eventually waits for a result of another goroutine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, time.Millisecond, what)
}

// awaitTurn waits until an operation has started a turn of a device.
func awaitTurn(t *testing.T, l *Local, k *heldDevice, serverChanges int) {
	t.Helper()
	eventually(t, "operation", func() bool { return l.isSameServer(k, serverChanges)() })
}

// Until the kernel has seen the end of a connection, it ignores another socket and does not report this.
func TestAKernelThatSeesTheEndOfAConnectionLateIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		f.late = 6
		l := keepNBD(t, f, 1)
		l.ServerEnded()
		time.Sleep(reconnectRetryMax)
		assertParked(t, f, l.devices["vol-0"].nbd)
		disconnectAll(l)
	})
}

// A successor that cannot adopt a device costs only time: the requests wait for the next one.
func TestADeviceThatCouldNotBeAdoptedIsParkedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		l := keepNBD(t, f, 1)
		d := l.devices["vol-0"].nbd
		l.ServerEnded()
		f.set(func() { f.refuse = unix.ENOBUFS })
		socket := socketTo(t)
		_, err := l.AdoptSocket(t.Context(), "vol-0", owner(2), socket)
		assert.ErrorIs(t, err, unix.ENOBUFS)
		time.Sleep(5 * time.Second)
		f.set(func() { f.refuse = nil })
		time.Sleep(2 * parkRetryMax)
		assertParked(t, f, d)
		_, err = l.AdoptSocket(t.Context(), "vol-0", owner(3), socket)
		require.NoError(t, err, "the next successor")
		kernels, parked := d.ends()
		assert.Equal(t, -1, parked)
		assert.True(t, f.isUsing(d, kernels))
		time.Sleep(2 * reconnectRetryMax)
		now, _ := d.ends()
		assert.Equal(t, kernels, now, "the attempts to park it did not end with the adoption")
		require.NoError(t, unix.Close(socket))
		disconnectAll(l)
	})
}

// An error that prevents parking passes, or the device disappears.
func TestParkingIsRepeatedUntilItSucceedsOrTheDeviceIsGone(t *testing.T) {
	for name, end := range map[string]func(*fakeKernel, *Local){
		"it holds":             func(f *fakeKernel, _ *Local) { f.set(func() { f.refuse = nil }) },
		"the kernel ended it":  func(f *fakeKernel, _ *Local) { f.set(func() { f.gone = true }) },
		"it was aborted":       func(_ *fakeKernel, l *Local) { disconnectAll(l) },
		"another server ended": func(f *fakeKernel, l *Local) { f.set(func() { f.refuse = nil }); l.ServerEnded() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeKernel()
				f.refuse = errors.New("too many open files")
				l := keepNBD(t, f, 1)
				d := l.devices["vol-0"].nbd
				l.ServerEnded()
				time.Sleep(20 * time.Second)
				tried := f.count(d)
				assert.Greater(t, tried, 15, "attempts in 20 s")
				end(f, l)
				time.Sleep(2 * reconnectRetryMax)
				if name == "it holds" || name == "another server ended" {
					assertParked(t, f, d)
				}
				last := f.count(d)
				assert.Less(t, last-tried, 20)
				time.Sleep(time.Minute)
				assert.Equal(t, last, f.count(d), "it is tried for ever")
				disconnectAll(l)
			})
		})
	}
}

// A process without descriptors cannot read sysfs. That proves nothing about the device, and its users would get
// errors.
func TestADeviceWhoseStateIsUnknownIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		f.refuse, f.blind = unix.EMFILE, unix.EMFILE
		l := keepNBD(t, f, 1)
		d := l.devices["vol-0"].nbd
		l.ServerEnded()
		time.Sleep(time.Minute)
		tried := f.count(d)
		f.set(func() {
			f.refuse = nil
			f.late = tried + 4 // the kernel has not yet seen the end of the previous connection
		})
		time.Sleep(2 * reconnectRetryMax)
		assertParked(t, f, d)
		f.set(func() { f.blind = nil })
		disconnectAll(l)
		l.Close()
	})
}

// The Local owns the goroutines that repeat attempts: none is left after the Local is closed.
func TestAttemptsToParkEndWithTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		f.refuse = unix.EMFILE
		l := keepNBD(t, f, 1)
		d := l.devices["vol-0"].nbd
		l.ServerEnded()
		l.later.end()
		tried := f.count(d)
		time.Sleep(time.Minute)
		assert.Equal(t, tried, f.count(d))
		l.park(l.devices["vol-0"], l.devices["vol-0"].serverChanges)
		time.Sleep(time.Minute)
		assert.Equal(t, tried+1, f.count(d), "after the end nothing is repeated")
	})
}

// An Abort that could not disconnect a device must not count as done. It is completed without another call.
func TestAnAbortThatCouldNotDisconnectIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		f.blind = unix.EMFILE
		l := keepNBD(t, f, 1)
		d := l.devices["vol-0"].nbd
		for range 3 {
			assert.ErrorIs(t, l.Abort(t.Context(), "vol-0"), unix.EMFILE)
		}
		time.Sleep(time.Minute)
		assert.NotNil(t, l.find("vol-0"), "it may be there")
		socket, _ := d.ends()
		assert.Equal(t, -1, socket, "its users are served")
		f.set(func() { f.blind = nil })
		time.Sleep(2 * removeRetryMax)
		assert.Nil(t, l.find("vol-0"))
		assert.Equal(t, 1, f.ended[d.device.Index])
		require.NoError(t, d.disconnect())
		assert.Equal(t, 1, f.ended[d.device.Index], "the number may be that of the volume's next device")
	})
}

// A device that could be neither created nor disconnected may be in the kernel: the Local must not forget it.
func TestADeviceThatCouldNotBeCreatedIsRemoved(t *testing.T) {
	errTest := errors.New("no node")
	for _, c := range []struct {
		name string
		make func(s session) error // the error that it returns to make
		err  error
	}{
		{"it fails when the kernel has the device", func(session) error { return errTest }, errTest},
		{"the process that asked ends meanwhile", func(s session) error {
			go s.ServerEnded()
			synctest.Wait()
			return nil
		}, ErrEnded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeKernel()
				f.blind = unix.EMFILE
				l := keepNBD(t, f, 1)
				d := l.devices["vol-0"].nbd
				delete(l.devices, "vol-0")
				s, spec := l.Session().(session), Spec{Volume: "vol-0", SizeBytes: 1 << 20, Kind: KindNBD, Owner: owner(1)}
				attach := func() error {
					_, err := s.attach(spec, func(k *heldDevice) error {
						l.mu.Lock()
						k.nbd = d
						l.mu.Unlock()
						return c.make(s)
					})
					return err
				}
				err := attach()
				assert.ErrorIs(t, err, c.err)
				assert.ErrorIs(t, err, unix.EMFILE)
				s = l.Session().(session)
				assert.ErrorIs(t, attach(), ErrServed, "a second device of the volume")
				f.set(func() { f.blind = nil })
				time.Sleep(2 * removeRetryMax)
				assert.Nil(t, l.find("vol-0"))
				assert.Equal(t, 1, f.ended[d.device.Index])
			})
		})
	}
}

// A device that its engine leaves becomes adoptable only after its requests wait.
func TestADeviceThatIsLeftIsParkedBeforeItIsAdoptable(t *testing.T) {
	f := newFakeKernel()
	l := keepNBD(t, f, 1)
	k := l.devices["vol-0"]
	k.nbd.mu.Lock() // the kernel does not answer a command
	left := make(chan error)
	go func() { left <- l.Leave(t.Context(), "vol-0", owner(1)) }()
	awaitTurn(t, l, k, 1)
	served := func() bool {
		all, err := l.List(t.Context())
		require.NoError(t, err)
		return all[0].Served
	}
	assert.True(t, served(), "another process may adopt it")
	k.nbd.mu.Unlock()
	require.NoError(t, <-left)
	assertParked(t, f, k.nbd)
	assert.False(t, served())
}

// The operation of an exited process may be delayed until its successor has adopted the device. The operation must then
// neither end the successor's connection nor make the device adoptable.
func TestOperationsOfAServerThatEndedLeaveItsSuccessorsConnectionAlone(t *testing.T) {
	for name, operate := range map[string]func(t *testing.T, k Keeper) error{
		"adoption": func(t *testing.T, k Keeper) error {
			_, err := k.AdoptSocket(t.Context(), "vol-0", owner(2), socketTo(t))
			return err
		},
		"leave": func(t *testing.T, k Keeper) error { return k.Leave(t.Context(), "vol-0", owner(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeKernel()
			l := keepNBD(t, f, 1)
			k := l.devices["vol-0"]
			k.held.Served = name == "leave"
			d := k.nbd
			d.mu.Lock() // the operation waits here
			done := make(chan error, 1)
			go func() { done <- operate(t, l.Session()) }()
			awaitTurn(t, l, k, 1)
			l.mu.Lock() // its server exits, and the successor adopts the device
			l.server++
			k.serverChanges += 2
			k.held.Owner, k.held.Served = owner(3), true
			l.mu.Unlock()
			socket := socketTo(t)
			d.endConnectionLocked()
			d.socket = socket
			d.mu.Unlock()
			if err := <-done; name == "adoption" {
				assert.ErrorIs(t, err, ErrEnded)
			}
			now, parked := d.ends()
			assert.Equal(t, socket, now, "the successor's connection was ended")
			assert.Equal(t, -1, parked)
			assert.True(t, k.held.Served, "a second successor could adopt the device")
		})
	}
}

// A process exits while it adopts a device. Then no process uses its socket, and the device's requests wait.
func TestAServerThatEndsWhileItAdoptsADeviceDoesNotKeepIt(t *testing.T) {
	f := newFakeKernel()
	l := keepNBD(t, f, 1)
	k := l.devices["vol-0"]
	l.ServerEnded()
	k.nbd.mu.Lock()
	adopted, ended := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := l.AdoptSocket(t.Context(), "vol-0", owner(2), socketTo(t))
		adopted <- err
	}()
	awaitTurn(t, l, k, 2)
	go func() {
		defer close(ended)
		l.ServerEnded()
	}()
	awaitTurn(t, l, k, 3)
	k.nbd.mu.Unlock()
	assert.ErrorIs(t, <-adopted, ErrEnded)
	<-ended
	assertParked(t, f, k.nbd)
}

// While other processes have a device open, the keeper tells the kernel to remove it with its last user, and then to
// keep it. If the kernel does not accept the second command, the next program that closes the device would remove it
// while other users have it open.
func TestADeviceThatIsInUseOutlivesItsUsersThoughTheKernelRefusesThatFirst(t *testing.T) {
	for _, tc := range []struct {
		name     string
		end      func(*fakeKernel, *Local)
		outlives bool
	}{
		{"the kernel accepts it → asked no more", func(f *fakeKernel, _ *Local) { f.set(func() { f.keepsEnd = nil }) }, true},
		{"the device is gone → asked no more", func(f *fakeKernel, _ *Local) { f.set(func() { f.gone = true }) }, false},
		{"the device is aborted → asked no more", func(_ *fakeKernel, l *Local) { disconnectAll(l) }, false},
		{"the keeper ends → asked no more", func(_ *fakeKernel, l *Local) { l.later.end() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeKernel()
				f.keepsEnd = unix.ENOMEM
				l := keepNBD(t, f, 1)
				d := l.devices["vol-0"].nbd
				require.NoError(t, os.WriteFile(d.path, nil, 0o600)) // a file that can be opened
				err := l.Session().Detach(t.Context(), "vol-0", owner(1))
				assert.ErrorIs(t, err, ErrInUse)
				assert.ErrorIs(t, err, unix.ENOMEM)
				asked := f.outlivesAsked(d)
				time.Sleep(4 * outliveRetryMax)
				assert.Greater(t, f.outlivesAsked(d), asked+3, "it is not repeated")
				tc.end(f, l)
				time.Sleep(2 * outliveRetryMax)
				asked = f.outlivesAsked(d)
				time.Sleep(time.Minute)
				assert.Equal(t, asked, f.outlivesAsked(d), "it is repeated for ever")
				assert.Equal(t, !tc.outlives, f.endsWith(d))
			})
		})
	}
}

// Another attempt to detach the device tells the kernel again to remove it with its last user. The repeats of the
// earlier attempt must not undo that.
func TestAnotherAttemptToDetachADeviceEndsTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeKernel()
		f.keepsEnd = unix.ENOMEM
		d := keepNBD(t, f, 1).devices["vol-0"].nbd
		require.NoError(t, d.endWithUsers())
		require.ErrorIs(t, d.keepAfterUsers(), unix.ENOMEM)
		require.NoError(t, d.endWithUsers())
		f.set(func() { f.keepsEnd = nil })
		time.Sleep(2 * outliveRetryMax)
		assert.True(t, f.endsWith(d))
		require.NoError(t, d.keepAfterUsers())
		assert.False(t, f.endsWith(d))
	})
}
