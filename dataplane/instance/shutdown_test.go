package instance

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

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// isClean reports whether a replica's metadata says that it was closed in order.
func (n *node) isClean(directory string) bool {
	n.t.Helper()
	meta, err := os.ReadFile(filepath.Join(n.root, directory, "replica.meta"))
	require.NoError(n.t, err)
	return bytes.Contains(meta, []byte(`"clean":true`))
}

// stranded returns a volume with a device on its first node and a lost second replica: every change waits for an epoch
// that is never recorded.
func stranded(t *testing.T) (home *node, device string) {
	t.Helper()
	needDevices(t)
	c := cluster{newNode(t, 1), newNode(t, 2)}
	for _, n := range c {
		n.createReplica()
	}
	s := c.engineSpec(1, nil)
	s.Frontend = proto.Frontend_FRONTEND_BLOCK
	c.startEngine(c[0], s)
	device = c[0].untilEngine(proto.Phase_PHASE_RUNNING).GetEndpoint()
	c[1].stop()
	c[0].until("a proposed epoch", func(s *proto.State) bool { return s.GetEngines()[0].GetProposedEpoch() != nil })
	return c[0], device
}

// writeLater starts to write a page to a device.
func writeLater(t *testing.T, device string, flags int) (user *os.File, wrote <-chan error) {
	t.Helper()
	user, err := os.OpenFile(device, os.O_RDWR|flags, 0)
	require.NoError(t, err)
	// An anonymous mapping is aligned.
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(page)) })
	written := make(chan error, 1)
	go func() {
		_, err := user.WriteAt(page, 0)
		written <- err
	}()
	return user, written
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s does not end", what)
	}
}

// A volume that cannot be stopped or flushed delays nothing else: the process stops, and other replicas are closed in
// order.
func TestAShutdownWaitsForNoEpoch(t *testing.T) {
	if testing.Short() {
		t.Skip("a shutdown that waits for its time limit takes seconds: not with -short")
	}
	for name, flags := range map[string]int{"its device is claimed": unix.O_EXCL, "its device is open": 0} {
		t.Run(name, func(t *testing.T) {
			home, device := stranded(t)
			other := home.replicaSpec()
			other.Name, other.Volume, other.Uid, other.Directory = "other-r-1", "other", "uid-other", "/disk/replicas/other-r-1"
			_, err := home.ReplicaCreate(t.Context(), other)
			require.NoError(t, err)
			_, err = home.ReplicaStart(t.Context(), other)
			require.NoError(t, err)
			c, err := nbd.Dial(t.Context(), "tcp", home.DataAddr().String(), "rw/other/other-r-1/1/one", nbd.DialOptions{Secret: secret})
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.False(t, home.isClean(other.GetDirectory()), "a replica that was admitted to counts as clean")
			user, wrote := writeLater(t, device, unix.O_DIRECT|flags)
			home.engines.stopTimeout, home.engines.flushTimeout = 100*time.Millisecond, 100*time.Millisecond
			left := home.engines.ofVolume(volume).engine
			// A failed test must leave no write in the kernel, because this process would have to answer it.
			t.Cleanup(left.Interrupt)

			ended := make(chan struct{})
			go func() {
				defer close(ended)
				home.stop()
			}()
			within(t, "the process", ended)
			assert.True(t, home.isClean(other.GetDirectory()), "the other replica was not closed in order")
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.NoError(t, left.StopForce(ctx)) // as the exit of the process would
			assert.Error(t, <-wrote, "the write was acknowledged")
			require.NoError(t, user.Close())
		})
	}
}

// The device's data cannot be written back, so a stop waits. A forced stop ends this wait.
func TestAForcedStopEndsAStopThatWaits(t *testing.T) {
	home, device := stranded(t)
	user, wrote := writeLater(t, device, 0) // to the page cache
	require.NoError(t, <-wrote)
	require.NoError(t, user.Close())
	loop := loopOf(t, device)
	engine := home.engines.ofVolume(volume)
	t.Cleanup(engine.engine.Interrupt)
	stop := func(force bool) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := home.EngineStop(context.Background(), &proto.EngineRef{Name: engine.spec.GetName(), Force: force})
			assert.NoError(t, err)
		}()
		return done
	}
	waiting := stop(false)
	home.untilEngine(proto.Phase_PHASE_STOPPING)
	home.awaitInside(engine)
	select {
	case <-waiting:
		t.Fatal("the stop did not wait for the device's data")
	default:
	}
	within(t, "the stop by force", stop(true))
	within(t, "the stop that waited", waiting)
	awaitGone(t, loop)
	assert.Nil(t, home.engines.find(engine.spec.GetName()), "the engine is left")
}

// awaitInside waits until the local replica has the data that the device wrote back: its region is marked.
func (n *node) awaitInside(e *hostedEngine) {
	n.t.Helper()
	late := time.Now().Add(patience)
	for !n.isMarked() {
		require.False(n.t, time.Now().After(late), "engine %s never got the device's data", e.spec.GetName())
		time.Sleep(5 * time.Millisecond)
	}
}

// isMarked reports whether the replica has marked any region. The map's first sector is its head; the second sector has
// the first 4,032 bits.
func (n *node) isMarked() bool {
	n.t.Helper()
	marks, err := os.ReadFile(filepath.Join(n.directory(), "intent.map"))
	require.NoError(n.t, err)
	return len(bytes.Trim(marks[512+8:1024], "\x00")) > 0
}

func TestTheTimesOfEnginesAreThoseOfTheOptions(t *testing.T) {
	n := newNode(t, 1)
	n.stop()
	n.quietPeriod = 10 * time.Millisecond
	n.start()
	n.createReplica()
	c := cluster{n}
	c.startEngine(n, c.engineSpec(1, nil))
	v, err := n.dialTool("engine/" + volume)
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, v.WriteAt(t.Context(), make([]byte, 4096), 0, false))
	if !n.isMarked() {
		assert.GreaterOrEqual(t, time.Since(began), n.quietPeriod, "a write left no mark")
	}
	for n.isMarked() {
		// the default would take 5 s
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
		time.Sleep(5 * time.Millisecond)
	}
	require.NoError(t, v.Close())
	n.stopEngine()
}
