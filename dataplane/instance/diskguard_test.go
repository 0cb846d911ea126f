package instance

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func (n *node) diskDir() string { return filepath.Join(n.root, "disk") }

// hideDisk simulates an unmount, as far as a process without rights can. The disk moves elsewhere, and the directory
// below it becomes visible, and could be written to by mistake.
func (n *node) hideDisk() (restore func()) {
	n.t.Helper()
	away := filepath.Join(n.root, "away")
	require.NoError(n.t, os.MkdirAll(filepath.Join(away, "replicas"), 0o700))
	exchange(n.t, n.diskDir(), away)
	n.disks.lookAll() // a rename causes no event; a mount causes one
	return func() {
		n.t.Helper()
		require.NoError(n.t, os.RemoveAll(n.diskDir()))
		require.NoError(n.t, os.Rename(away, n.diskDir()))
		n.disks.lookAll()
	}
}

// exchange exchanges the names of two files or directories atomically.
func exchange(t testing.TB, a, b string) {
	t.Helper()
	require.NoError(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// beneath lists the files at the former place of the disk.
func (n *node) beneath() []string {
	n.t.Helper()
	var found []string
	require.NoError(n.t, filepath.WalkDir(n.diskDir(), func(path string, _ os.DirEntry, err error) error {
		found = append(found, strings.TrimPrefix(path, n.diskDir()))
		return err
	}))
	return found
}

func (n *node) untilReplica(phase proto.Phase, reason replica.Reason) *proto.ReplicaState {
	n.t.Helper()
	s := n.until("a replica in "+phase.String()+" with reason "+string(reason), func(s *proto.State) bool {
		r := n.replicaState(s)
		return r != nil && r.GetPhase() == phase && r.GetReason() == string(reason)
	})
	return n.replicaState(s)
}

// openFiles lists the files below a directory that the process has open.
func openFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var open []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && (to == dir || strings.HasPrefix(to, dir+"/")) {
			open = append(open, to)
		}
	}
	return open
}

// untilClosed waits until an evicted replica is closed.
func (n *node) untilClosed() {
	n.t.Helper()
	n.until("a closed replica", func(*proto.State) bool {
		e := n.replicas.find(n.replicaName())
		return e != nil && e.replica == nil
	})
}

func (n *node) dialEngine(generation string) (*nbd.Client, error) {
	return nbd.Dial(n.t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/"+generation, nbd.DialOptions{Secret: secret})
}

func TestAReplicaWhoseDiskGoesAwayFailsAtOnceAndIsUsedAgainWhenItIsBack(t *testing.T) {
	ctx := t.Context()
	n := newNode(t, 1)
	n.createReplica()
	c, err := n.dialEngine("1/one")
	require.NoError(t, err)
	want := fill(t, c, 5)

	restore := n.hideDisk()
	state := n.untilReplica(proto.Phase_PHASE_ERROR, replica.DiskUnmounted)
	assert.True(t, strings.HasPrefix(state.GetMessage(), "its disk /disk was unmounted: the path leads to a directory without a UUID file, on device "), "message %q", state.GetMessage())
	<-c.Done()
	assert.Error(t, c.WriteAt(ctx, make([]byte, 512), 0, false), "a write was acknowledged by a replica without a disk")
	_ = c.Close()
	n.untilClosed()
	assert.Empty(t, openFiles(t, filepath.Join(n.root, "away")), "the disk is held still")

	// Nothing restores it while the disk is away, and nothing is created in its place.
	for range 2 {
		s, err := n.ReplicaStart(ctx, n.replicaSpec())
		require.NoError(t, err)
		assert.Equal(t, proto.Phase_PHASE_ERROR, s.GetPhase(), "started without its disk: %v", s)
		assert.Equal(t, string(replica.DiskMissing), s.GetReason())
		_, err = n.ReplicaCreate(ctx, n.replicaSpec())
		assert.Equal(t, string(replica.DiskMissing), reason(err), "created without its disk: %v", err)
	}
	require.NoError(t, n.stopReplica(0))
	_, err = n.ReplicaRemove(ctx, n.replicaSpec())
	assert.Equal(t, string(replica.DiskMissing), reason(err), "removed without its disk: %v", err)
	assert.Len(t, n.beneath(), 2)

	restore()
	n.startReplica()
	assert.Equal(t, want, n.replicaHash())
	c, err = n.dialEngine("2/two")
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(ctx, make([]byte, 512), 0, true))
	require.NoError(t, c.Close())
}

// The watch shows the space that data takes on its disk, even if nothing else changes.
func TestTheSpaceThatAReplicaTakesIsTold(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	c, err := n.dialEngine("1/one")
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 3*mib), 0, false))
	require.NoError(t, c.Flush(t.Context()))
	n.until("a replica of three mebibytes", func(s *proto.State) bool {
		r := n.replicaState(s)
		return r != nil && r.GetAllocatedBytes() >= 3*mib
	})
}

func TestADiskThatIsReplacedFailsItsReplica(t *testing.T) {
	const other = "d15c0000-0000-4000-8000-00000000000f"
	for _, tc := range []struct {
		name    string
		replace func(t *testing.T, n *node)
	}{
		{"another disk is there", func(t *testing.T, n *node) {
			makeDisk(t, filepath.Join(n.root, "away"), other)
			exchange(t, n.diskDir(), filepath.Join(n.root, "away"))
		}},
		{"a copy with the same UUID is there", func(t *testing.T, n *node) {
			makeDisk(t, filepath.Join(n.root, "away"), diskUUID)
			exchange(t, n.diskDir(), filepath.Join(n.root, "away"))
		}},
		{"the UUID file names another disk", func(t *testing.T, n *node) { makeDisk(t, n.diskDir(), other) }},
		{"its replicas were moved aside", func(t *testing.T, n *node) {
			require.NoError(t, os.Mkdir(filepath.Join(n.diskDir(), "old"), 0o700))
			exchange(t, filepath.Join(n.diskDir(), "replicas"), filepath.Join(n.diskDir(), "old"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, 1)
			n.createReplica()
			c, err := n.dialEngine("1/one")
			require.NoError(t, err)
			tc.replace(t, n)
			n.disks.lookAll()
			n.untilReplica(proto.Phase_PHASE_ERROR, replica.DiskReplaced)
			<-c.Done()
			_ = c.Close()
		})
	}
}

// A change that is not a mount causes no event.
func TestADiskThatGoesAwayWithoutAnEventIsNoticed(t *testing.T) {
	n := newNode(t, 1)
	n.disks.mu.Lock()
	n.disks.every = 10 * time.Millisecond
	n.disks.mu.Unlock()
	n.createReplica()
	require.NoError(t, os.Rename(n.diskDir(), filepath.Join(n.root, "away")))
	n.untilReplica(proto.Phase_PHASE_ERROR, replica.DiskUnmounted)
}

// deletions are ways to delete an open replica's data.
var deletions = []struct {
	name   string
	delete func(t *testing.T, n *node)
}{
	{"its directory", func(t *testing.T, n *node) { require.NoError(t, os.RemoveAll(n.directory())) }},
	{"its data", func(t *testing.T, n *node) { require.NoError(t, os.Remove(filepath.Join(n.directory(), "data.img"))) }},
	{"its metadata", func(t *testing.T, n *node) {
		require.NoError(t, os.Remove(filepath.Join(n.directory(), "replica.meta")))
	}},
	{"its intent map, by another", func(t *testing.T, n *node) {
		other := filepath.Join(n.directory(), "other")
		require.NoError(t, os.WriteFile(other, nil, 0o600))
		require.NoError(t, os.Rename(other, filepath.Join(n.directory(), "intent.map")))
	}},
	{"its directory is moved away", func(t *testing.T, n *node) {
		require.NoError(t, os.Rename(n.directory(), filepath.Join(n.root, "away")))
	}},
	{"the directory of all replicas", func(t *testing.T, n *node) {
		require.NoError(t, os.RemoveAll(filepath.Join(n.diskDir(), "replicas")))
	}},
	{"all that is on the disk", func(t *testing.T, n *node) {
		require.NoError(t, os.RemoveAll(filepath.Join(n.diskDir(), "replicas")))
		require.NoError(t, os.Remove(filepath.Join(n.diskDir(), "longhorn-disk.cfg")))
	}},
}

func TestAReplicaWhoseDataIsDeletedFailsAtOnce(t *testing.T) {
	for _, by := range []string{"events", "the clock"} {
		for _, tc := range deletions {
			t.Run(by+" tell: "+tc.name, func(t *testing.T) {
				t.Parallel()
				n := nodeWith(t, 1, newRoot(t), func(i *Instance) {
					i.disks.every = time.Hour
					if by == "the clock" {
						i.disks.every, i.disks.fs = 10*time.Millisecond, newFreezer(i.disks.fs) // its directories cannot be watched
					}
				})
				n.createReplica()
				c, err := n.dialEngine("1/one")
				require.NoError(t, err)
				tc.delete(t, n)
				state := n.untilReplica(proto.Phase_PHASE_ERROR, replica.DataDeleted)
				assert.True(t, strings.HasPrefix(state.GetMessage(), "its data on disk /disk was deleted: "), "message %q", state.GetMessage())
				<-c.Done()
				_ = c.Close()
				n.untilClosed()
				open := openFiles(t, n.root)
				assert.False(t, slices.ContainsFunc(open, func(path string) bool { return strings.Contains(path, "data.img") }), "what was deleted is held still: %q", open)
				// Nothing is created in its place.
				s, err := n.ReplicaStart(t.Context(), n.replicaSpec())
				require.NoError(t, err)
				assert.Equal(t, proto.Phase_PHASE_ERROR, s.GetPhase(), "started without its data: %v", s)
			})
		}
	}
}

// The deletion of a replica does not affect other replicas on its disk. The process's own actions affect no replica.
func TestOtherReplicasOfTheDiskGoOn(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	other := n.named("vol-r-9", "/disk", diskUUID)
	n.used(other)
	_, err := n.ReplicaCreate(t.Context(), n.named("vol-r-8", "/disk", diskUUID))
	require.NoError(t, err)
	_, err = n.ReplicaRemove(t.Context(), n.named("vol-r-8", "/disk", diskUUID))
	require.NoError(t, err)
	for _, generation := range []string{"2/two", "3/three"} { // each admission replaces the metadata
		c, err := n.dialEngine(generation)
		require.NoError(t, err)
		require.NoError(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, false))
		require.NoError(t, c.Close())
	}
	require.NoError(t, os.RemoveAll(filepath.Join(n.root, other.GetDirectory())))
	n.until("the deleted replica failed", func(s *proto.State) bool {
		for _, r := range s.GetReplicas() {
			if r.GetName() == other.GetName() {
				return r.GetReason() == string(replica.DataDeleted)
			}
		}
		return false
	})
	c, err := n.dialEngine("4/four")
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, true))
	require.NoError(t, c.Close())
	require.NoError(t, n.stopReplica(0))
	n.startReplica()
}

func TestAnEngineExpelsTheReplicaWhoseDiskWentAway(t *testing.T) {
	c := newCluster(t)
	c.startEngine(c[0], c.engineSpec(1, nil))
	for _, n := range c[:2] { // the local replica by direct call, another one over the network
		tool, err := c[0].dialTool("engine/" + volume)
		require.NoError(t, err)
		n.hideDisk()
		written := make(chan error, 1)
		go func() { written <- tool.WriteAt(t.Context(), make([]byte, 4096), 0, false) }()
		got := c[0].until("an epoch without the replica", func(s *proto.State) bool {
			e := s.GetEngines()[0]
			return e.GetProposedEpoch() != nil && !slices.Contains(e.GetProposedEpoch().GetMembers(), n.replicaName())
		})
		e := got.GetEngines()[0]
		_, err = c[0].EngineRecordEpoch(t.Context(), &proto.EpochRecord{Name: e.GetName(), Session: e.GetSession(), Epoch: e.GetProposedEpoch()})
		require.NoError(t, err)
		require.NoError(t, <-written)
		require.NoError(t, tool.Close())
		c[0].until("the replica expelled", func(s *proto.State) bool { return n.member(s).GetMode() == "ERR" })
	}
	c[0].stopEngine()
}

func TestToolsThatReadAStoppedReplicaAreCutWhenItsDiskGoesAway(t *testing.T) {
	n, want := parkedNode(t)
	tool, err := n.dialTool("ro/vol-r-1")
	require.NoError(t, err)
	restore := n.hideDisk()
	<-tool.Done()
	_ = tool.Close()
	_, err = n.dialTool("ro/vol-r-1")
	assert.ErrorContains(t, err, "DiskMissing", "read without its disk")
	err = n.stopReplica(7)
	assert.Equal(t, string(replica.DiskMissing), reason(err), "fenced without its disk: %v", err)
	assert.Empty(t, openFiles(t, filepath.Join(n.root, "away")), "the disk is held still")
	restore()
	assert.Equal(t, want, n.replicaHash())
}

func TestReplicasOfOneDiskShareWhatIsHeldOfIt(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	second := n.replicaSpec()
	second.Name, second.Uid, second.Directory = "vol-r-9", "uid-9", "/disk/replicas/vol-r-9"
	_, err := n.ReplicaCreate(t.Context(), second)
	require.NoError(t, err)
	_, err = n.ReplicaStart(t.Context(), second)
	require.NoError(t, err)
	count := func(path string) (found int) {
		for _, open := range openFiles(t, n.diskDir()) {
			if open == path {
				found++
			}
		}
		return found
	}
	// A check of the disk also opens it for a moment.
	isHeldOnce := func() bool { return count(n.diskDir()) == 1 }
	assert.Eventually(t, isHeldOnce, patience, time.Millisecond, "the disk is held more than once")
	require.NoError(t, n.stopReplica(0))
	assert.Eventually(t, isHeldOnce, patience, time.Millisecond, "the disk is held more than once with one replica left")
	_, err = n.ReplicaStop(t.Context(), &proto.ReplicaRef{Name: "vol-r-9"})
	require.NoError(t, err)
	assert.Empty(t, openFiles(t, n.diskDir()), "held with no replica left")
}

// hangingFS does not answer for one path, like a network file system after its server is gone.
type hangingFS struct {
	fsys.FS
	mu      sync.Mutex
	path    string        // guarded by mu
	asked   chan struct{} // has an entry for each call that hangs
	release chan struct{}
}

func (h *hangingFS) hang(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.path = path
}

func (h *hangingFS) OpenDir(path string) (fsys.Dir, error) {
	h.mu.Lock()
	hangs := path == h.path
	h.mu.Unlock()
	if hangs {
		h.asked <- struct{}{}
		<-h.release
	}
	return h.FS.OpenDir(path)
}

func TestADiskThatHangsHoldsUpNoOther(t *testing.T) {
	root := t.TempDir()
	h := &hangingFS{FS: fsys.Host{Root: root}, asked: make(chan struct{}, 8), release: make(chan struct{})}
	log, _ := logtest.NewNullLogger()
	g := newDiskGuard(h, logrus.NewEntry(log))
	evicted := make(chan string, 2)
	opened := map[string]*tenancy{}
	for _, name := range []string{"slow", "fast"} {
		makeDisk(t, filepath.Join(root, name), diskUUID)
		s := &proto.ReplicaSpec{Name: name, Volume: "vol", Uid: "u", SizeBytes: mib, Directory: "/" + name + "/replicas/r", DiskPath: "/" + name, DiskUuid: diskUUID}
		require.NoError(t, g.onDisk(s, func(d *replica.Disk) error { return d.Create(s.GetDirectory(), specOf(s)) }))
		var err error
		opened[name], err = g.open(s, replica.Options{}, func(gone *tenancy, _ *replica.DiskLostError) { evicted <- gone.replica.Name() })
		require.NoError(t, err)
	}
	h.hang("/slow")
	g.lookAll()
	<-h.asked
	for range 3 {
		g.lookAll()
	}
	require.NoError(t, os.Rename(filepath.Join(root, "fast"), filepath.Join(root, "away")))
	g.lookAll()
	assert.Equal(t, "fast", <-evicted)
	assert.Empty(t, h.asked, "asked again while a look hangs")
	assert.NoError(t, opened["slow"].replica.State().Failure, "a disk that does not answer was given up")
	close(h.release)
	for _, o := range opened {
		require.NoError(t, o.replica.Close(context.Background()))
		o.release()
	}
	g.await(time.Minute)
	lost := opened["fast"].replica.State().Failure
	assert.ErrorAs(t, lost, new(*replica.DiskLostError))
}

// stickyFS has a directory with a close that hangs if the directory was opened before stuck is set.
type stickyFS struct {
	fsys.FS
	path          string
	waiting, free chan struct{}

	mu    sync.Mutex
	open  map[*stickyDir]bool // guarded by mu
	stuck bool                // guarded by mu
}

type stickyDir struct {
	fsys.Dir
	fs *stickyFS
}

func (f *stickyFS) OpenDir(path string) (fsys.Dir, error) {
	d, err := f.FS.OpenDir(path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || path != f.path || f.stuck {
		return d, err
	}
	sticky := &stickyDir{d, f}
	f.open[sticky] = true
	return sticky, nil
}

func (d *stickyDir) Close() error {
	d.fs.mu.Lock()
	delete(d.fs.open, d)
	stuck := d.fs.stuck
	d.fs.mu.Unlock()
	if stuck {
		d.fs.waiting <- struct{}{}
		<-d.fs.free
	}
	return d.Dir.Close()
}

// stick reports whether the directory is open once; then its close will hang.
func (f *stickyFS) stick() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = len(f.open) == 1
	return f.stuck
}

// A disk's directory cannot be closed. Only the call that closes it waits for that: replicas of other disks can be
// opened and closed.
func TestADirectoryThatIsNotClosedHoldsUpNoOtherDisk(t *testing.T) {
	f := &stickyFS{path: "/disk", waiting: make(chan struct{}), free: make(chan struct{}), open: map[*stickyDir]bool{}}
	root := newRoot(t)
	makeDisk(t, filepath.Join(root, "other"), otherUUID)
	n := nodeWith(t, 1, root, func(i *Instance) {
		f.FS = i.disks.fs
		i.disks.fs = f
	})
	n.createReplica()
	other := n.named("vol-r-2", "/other", otherUUID)
	_, err := n.ReplicaCreate(t.Context(), other)
	require.NoError(t, err)
	for !f.stick() { // a check of the disk may also have it open
		time.Sleep(time.Millisecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- n.stopReplica(0) }()
	<-f.waiting
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = n.ReplicaStart(ctx, other)
	if err == nil {
		_, err = n.ReplicaStop(ctx, &proto.ReplicaRef{Name: other.GetName()})
	}
	assert.NoError(t, err, "a replica of another disk")
	select {
	case err := <-stopped:
		t.Errorf("the stop did not wait: %v", err)
	default:
	}
	close(f.free)
	require.NoError(t, <-stopped)
}
