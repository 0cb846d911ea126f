package device

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/fuse"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// gate is a backend that delays writes until it is open.
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

// frontend returns a frontend of one start of an engine.
func frontend(k Keeper, generation int64) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: k, Owner: owner(generation)})
}

// successor returns a frontend that takes over the device of generation 1.
func successor(k Keeper, generation int64) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: k, Owner: owner(generation), Predecessor: owner(1).Session})
}

// A successor takes over a device together with its users: requests in the meantime wait for the next engine.
func TestADeviceIsTakenOver(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	keeper := newKeeper(t, t.TempDir())
	first := frontend(keeper, 1)
	path, err := first.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err)
	_, err = successor(keeper, 2).Start(t.Context(), "vol-1", size, m)
	assert.ErrorIs(t, err, ErrServed, "takeover of a device that is served")
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, first.Leave(t.Context()))
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
		"a smaller size":                 {owner(2), size / 2, nil},
		"a size that no device can have": {owner(2), 4711, nil},
	} {
		_, err := NewFrontend(FrontendOptions{Keeper: keeper, Owner: tc.owner, Predecessor: owner(1).Session}).Start(t.Context(), "vol-1", tc.size, m)
		require.Error(t, err, name)
		if tc.want != nil {
			assert.ErrorIs(t, err, tc.want, name)
		}
	}
	second := successor(keeper, 3)
	if got, err := second.Start(t.Context(), "vol-1", size, m); err != nil || got != path {
		t.Fatalf("takeover: %q, %v", got, err)
	}
	assert.NoError(t, <-written, "a write that waited for the next engine")
	got := make([]byte, 4096)
	err = m.ReadAt(t.Context(), got, 4096)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, page))
	assert.ErrorIs(t, second.Stop(t.Context()), ErrInUse, "stop while it is open")
	_ = user.Close()
	assert.ErrorIs(t, keeper.Detach(t.Context(), "vol-1", owner(1)), ErrFenced, "removal by the owner before")
	require.NoError(t, second.Stop(t.Context()))
	all, err := keeper.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, all)
}

// A start takes over only the device of the session that it names: the users of any other device may have cached data
// that is older than the volume.
func TestADeviceOfAnotherSessionIsNotTakenOver(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	keeper := newKeeper(t, t.TempDir())
	_, err := successor(keeper, 2).Start(t.Context(), "vol-1", size, m)
	assert.ErrorIs(t, err, ErrNotHeld, "takeover of a device that is not there")
	first := frontend(keeper, 1)
	path, err := first.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err)
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, first.Leave(t.Context()))
	other := NewFrontend(FrontendOptions{Keeper: keeper, Owner: owner(2), Predecessor: "other"})
	_, err = other.Start(t.Context(), "vol-1", size, m)
	assert.ErrorIs(t, err, ErrNotHeld, "takeover of the device of another session")
	second := frontend(keeper, 2)
	_, err = second.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err, "a new device")
	page := alignedPage()
	copy(page, "written by a user of the device before")
	_, err = user.WriteAt(page, 4096)
	assert.Error(t, err, "a user of the device before can write to the volume")
	assert.NoError(t, second.Stop(t.Context()))
}

// Leave answers the requests that were read before. It fails if it cannot do so in time: a request is still under way
// then, and no other process may serve.
func TestLeaveWaitsForRequests(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	g := newGate(memory.New(size))
	keeper := newKeeper(t, t.TempDir())
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, g)
	require.NoError(t, err)
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	written := make(chan error)
	go func() {
		_, err := user.WriteAt(alignedPage(), 0)
		written <- err
	}()
	<-g.arrived
	over, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Error(t, f.Leave(over), "it left with a request under way")
	_, err = successor(keeper, 2).Start(t.Context(), "vol-1", size, g)
	assert.ErrorIs(t, err, ErrServed, "takeover meanwhile")
	close(g.open)
	assert.NoError(t, <-written)
	assert.NoError(t, f.Leave(t.Context()))
	_ = user.Close()
	next := successor(keeper, 2)
	_, err = next.Start(t.Context(), "vol-1", size, g)
	require.NoError(t, err)
	assert.NoError(t, next.Stop(t.Context()))
}

// The process that served exits while its device is being removed, and the last data waits for it. The removal is
// abandoned, a successor gets the device, and nothing was lost.
func TestARemovalWhoseServerEndsIsAbandoned(t *testing.T) {
	onlyFUSE(t)
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	g := newGate(m)
	keeper := newKeeper(t, t.TempDir())
	f := frontend(keeper.Session(), 1)
	path, err := f.Start(t.Context(), "vol-1", size, g)
	require.NoError(t, err)
	want := pattern(3, 8192)
	require.NoError(t, os.WriteFile(path, want, 0))
	stopped := make(chan error)
	go func() { stopped <- f.Stop(t.Context()) }()
	<-g.arrived
	keeper.ServerEnded() // for the keeper, the server has exited
	close(g.open)        // the first write is served after all; the kernel would send it to a successor again
	assert.ErrorIs(t, <-stopped, ErrEnded, "the removal")
	f.server.Stop()
	<-f.server.Ended()
	next := successor(keeper, 2)
	_, err = next.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err)
	assert.NoError(t, next.Stop(t.Context()))
	got := make([]byte, len(want))
	err = m.ReadAt(t.Context(), got, 0)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, want), "the last data is lost")
}

// The engine has failed, and answers EIO. Then it is stopped by force while a user has the device open.
func TestAbortLeavesNothing(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	dir := t.TempDir()
	keeper := newKeeper(t, dir)
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, failing{memory.New(size)})
	require.NoError(t, err)
	loop := loopOf(t, path)
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT|unix.O_EXCL, 0)
	require.NoError(t, err)
	_, err = user.WriteAt(alignedPage(), 0)
	assert.ErrorIs(t, err, unix.EIO, "write to the device of a failed engine")
	require.ErrorIs(t, f.Stop(t.Context()), ErrInUse)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		require.NoError(t, f.Abort(ctx))
	}
	_, err = os.Lstat(path)
	assert.ErrorIs(t, err, os.ErrNotExist, "the node is left")
	_, err = user.WriteAt(alignedPage(), 0)
	assert.Error(t, err, "a write was acknowledged")
	_ = user.Close()
	expectNothingLeft(t, path, loop)
	again := frontend(keeper, 2) // the volume can have its device again
	_, err = again.Start(t.Context(), "vol-1", size, memory.New(size))
	require.NoError(t, err)
	assert.NoError(t, again.Stop(t.Context()))
}

// The kernel takes a long time for the requests on an aborted device. The caller does not repeat the call, and the
// volume can have a device when the kernel has finished.
func TestAnAbortThatTakesLongIsFinished(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	keeper := newKeeper(t, t.TempDir())
	f := frontend(keeper, 1)
	path, err := f.Start(t.Context(), "vol-1", size, memory.New(size))
	require.NoError(t, err)
	loop := loopOf(t, path)
	k := keeper.find("vol-1")
	k.op <- struct{}{} // like an operation that waits in the kernel
	assert.ErrorIs(t, f.Abort(t.Context()), ErrServed)
	<-k.op
	for late := time.Now().Add(10 * time.Second); keeper.find("vol-1") != nil; time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(late), "the device is kept still")
	}
	expectNothingLeft(t, path, loop)
}

// failing is the backend of an engine that has failed.
type failing struct{ nbd.Backend }

func (failing) WriteAt(context.Context, []byte, int64, bool) error { return unix.EIO }

// The numbers of descriptors decide in which order a dying process closes them.
func TestDescriptorsOfConnectionsAreAboveThoseOfLoopDevices(t *testing.T) {
	onlyFUSE(t)
	const size = 1 << 20
	blockDevice(t, size, memory.New(size))
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	loops, conns := 0, 0
	for _, link := range links {
		number := 0
		for _, c := range filepath.Base(link) {
			number = number*10 + int(c-'0')
		}
		switch target, _ := os.Readlink(link); {
		case target == "/dev/fuse":
			conns++
			assert.GreaterOrEqual(t, number, lowestConnFD, "a connection is number")
		case len(target) > 9 && target[:9] == "/dev/loop":
			loops++
			assert.GreaterOrEqual(t, number, lowestLoopFD, target)
			assert.Less(t, number, lowestConnFD)
		}
	}
	assert.Equal(t, 1, loops)
	assert.Equal(t, 2, conns)
	ok, err := fuse.CanResend()
	assert.NoError(t, err, "can requests be sent again: %t", ok)
}
