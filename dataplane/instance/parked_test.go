package instance

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// parkedNode has one replica that was written to and stopped. Its marks were not cleared before the close.
func parkedNode(t *testing.T) (*node, string) {
	n := newNode(t, 1)
	n.createReplica()
	c, err := nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/one", nbd.DialOptions{Secret: secret})
	require.NoError(t, err)
	want := fill(t, c, 9)
	require.NoError(t, c.Close())
	require.NoError(t, n.stopReplica(0))
	return n, want
}

func (n *node) directory() string { return filepath.Join(n.root, n.replicaSpec().GetDirectory()) }

// isLocked reports whether the replica is open.
func (n *node) isLocked() bool {
	n.t.Helper()
	r, err := replica.OpenCopy(fsys.Host{Root: n.root}, n.replicaSpec().GetDirectory(), specOf(n.replicaSpec()), replica.Options{})
	if replica.ReasonOf(err) == replica.Locked {
		return true
	}
	require.NoError(n.t, err)
	require.NoError(n.t, r.Close(context.Background()))
	return false
}

func TestAStoppedReplicaCanBeRead(t *testing.T) {
	n, want := parkedNode(t)
	files := func() []byte {
		meta, err := os.ReadFile(filepath.Join(n.directory(), "replica.meta"))
		require.NoError(t, err)
		marks, err := os.ReadFile(filepath.Join(n.directory(), "intent.map"))
		require.NoError(t, err)
		return append(meta, marks...)
	}
	before := files()
	assert.False(t, n.isLocked(), "a stopped replica is open before anybody reads it")
	assert.Equal(t, []string{"ro/vol-r-1"}, (&toolExporter{n.replicas, n.engines}).List(t.Context()))
	assert.NotNil(t, n.until("no replica", func(s *proto.State) bool { return s != nil && len(s.GetReplicas()) == 0 }), "no state")
	first, err := n.dialTool("ro/vol-r-1")
	require.NoError(t, err)
	second, err := n.dialTool("ro/vol-r-1")
	require.NoError(t, err)
	info := first.Info()
	assert.True(t, info.ReadOnly)
	assert.Equal(t, int64(testSize), info.Size)
	assert.Equal(t, "replica of volume vol: not closed cleanly; 15 regions of 4194304 bytes may differ from other replicas", info.Description)
	require.NoError(t, first.Close())
	assert.True(t, n.isLocked(), "closed under the second tool")
	assert.Equal(t, want, hashOf(t, second))
	require.NoError(t, second.Close())
	assert.False(t, n.isLocked(), "open after the last tool")
	assert.True(t, bytes.Equal(files(), before), "reading changed the directory")
	_, err = n.dialTool("ro/vol-r-2")
	assert.ErrorIs(t, err, nbd.ErrUnknownExport, "a replica that was never here")
}

func TestToolsThatReadAStoppedReplicaHoldNobodyUp(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		act    func(n *node) error
		after  error // error for a later tool
		reason string
	}{
		{name: "it is started", act: func(n *node) error {
			_, err := n.ReplicaStart(ctx, n.replicaSpec())
			return err
		}},
		{name: "it is fenced", act: func(n *node) error { return n.stopReplica(5) }},
		{name: "it is removed", after: nbd.ErrUnknownExport, act: func(n *node) error {
			_, err := n.ReplicaRemove(ctx, n.replicaSpec())
			return err
		}},
		{name: "its removal is refused", reason: "OtherReplica", act: func(n *node) error {
			other := n.replicaSpec()
			other.Uid = "uid-other"
			_, err := n.ReplicaRemove(ctx, other)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, want := parkedNode(t)
			tool, err := n.dialTool("ro/vol-r-1")
			require.NoError(t, err)
			err = tc.act(n)
			require.Equal(t, tc.reason, reason(err))
			if tc.reason == "" {
				require.NoError(t, err)
			}
			<-tool.Done()
			_ = tool.Close()
			again, err := n.dialTool("ro/vol-r-1")
			require.ErrorIs(t, err, tc.after, "the next tool")
			if err != nil {
				return
			}
			assert.Equal(t, want, hashOf(t, again))
			require.NoError(t, again.Close())
		})
	}
}

func TestAProcessThatEndsCutsTheReadersOfStoppedReplicas(t *testing.T) {
	n, _ := parkedNode(t)
	tool, err := n.dialTool("ro/vol-r-1")
	require.NoError(t, err)
	n.stop()
	<-tool.Done()
	_ = tool.Close()
	assert.False(t, n.isLocked(), "the replica is left open")
}

func TestAStoppedReplicaIsFencedDurably(t *testing.T) {
	n, _ := parkedNode(t)
	for _, generation := range []int64{5, 5, 4} {
		require.NoError(t, n.stopReplica(generation))
	}
	s, err := n.ReplicaStart(context.Background(), n.replicaSpec())
	require.NoError(t, err)
	assert.Equal(t, int64(5), s.GetGeneration())
	_, err = nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/4/four", nbd.DialOptions{Secret: secret})
	assert.True(t, isFenced(err), "an engine of generation 4: %v", err)
}

// A successful fence is a proof. So if the replica cannot be fenced here, the fence must not succeed.
func TestAReplicaThatCannotBeFencedIsRefused(t *testing.T) {
	n := newNode(t, 1)
	err := n.stopReplica(3)
	assert.Equal(t, reasonNotHosted, reason(err), "a replica that is not here: %v", err)
	// refused: the replica was never created
	_, err = n.ReplicaStart(context.Background(), n.replicaSpec())
	require.NoError(t, err)
	err = n.stopReplica(3)
	assert.Equal(t, reasonNotHosted, reason(err), "a replica that was refused: %v", err)
	require.NoError(t, n.stopReplica(0))
}

func TestAnEngineElsewhereLearnsThatItWasFenced(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	c, err := nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/one", nbd.DialOptions{Secret: secret})
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(t.Context(), make([]byte, 512), 0, false))
	require.NoError(t, n.stopReplica(2))
	err = asFenced(c.WriteAt(t.Context(), make([]byte, 512), 0, false))
	assert.True(t, isFenced(err), "write after the fence: %v", err)
	<-c.Done() // the connection is closed soon
	_ = c.Close()
}
