package instance

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// notShort skips a test with -short: the time limit of a disk that hangs takes seconds.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("the time limit of a disk that hangs takes seconds: not with -short")
	}
}

// hangingNode has the disks /disk, which can be frozen, and /other.
func hangingNode(t *testing.T, patience time.Duration, changes ...func(*Instance)) (*node, *freezer) {
	t.Helper()
	root := newRoot(t)
	makeDisk(t, filepath.Join(root, "other"), otherUUID)
	var f *freezer
	n := nodeWith(t, 1, root, func(i *Instance) {
		f = newFreezer(i.disks.fs)
		i.disks.fs = f
		i.replicas.calls.patience, i.replicas.calls.wait, i.replicas.closeTimeout = patience, patience, patience
		for _, change := range changes {
			change(i)
		}
	})
	t.Cleanup(func() { f.thaw() }) // before the process stops
	return n, f
}

const otherUUID = "d15c0000-0000-4000-8000-000000000002"

// named returns the spec of another replica on a disk.
func (n *node) named(name, disk, uuid string) *proto.ReplicaSpec {
	s := n.replicaSpec()
	s.Name, s.Uid, s.DiskPath, s.DiskUuid, s.Directory = name, "uid-"+name, disk, uuid, disk+"/replicas/"+name
	return s
}

// used creates a replica that must be synced when it is closed.
func (n *node) used(s *proto.ReplicaSpec) {
	n.t.Helper()
	_, err := n.ReplicaCreate(n.t.Context(), s)
	require.NoError(n.t, err)
	_, err = n.ReplicaStart(n.t.Context(), s)
	require.NoError(n.t, err)
	c, err := nbd.Dial(n.t.Context(), "tcp", n.DataAddr().String(), "rw/"+volume+"/"+s.GetName()+"/1/one", nbd.DialOptions{Secret: secret})
	require.NoError(n.t, err)
	require.NoError(n.t, c.Close())
}

// hangs are the operations that a disk can hold.
var hangs = []struct {
	name    string
	prepare func(n *node, s *proto.ReplicaSpec)
	do      func(ctx context.Context, n *node, s *proto.ReplicaSpec) error
}{
	{"create", func(*node, *proto.ReplicaSpec) {}, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaCreate(ctx, s)
		return err
	}},
	{"start", func(n *node, s *proto.ReplicaSpec) {
		_, err := n.ReplicaCreate(n.t.Context(), s)
		require.NoError(n.t, err)
	}, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaStart(ctx, s)
		return err
	}},
	{"stop", (*node).used, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaStop(ctx, &proto.ReplicaRef{Name: s.GetName()})
		return err
	}},
	{"remove", func(n *node, s *proto.ReplicaSpec) {
		_, err := n.ReplicaCreate(n.t.Context(), s)
		require.NoError(n.t, err)
	}, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaRemove(ctx, s)
		return err
	}},
}

func TestADiskThatHangsIsRefusedAndHoldsUpNoOther(t *testing.T) {
	notShort(t)
	for _, tc := range hangs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, f := hangingNode(t, 5*time.Second)
			first, second := n.named("vol-r-1", "/disk", diskUUID), n.named("vol-r-2", "/disk", diskUUID)
			tc.prepare(n, first)
			tc.prepare(n, second)
			f.freeze("/disk")

			// The largest possible number of operations is under way. Each hangs, and its caller learns this.
			answers := make(chan error, callsPerDisk)
			for _, s := range []*proto.ReplicaSpec{first, second} {
				go func() { answers <- tc.do(context.Background(), n, s) }()
			}
			for range callsPerDisk {
				err := <-answers
				assert.Equal(t, reasonDiskNotResponding, reason(err), "%s on a disk that hangs", tc.name)
				assert.ErrorContains(t, err, "the disk /disk has not answered since ", "%s on a disk that hangs", tc.name)
			}
			state := n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 })
			d := state.GetDisks()[0]
			assert.Equal(t, "/disk", d.GetPath(), "told of %v", d)
			assert.Equal(t, reasonDiskNotResponding, d.GetReason())
			assert.Contains(t, d.GetMessage(), "when the instance manager started to "+tc.name+" replica vol-r-")

			// Other operations on that disk are refused without a call to the disk. Operations on another disk are
			// served.
			for len(f.asked) > 0 {
				<-f.asked
			}
			for _, s := range []*proto.ReplicaSpec{first, n.named("vol-r-3", "/disk", diskUUID)} {
				_, err := n.ReplicaStart(t.Context(), s)
				assert.Equal(t, reasonDiskNotResponding, reason(err), "start of %s: %v", s.GetName(), err)
			}
			assert.Empty(t, f.asked, "the disk was asked once more")
			n.used(n.named("vol-r-4", "/other", otherUUID))

			f.thaw()
			n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
			// Repeating it is a success: it was done when the disk answered.
			for _, s := range []*proto.ReplicaSpec{first, second} {
				require.NoError(t, tc.do(t.Context(), n, s))
			}
		})
	}
}

func TestAToolThatReadsAHungDiskIsRefused(t *testing.T) {
	notShort(t)
	n, f := hangingNode(t, 5*time.Second)
	n.used(n.replicaSpec())
	require.NoError(t, n.stopReplica(0))
	f.freeze("/disk")
	_, err := n.dialTool("ro/vol-r-1")
	assert.ErrorContains(t, err, "has not answered since", "read a disk that hangs")
	n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 })
	f.thaw()
	n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
	for late := time.Now().Add(patience); n.isLocked(); time.Sleep(5 * time.Millisecond) {
		require.False(t, time.Now().After(late), "what was opened for the tool that has gone is open still")
	}
	tool, err := n.dialTool("ro/vol-r-1")
	require.NoError(t, err)
	require.NoError(t, tool.Close())
}

// The process stops, whatever operation a disk holds.
func TestAShutdownWaitsForNoDisk(t *testing.T) {
	notShort(t)
	for _, tc := range hangs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, f := hangingNode(t, time.Hour) // only the shutdown's time limit passes
			n.replicas.closeTimeout = 3 * time.Second
			kept, open := n.named("vol-r-1", "/disk", diskUUID), n.named("vol-r-2", "/disk", diskUUID)
			tc.prepare(n, kept)
			n.used(open)
			other := n.named("vol-r-3", "/other", otherUUID)
			n.used(other)
			f.freeze("/disk")
			given := make(chan error, 1)
			go func() { given <- tc.do(context.Background(), n, kept) }()
			<-f.asked
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				n.stop()
			}()
			within(t, "the process", ended)
			assert.Error(t, <-given, "%s on a disk that hangs is said to be done", tc.name)
			assert.True(t, n.isClean(other.GetDirectory()), "a replica on another disk was not closed in order")
			f.thaw()
		})
	}
}

// A stop that is requested while the start hangs must not be answered before the start has ended.
func TestAStopDoesNotOvertakeAStartThatHangs(t *testing.T) {
	notShort(t)
	n, f := hangingNode(t, 5*time.Second)
	_, err := n.ReplicaCreate(t.Context(), n.replicaSpec())
	require.NoError(t, err)
	f.freeze("/disk")
	_, err = n.ReplicaStart(t.Context(), n.replicaSpec())
	assert.Equal(t, reasonDiskNotResponding, reason(err), err)
	err = n.stopReplica(0)
	assert.Equal(t, reasonDiskNotResponding, reason(err), "stop of a replica whose start hangs: %v", err)
	f.thaw()
	n.untilReplica(proto.Phase_PHASE_RUNNING, replica.Reason(""))
	// The state is reported a moment before the disk counts as a disk that responds.
	require.Eventually(t, func() bool { return n.stopReplica(0) == nil }, time.Minute, time.Millisecond)
}

// No operation is under way that would show the hang.
func TestARequestThatHangsShowsOnItsReplicaAndDisk(t *testing.T) {
	notShort(t)
	n, f := hangingNode(t, 5*time.Second, func(i *Instance) { i.replicas.stuckEvery = 20 * time.Millisecond })
	n.createReplica()
	c, err := n.dialEngine("1/one")
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, false))
	f.freeze("/disk")
	flushed := make(chan error, 1)
	go func() { flushed <- c.Flush(context.Background()) }()
	s := n.untilReplica(proto.Phase_PHASE_RUNNING, replica.DiskNotResponding)
	assert.True(t, strings.HasPrefix(s.GetMessage(), "the disk /disk has not answered since "), "message %q", s.GetMessage())
	n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 && s.GetDisks()[0].GetPath() == "/disk" })
	f.thaw()
	require.NoError(t, <-flushed)
	n.untilReplica(proto.Phase_PHASE_RUNNING, replica.Reason(""))
	n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
	require.NoError(t, c.Close())
}

// If even the size of a file needs the disk, the watch still shows the other replicas of the node.
func TestTheWatchWaitsForNoDisk(t *testing.T) {
	n, f := hangingNode(t, 5*time.Second)
	n.used(n.replicaSpec())
	f.freezeAll("/disk")
	n.used(n.named("vol-r-4", "/other", otherUUID))
	n.until("both replicas", func(s *proto.State) bool { return len(s.GetReplicas()) == 2 })
	f.thaw()
}

// A disk answers for one replica and not for another. Then no rebuild starts on it, whichever way the engine reaches
// the replica. The data of the replica keeps its value.
func TestNoRebuildBeginsOnADiskThatDoesNotRespond(t *testing.T) {
	n, f := hangingNode(t, 500*time.Millisecond)
	n.createReplica()
	neighbour := n.named("vol-r-2", "/disk", diskUUID)
	_, err := n.ReplicaCreate(t.Context(), neighbour)
	require.NoError(t, err)
	f.freeze("/disk/replicas/vol-r-2")
	_, err = n.ReplicaStart(t.Context(), neighbour)
	require.Equal(t, reasonDiskNotResponding, reason(err), err)
	spec := &proto.EngineSpec{Volume: volume, Secret: secret, Generation: 1, Session: "one"}
	local := func() (engine.Replica, error) {
		return n.engines.connect(t.Context(), spec, engine.Member{Name: n.replicaName(), Local: true})
	}
	remote := func() (engine.Replica, error) { return n.dialEngine("1/one") }
	begin := func(connect func() (engine.Replica, error)) error {
		r, err := connect()
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		_, err = r.Control(t.Context(), membership.OpBeginRebuild, nil)
		return err
	}
	isRebuilding := func() bool {
		r, err := local()
		require.NoError(t, err)
		defer func() { require.NoError(t, r.Close()) }()
		answer, err := r.Control(t.Context(), membership.OpState, nil)
		require.NoError(t, err)
		var s membership.State
		require.NoError(t, json.Unmarshal(answer, &s))
		return s.Rebuilding
	}
	for name, connect := range map[string]func() (engine.Replica, error){"by direct call": local, "over the network": remote} {
		assert.ErrorContains(t, begin(connect), "DiskNotResponding: the disk /disk has not answered since ", "a rebuild %s", name)
	}
	assert.False(t, isRebuilding(), "the replica is marked as being rebuilt")
	f.thaw()
	n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
	for _, connect := range []func() (engine.Replica, error){local, remote} {
		require.NoError(t, begin(connect))
	}
	assert.True(t, isRebuilding(), "the rebuild did not begin when the disk responded")
}

// A disk with the largest possible number of operations gets no further operation, even if none of them is late yet.
func TestADiskIsAskedByFewAtATime(t *testing.T) {
	c := newDiskCalls(func() {})
	var leave []func()
	for _, name := range []string{"vol-r-1", "vol-r-2"} {
		_, l, err := c.enter(t.Context(), "/disk", name, "start")
		require.NoError(t, err)
		leave = append(leave, l)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // select chooses at random between a free place and a context that has ended
		_, _, err := c.enter(ended, "/disk", "vol-r-3", "start")
		require.ErrorIs(t, err, context.Canceled)
	}
	_, other, err := c.enter(t.Context(), "/other", "vol-r-4", "start")
	require.NoError(t, err)
	other()
	leave[0]()
	_, l, err := c.enter(t.Context(), "/disk/", "vol-r-3", "start")
	require.NoError(t, err)
	l()
	leave[1]()
	assert.Empty(t, c.disks)
}

func TestAnOperationThatMakesProgressIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newDiskCalls(func() {})
		_, end := c.begin("/disk", c.use("/disk"), "r", "start")
		for range 10 {
			time.Sleep(diskPatience - time.Second)
			c.progressed("r")
			c.progressed("another")
		}
		assert.NoError(t, c.refusal("/disk", "r"), "it runs for a long time, but makes progress")
		time.Sleep(diskPatience)
		synctest.Wait()
		assert.Error(t, c.refusal("/disk", "r"), "it makes no progress")
		c.progressed("r")
		assert.Error(t, c.refusal("/disk", "r"), "its caller has left")
		end()
		assert.NoError(t, c.refusal("/disk", "r"))

		_, end = c.begin("/disk", c.use("/disk"), "r", "start")
		time.Sleep(diskPatience / 2)
		c.progressed("another")
		time.Sleep(diskPatience / 2)
		synctest.Wait()
		assert.Error(t, c.refusal("/disk", "r"), "another replica went on")
		end()
	})
}
