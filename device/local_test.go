package device

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/fuse"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// gate is a backend whose writes wait until it is open.
type gate struct {
	nbd.Backend
	arrived chan struct{} // gets a token for each write
	open    chan struct{}
}

func (g *gate) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	g.arrived <- struct{}{}
	<-g.open
	return g.Backend.WriteAt(ctx, p, off, fua)
}

func newGate(b nbd.Backend) *gate {
	return &gate{Backend: b, arrived: make(chan struct{}, 256), open: make(chan struct{})}
}

// frontend returns a frontend of a start of an engine.
func frontend(k Keeper, generation int64) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: k, Owner: owner(generation)})
}

// successor is a frontend that takes over the device of generation 1.
func successor(k Keeper, generation int64) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: k, Owner: owner(generation), Predecessor: owner(1).Session})
}

// A device that is left is taken over with its users: what they ask meanwhile waits for the next engine.
func TestADeviceIsTakenOver(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	keeper := NewLocal(Options{DeviceDir: t.TempDir()})
	first := frontend(keeper, 1)
	path, err := first.Start(t.Context(), "vol-1", size, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := successor(keeper, 2).Start(t.Context(), "vol-1", size, m); !errors.Is(err, ErrServed) {
		t.Errorf("takeover of a device that is served: %v", err)
	}
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	page := alignedPage()
	copy(page, "written between two engines")
	go func() {
		_, err := user.WriteAt(page, 4096)
		written <- err
	}()
	for name, tc := range map[string]struct {
		owner Owner
		size  int64
		want  error
	}{
		"a lower generation":             {owner(0), size, ErrFenced},
		"another session of the same":    {Owner{Engine: "vol-1-e-0", Generation: 1, Session: "other"}, size, ErrFenced},
		"another size":                   {owner(2), 2 * size, nil},
		"a size that no device can have": {owner(2), 4711, nil},
	} {
		if _, err := NewFrontend(FrontendOptions{Keeper: keeper, Owner: tc.owner, Predecessor: owner(1).Session}).Start(t.Context(), "vol-1", tc.size, m); err == nil ||
			tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	second := successor(keeper, 3)
	if got, err := second.Start(t.Context(), "vol-1", size, m); err != nil || got != path {
		t.Fatalf("takeover: %q, %v", got, err)
	}
	if err := <-written; err != nil {
		t.Errorf("a write that waited for the next engine: %v", err)
	}
	got := make([]byte, 4096)
	if err := m.ReadAt(t.Context(), got, 4096); err != nil || !bytes.Equal(got, page) {
		t.Errorf("the volume holds %q, %v", got[:32], err)
	}
	if err := second.Stop(t.Context()); !errors.Is(err, engine.ErrInUse) {
		t.Errorf("stop while it is open: %v", err)
	}
	_ = user.Close()
	if err := keeper.Detach(t.Context(), "vol-1", owner(1)); !errors.Is(err, ErrFenced) {
		t.Errorf("removal by the owner before: %v", err)
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := keeper.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left are %v, %v", all, err)
	}
}

// Only the device of the session that is named is taken over: what the users of any other have cached may be older than the volume.
func TestADeviceOfAnotherSessionIsNotTakenOver(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	keeper := NewLocal(Options{DeviceDir: t.TempDir()})
	if _, err := successor(keeper, 2).Start(t.Context(), "vol-1", size, m); !errors.Is(err, ErrNotHeld) {
		t.Errorf("takeover of a device that is not there: %v", err)
	}
	first := frontend(keeper, 1)
	path, err := first.Start(t.Context(), "vol-1", size, m)
	if err != nil {
		t.Fatal(err)
	}
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := NewFrontend(FrontendOptions{Keeper: keeper, Owner: owner(2), Predecessor: "other"})
	if _, err := other.Start(t.Context(), "vol-1", size, m); !errors.Is(err, ErrNotHeld) {
		t.Errorf("takeover of the device of another session: %v", err)
	}
	second := frontend(keeper, 2)
	if _, err := second.Start(t.Context(), "vol-1", size, m); err != nil {
		t.Fatalf("a new device: %v", err)
	}
	page := alignedPage()
	copy(page, "written by a user of the device before")
	if _, err := user.WriteAt(page, 4096); err == nil {
		t.Error("a user of the device before can write to the volume")
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Leave answers what was read before, and fails when it cannot in time: a request is still under way, and nobody else may serve.
func TestLeaveWaitsForRequests(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	g := newGate(memory.New(size))
	keeper := NewLocal(Options{DeviceDir: t.TempDir()})
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, g)
	if err != nil {
		t.Fatal(err)
	}
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		_, err := user.WriteAt(alignedPage(), 0)
		written <- err
	}()
	<-g.arrived
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Leave(over); err == nil {
		t.Error("it left with a request under way")
	}
	if _, err := successor(keeper, 2).Start(t.Context(), "vol-1", size, g); !errors.Is(err, ErrServed) {
		t.Errorf("takeover meanwhile: %v", err)
	}
	close(g.open)
	if err := <-written; err != nil {
		t.Error(err)
	}
	if err := f.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	_ = user.Close()
	next := successor(keeper, 2)
	if _, err := next.Start(t.Context(), "vol-1", size, g); err != nil {
		t.Fatal(err)
	}
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The process that served ends while its device is being removed, and the last data waits for it. The removal is given up, a successor has
// the device, and nothing was lost.
func TestARemovalWhoseServerEndsIsGivenUp(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	g := newGate(m)
	keeper := NewLocal(Options{DeviceDir: t.TempDir()})
	f := frontend(keeper.Session(), 1)
	path, err := f.Start(t.Context(), "vol-1", size, g)
	if err != nil {
		t.Fatal(err)
	}
	want := pattern(3, 8192)
	if err := os.WriteFile(path, want, 0); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error)
	go func() { stopped <- f.Stop(t.Context()) }()
	<-g.arrived
	keeper.ServerEnded() // as far as the keeper knows
	for op, err := range map[string]error{
		"detach": f.opts.Keeper.Detach(t.Context(), "vol-1", owner(1)),
		"leave":  f.opts.Keeper.Leave(t.Context(), "vol-1", owner(1)),
		"abort":  f.opts.Keeper.Abort(t.Context(), "vol-1"),
	} {
		if !errors.Is(err, ErrEnded) {
			t.Errorf("%s, asked by a process that has ended: %v", op, err)
		}
	}
	close(g.open) // the first write is served after all; a successor would be sent it again
	if err := <-stopped; !errors.Is(err, ErrEnded) {
		t.Errorf("the removal: %v", err)
	}
	f.server.Stop()
	<-f.server.Ended()
	next := successor(keeper, 2)
	if _, err := next.Start(t.Context(), "vol-1", size, m); err != nil {
		t.Fatal(err)
	}
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(want))
	if err := m.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the last data is lost, %v", err)
	}
}

// The engine has failed, and answers EIO; then it is stopped by force while a user has the device open.
func TestAbortLeavesNothing(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	dir := t.TempDir()
	keeper := NewLocal(Options{DeviceDir: dir})
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, failing{memory.New(size)})
	if err != nil {
		t.Fatal(err)
	}
	loop := loopOf(t, path)
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := user.WriteAt(alignedPage(), 0); !errors.Is(err, unix.EIO) {
		t.Errorf("write to the device of a failed engine: %v", err)
	}
	if err := f.Stop(t.Context()); !errors.Is(err, engine.ErrInUse) {
		t.Fatalf("stop: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		if err := f.Abort(ctx); err != nil {
			t.Fatalf("abort: %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node is left: %v", err)
	}
	if _, err := user.WriteAt(alignedPage(), 0); err == nil {
		t.Error("a write was acknowledged")
	}
	_ = user.Close()
	expectNothingLeft(t, path, loop)
	again := frontend(keeper, 2) // the volume can have its device again
	if _, err := again.Start(t.Context(), "vol-1", size, memory.New(size)); err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The kernel takes its time for what is under way on a device that is aborted. Nobody asks again, and the volume can have a device when it
// is through.
func TestAnAbortThatTakesLongIsFinished(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	keeper := NewLocal(Options{DeviceDir: t.TempDir()})
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, memory.New(size))
	if err != nil {
		t.Fatal(err)
	}
	loop := loopOf(t, path)
	k := keeper.find("vol-1")
	k.op <- struct{}{} // as an operation has that waits in the kernel
	if err := f.Abort(t.Context()); !errors.Is(err, ErrServed) {
		t.Errorf("abort: %v", err)
	}
	<-k.op
	for late := time.Now().Add(10 * time.Second); keeper.find("vol-1") != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the device is kept still")
		}
	}
	expectNothingLeft(t, path, loop)
}

// failing is the backend of an engine that has failed.
type failing struct{ nbd.Backend }

func (failing) WriteAt(context.Context, []byte, int64, bool) error { return unix.EIO }

// The numbers of descriptors decide in which order a dying process closes them.
func TestDescriptorsOfConnectionsAreAboveThoseOfLoopDevices(t *testing.T) {
	const size = 1 << 20
	blockDevice(t, size, memory.New(size))
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	loops, conns := 0, 0
	for _, link := range links {
		number := 0
		for _, c := range filepath.Base(link) {
			number = number*10 + int(c-'0')
		}
		switch target, _ := os.Readlink(link); {
		case target == "/dev/fuse":
			conns++
			if number < lowestConnFD {
				t.Errorf("a connection is number %d", number)
			}
		case len(target) > 9 && target[:9] == "/dev/loop":
			loops++
			if number < lowestLoopFD || number >= lowestConnFD {
				t.Errorf("%s is number %d", target, number)
			}
		}
	}
	if loops != 1 || conns != 2 {
		t.Errorf("%d loop devices, %d connections", loops, conns)
	}
	if ok, err := fuse.CanResend(); err != nil {
		t.Errorf("can requests be sent again: %t, %v", ok, err)
	}
}
