package instance

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

// A device that was pulled out may have lost what was not synced, and nobody is told. Whatever comes between the loss and the next
// start, the replica is not taken for one that has kept everything, until what may be missing was made good.
func TestAReplicaThatLostItsDiskIsNotTrustedToHaveKeptEverything(t *testing.T) {
	start := func(n *node) {
		_, err := n.ReplicaStart(n.t.Context(), n.replicaSpec())
		must(n.t, err)
	}
	stop := func(n *node) { must(n.t, n.stopReplica(0)) }
	for _, tc := range []struct {
		name string
		away func(n *node) // is done while the disk is away
		back func(n *node) // is done when it is back
	}{
		{"nothing", func(*node) {}, func(*node) {}},
		{"a start that is refused", start, func(*node) {}},
		{"a stop", stop, func(*node) {}},
		{"both", func(n *node) { start(n); stop(n) }, func(*node) {}},
		{"a start and a stop without an engine", func(*node) {}, func(n *node) { start(n); stop(n) }},
		{"a start, an engine and a stop", func(*node) {}, func(n *node) {
			start(n)
			n.admitsTrusted(2, false)
			stop(n)
		}},
		{"a fence", func(*node) {}, func(n *node) {
			start(n)
			stop(n)
			must(n.t, n.stopReplica(2))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, 1)
			n.createReplica()
			c, err := n.dialEngine("1/one")
			must(t, err)
			must(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, false))
			restore := n.hideDisk()
			n.untilReplica(proto.Phase_PHASE_ERROR, replica.DiskUnmounted)
			<-c.Done()
			_ = c.Close()
			n.untilClosed()
			tc.away(n)
			restore()
			tc.back(n)
			n.startReplica()
			n.admitsTrusted(3, false, 0)
			stop(n)
			n.startReplica()
			n.admitsTrusted(4, true)
		})
	}
}

// admitsTrusted lets an engine in and expects that it hears of the cache what is wanted. If it clears marks, it leaves another.
func (n *node) admitsTrusted(generation int64, want bool, cleared ...int64) {
	n.t.Helper()
	session, err := n.replicas.find(n.replicaName()).replica.Admit(n.t.Context(), generation, "session")
	must(n.t, err)
	defer func() { must(n.t, session.Close()) }()
	answer, err := session.Control(n.t.Context(), membership.OpState, nil)
	must(n.t, err)
	var state membership.State
	must(n.t, json.Unmarshal(answer, &state))
	if state.CacheKept != want {
		n.t.Errorf("an engine of generation %d hears that the cache was kept: %t", generation, state.CacheKept)
	}
	if len(cleared) > 0 {
		regions, err := json.Marshal(membership.Regions{Indexes: cleared})
		must(n.t, err)
		_, err = session.Control(n.t.Context(), membership.OpClearIntents, regions)
		must(n.t, err)
		must(n.t, session.WriteAt(n.t.Context(), make([]byte, 512), 8*mib, false))
	}
}

// The disk takes nothing any more, not even the record that writes were lost; when it works again the process knows still.
func TestAReplicaThatCouldNotRecordItsLossesIsNotTrusted(t *testing.T) {
	ctx := t.Context()
	disks := memfs.New()
	disks.MkdirAll("/disk/replicas")
	text, err := disk.EncodeConfig(disk.NewConfig("disk", diskUUID))
	must(t, err)
	dir, err := disks.OpenDir("/disk")
	must(t, err)
	file, err := dir.OpenFile(disk.ConfigFileName, fsys.CreateNew)
	must(t, err)
	must(t, file.WriteAt(text, 0))
	log, _ := logtest.NewNullLogger()
	g := newDiskGuard(disks, logrus.NewEntry(log))
	h := newReplicaHost(g, "boot", newChanges(), logrus.NewEntry(log))
	spec := (&node{number: 1}).replicaSpec()
	_, err = h.create(t.Context(), spec)
	must(t, err)
	kept := func(generation int64) bool {
		t.Helper()
		_, err := h.start(ctx, spec)
		must(t, err)
		open := h.find(spec.GetName()).replica
		session, err := open.Admit(ctx, generation, "session")
		must(t, err)
		_ = session.WriteAt(ctx, make([]byte, 512), 0, true)
		must(t, session.Close())
		return open.State().CacheKept
	}
	if !kept(1) {
		t.Error("a replica that has failed in nothing is not trusted")
	}
	disks.Before(func(memfs.Op) error { return syscall.EIO })
	session, err := h.find(spec.GetName()).replica.Admit(ctx, 1, "session")
	must(t, err)
	if err := session.WriteAt(ctx, make([]byte, 512), 0, true); err == nil {
		t.Error("a write was acknowledged by a disk that takes none")
	}
	must(t, session.Close())
	must(t, h.close(ctx, h.find(spec.GetName())))
	disks.Before(nil)
	if kept(2) {
		t.Error("a replica that lost writes is trusted")
	}
	must(t, h.stop(ctx, spec.GetName(), 0))
	must(t, h.remove(ctx, spec))
	if len(h.distrusted) > 0 {
		t.Error("remembered after its removal")
	}
	h.shutdown(ctx)
	g.await(time.Minute)
}
