package instance

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica"
)

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
	t.Cleanup(func() { f.thaw() }) // before the process ends
	return n, f
}

const otherUUID = "d15c0000-0000-4000-8000-000000000002"

// named is the spec of another replica of a disk.
func (n *node) named(name, disk, uuid string) *proto.ReplicaSpec {
	s := n.replicaSpec()
	s.Name, s.Uid, s.DiskPath, s.DiskUuid, s.Directory = name, "uid-"+name, disk, uuid, disk+"/replicas/"+name
	return s
}

// used makes a replica that must be synced when it is closed.
func (n *node) used(s *proto.ReplicaSpec) {
	n.t.Helper()
	_, err := n.ReplicaCreate(n.t.Context(), s)
	must(n.t, err)
	_, err = n.ReplicaStart(n.t.Context(), s)
	must(n.t, err)
	c, err := nbd.Dial(n.t.Context(), "tcp", n.DataAddr().String(), "rw/"+volume+"/"+s.GetName()+"/1/one", nbd.DialOptions{Secret: secret})
	must(n.t, err)
	must(n.t, c.Close())
}

// hangs are the operations that a disk can keep.
var hangs = []struct {
	name    string
	prepare func(n *node, s *proto.ReplicaSpec)
	do      func(ctx context.Context, n *node, s *proto.ReplicaSpec) error
}{
	{"make", func(*node, *proto.ReplicaSpec) {}, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaCreate(ctx, s)
		return err
	}},
	{"start", func(n *node, s *proto.ReplicaSpec) {
		_, err := n.ReplicaCreate(n.t.Context(), s)
		must(n.t, err)
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
		must(n.t, err)
	}, func(ctx context.Context, n *node, s *proto.ReplicaSpec) error {
		_, err := n.ReplicaRemove(ctx, s)
		return err
	}},
}

func TestADiskThatHangsIsRefusedAndHoldsUpNoOther(t *testing.T) {
	for _, tc := range hangs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, f := hangingNode(t, 5*time.Second)
			first, second := n.named("vol-r-1", "/disk", diskUUID), n.named("vol-r-2", "/disk", diskUUID)
			tc.prepare(n, first)
			tc.prepare(n, second)
			f.freeze("/disk")

			// As many as may be under way take their time, and then say so.
			answers := make(chan error, callsPerDisk)
			for _, s := range []*proto.ReplicaSpec{first, second} {
				go func() { answers <- tc.do(context.Background(), n, s) }()
			}
			for range callsPerDisk {
				if err := <-answers; reason(err) != reasonDiskNotResponding || !strings.Contains(err.Error(), "the disk /disk has not answered since ") {
					t.Errorf("%s on a disk that hangs: %v", tc.name, err)
				}
			}
			state := n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 })
			if d := state.GetDisks()[0]; d.GetPath() != "/disk" || d.GetReason() != reasonDiskNotResponding ||
				!strings.Contains(d.GetMessage(), "when it was asked to "+tc.name+" replica vol-r-") {
				t.Errorf("told of %v", d)
			}

			// Others of that disk are refused without asking it, those of another disk are served.
			for len(f.asked) > 0 {
				<-f.asked
			}
			for _, s := range []*proto.ReplicaSpec{first, n.named("vol-r-3", "/disk", diskUUID)} {
				if _, err := n.ReplicaStart(t.Context(), s); reason(err) != reasonDiskNotResponding {
					t.Errorf("start of %s: %v", s.GetName(), err)
				}
			}
			if len(f.asked) > 0 {
				t.Error("the disk was asked once more")
			}
			n.used(n.named("vol-r-4", "/other", otherUUID))

			f.thaw()
			n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
			for _, s := range []*proto.ReplicaSpec{first, second} { // again is success: it was done when the disk answered
				must(t, tc.do(t.Context(), n, s))
			}
		})
	}
}

func TestAToolThatReadsAHungDiskIsRefused(t *testing.T) {
	n, f := hangingNode(t, 5*time.Second)
	n.used(n.replicaSpec())
	must(t, n.stopReplica(0))
	f.freeze("/disk")
	if _, err := n.dialTool("ro/vol-r-1"); err == nil || !strings.Contains(err.Error(), "has not answered since") {
		t.Errorf("read a disk that hangs: %v", err)
	}
	n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 })
	f.thaw()
	n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
	for late := time.Now().Add(patience); n.isLocked(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("what was opened for the tool that has gone is open still")
		}
	}
	tool, err := n.dialTool("ro/vol-r-1")
	must(t, err)
	must(t, tool.Close())
}

// Whatever a disk keeps, the process ends.
func TestAShutdownWaitsForNoDisk(t *testing.T) {
	for _, tc := range hangs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, f := hangingNode(t, time.Hour) // nobody's patience ends but that of the shutdown
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
			if err := <-given; err == nil {
				t.Errorf("%s on a disk that hangs is said to be done", tc.name)
			}
			if !n.isClean(other.GetDirectory()) {
				t.Error("a replica on another disk was not closed in order")
			}
			f.thaw()
		})
	}
}

// A stop that is asked for while the start hangs must not be answered before the start has ended.
func TestAStopDoesNotOvertakeAStartThatHangs(t *testing.T) {
	n, f := hangingNode(t, 5*time.Second)
	_, err := n.ReplicaCreate(t.Context(), n.replicaSpec())
	must(t, err)
	f.freeze("/disk")
	if _, err := n.ReplicaStart(t.Context(), n.replicaSpec()); reason(err) != reasonDiskNotResponding {
		t.Errorf("start: %v", err)
	}
	if err := n.stopReplica(0); reason(err) != reasonDiskNotResponding {
		t.Errorf("stop of a replica whose start hangs: %v", err)
	}
	f.thaw()
	n.untilReplica(proto.Phase_PHASE_RUNNING, replica.Reason(""))
	must(t, n.stopReplica(0))
}

// No operation is under way that would tell.
func TestARequestThatHangsShowsOnItsReplicaAndDisk(t *testing.T) {
	n, f := hangingNode(t, 5*time.Second, func(i *Instance) { i.replicas.stuckEvery = 20 * time.Millisecond })
	n.createReplica()
	c, err := n.dialEngine("1/one")
	must(t, err)
	must(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, false))
	f.freeze("/disk")
	flushed := make(chan error, 1)
	go func() { flushed <- c.Flush(context.Background()) }()
	s := n.untilReplica(proto.Phase_PHASE_RUNNING, replica.DiskNotResponding)
	if !strings.HasPrefix(s.GetMessage(), "the disk /disk has not answered since ") {
		t.Errorf("message %q", s.GetMessage())
	}
	n.until("a disk that does not respond", func(s *proto.State) bool { return len(s.GetDisks()) == 1 && s.GetDisks()[0].GetPath() == "/disk" })
	f.thaw()
	must(t, <-flushed)
	n.untilReplica(proto.Phase_PHASE_RUNNING, replica.Reason(""))
	n.until("that all disks respond", func(s *proto.State) bool { return s != nil && len(s.GetDisks()) == 0 })
	must(t, c.Close())
}

// Where even the size of a file needs the disk, the other replicas of the node are told of still.
func TestTheWatchWaitsForNoDisk(t *testing.T) {
	n, f := hangingNode(t, 5*time.Second)
	n.used(n.replicaSpec())
	f.freezeAll("/disk")
	n.used(n.named("vol-r-4", "/other", otherUUID))
	n.until("both replicas", func(s *proto.State) bool { return len(s.GetReplicas()) == 2 })
	f.thaw()
}
