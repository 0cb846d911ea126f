package instance

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
	"github.com/longhorn-lep/longhorn-manager/disk"
)

// A device that was unplugged may have lost unsynced data without an error. Until the missing data was written again,
// the replica does not count as having kept everything, whatever happens between the loss and the next start.
func TestAReplicaThatLostItsDiskIsNotTrustedToHaveKeptEverything(t *testing.T) {
	start := func(n *node) {
		_, err := n.ReplicaStart(n.t.Context(), n.replicaSpec())
		require.NoError(n.t, err)
	}
	stop := func(n *node) { require.NoError(n.t, n.stopReplica(0)) }
	for _, tc := range []struct {
		name string
		away func(n *node) // called while the disk is away
		back func(n *node) // called when the disk is back
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
			require.NoError(n.t, n.stopReplica(2))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, 1)
			n.createReplica()
			c, err := n.dialEngine("1/one")
			require.NoError(t, err)
			require.NoError(t, c.WriteAt(t.Context(), make([]byte, 4096), 0, false))
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

// admitsTrusted admits an engine and checks that the replica reports cacheKept as wanted. If admitsTrusted clears
// marks, it leaves another mark.
func (n *node) admitsTrusted(generation int64, want bool, cleared ...int64) {
	n.t.Helper()
	session, err := n.replicas.find(n.replicaName()).replica.Admit(n.t.Context(), generation, "session")
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, session.Close()) }()
	answer, err := session.Control(n.t.Context(), membership.OpState, nil)
	require.NoError(n.t, err)
	var state membership.State
	require.NoError(n.t, json.Unmarshal(answer, &state))
	assert.Equal(n.t, want, state.CacheKept, "an engine of generation %d hears that the cache was kept", generation)
	if len(cleared) > 0 {
		regions, err := json.Marshal(membership.Regions{Indexes: cleared})
		require.NoError(n.t, err)
		_, err = session.Control(n.t.Context(), membership.OpClearIntents, regions)
		require.NoError(n.t, err)
		require.NoError(n.t, session.WriteAt(n.t.Context(), make([]byte, 512), 8*mib, false))
	}
}

// The disk stores nothing from now on, not even the record that writes were lost. When it works again, the process
// still knows of the loss.
func TestAReplicaThatCouldNotRecordItsLossesIsNotTrusted(t *testing.T) {
	ctx, disks := t.Context(), newDiskInMemory(t)
	h := newHostOf(disks)
	spec := (&node{number: 1}).replicaSpec()
	_, err := h.create(t.Context(), spec)
	require.NoError(t, err)
	kept := func(generation int64) bool {
		t.Helper()
		_, err := h.start(ctx, spec)
		require.NoError(t, err)
		open := h.find(spec.GetName()).replica
		session, err := open.Admit(ctx, generation, "session")
		require.NoError(t, err)
		_ = session.WriteAt(ctx, make([]byte, 512), 0, true)
		require.NoError(t, session.Close())
		return open.State().CacheKept
	}
	assert.True(t, kept(1), "a replica that has failed in nothing is not trusted")
	disks.Before(func(memfs.Op) error { return syscall.EIO })
	session, err := h.find(spec.GetName()).replica.Admit(ctx, 1, "session")
	require.NoError(t, err)
	assert.Error(t, session.WriteAt(ctx, make([]byte, 512), 0, true), "a write was acknowledged by a disk that takes none")
	require.NoError(t, session.Close())
	require.NoError(t, h.close(ctx, h.find(spec.GetName())))
	disks.Before(nil)
	assert.False(t, kept(2), "a replica that lost writes is trusted")
	require.NoError(t, h.stop(ctx, spec.GetName(), 0))
	require.NoError(t, h.remove(ctx, spec))
	assert.Empty(t, h.distrusted, "remembered after its removal")
	h.shutdown(ctx)
	h.disks.await(time.Minute)
}

// newDiskInMemory returns a file system in memory with a disk at /disk.
func newDiskInMemory(t *testing.T) *memfs.FS {
	t.Helper()
	disks := memfs.New()
	disks.MkdirAll("/disk/replicas")
	text, err := disk.EncodeConfig(disk.NewConfig("disk", diskUUID))
	require.NoError(t, err)
	dir, err := disks.OpenDir("/disk")
	require.NoError(t, err)
	file, err := dir.OpenFile(disk.ConfigFileName, fsys.CreateNew)
	require.NoError(t, err)
	require.NoError(t, file.WriteAt(text, 0))
	return disks
}

func newHostOf(disks *memfs.FS) *replicaHost {
	log, _ := logtest.NewNullLogger()
	return newReplicaHost(newDiskGuard(disks, logrus.NewEntry(log)), "boot", newChanges(), logrus.NewEntry(log))
}

// The kernel reports a failed write-out once. Here the report goes to an opening that is refused, and the disk does not
// store the record of the loss.
func TestALossThatOnlyARefusedOpeningHeardOfIsRemembered(t *testing.T) {
	ctx, disks := t.Context(), newDiskInMemory(t)
	h := newHostOf(disks)
	spec := (&node{number: 1}).replicaSpec()
	_, err := h.create(ctx, spec)
	require.NoError(t, err)
	_, err = h.start(ctx, spec)
	require.NoError(t, err)
	session, err := h.find(spec.GetName()).replica.Admit(ctx, 1, "session")
	require.NoError(t, err)
	require.NoError(t, session.WriteAt(ctx, make([]byte, 512), 0, false))
	disks.Kill()
	h.shutdown(ctx)
	h.disks.await(time.Minute)
	disks.LoseUnsynced("data.img")

	h = newHostOf(disks)
	disks.Before(func(op memfs.Op) error {
		if op.Kind == "exchange" || op.Kind == "rename" {
			return syscall.EIO
		}
		return nil
	})
	state, err := h.start(ctx, spec)
	require.NoError(t, err)
	require.Equal(t, proto.Phase_PHASE_ERROR, state.GetPhase(), "the replica serves, and has not recorded what it lost")
	disks.Before(nil)
	_, err = h.start(ctx, spec)
	require.NoError(t, err)
	require.NotNil(t, h.find(spec.GetName()).replica)
	assert.False(t, h.find(spec.GetName()).replica.State().CacheKept, "a replica that lost writes is trusted")
	h.shutdown(ctx)
	h.disks.await(time.Minute)
}
