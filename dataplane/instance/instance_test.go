package instance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

func TestWhatIsWrittenToAVolumeIsOnAllReplicas(t *testing.T) {
	c := newCluster(t)
	home := c[0]
	c.startEngine(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	want := fill(t, v, 1)
	_, err = home.dialTool("ro/" + home.replicaName())
	assert.True(t, isPolicy(err), "a replica with an engine could be read behind its back: %v", err)
	require.NoError(t, v.Close())
	home.stopEngine()
	for _, n := range c {
		assert.Equal(t, want, n.replicaHash(), "replica %d", n.number)
	}

	// The next engine runs on another node and finds all the data.
	epoch := &proto.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1", "vol-r-2", "vol-r-3"}}
	c.startEngine(c[2], c.engineSpec(2, epoch))
	v, err = c[2].dialTool("engine/" + volume)
	require.NoError(t, err)
	assert.Equal(t, want, hashOf(t, v))
	require.NoError(t, v.Close())
	c[2].stopEngine()
}

func TestTheDataPortRefusesThoseWhoMayNot(t *testing.T) {
	t.Run("without TLS", func(t *testing.T) { testWhoMayNot(t, false) })
	t.Run("over TLS", func(t *testing.T) { testWhoMayNot(t, true) })
}

func testWhoMayNot(t *testing.T, overTLS bool) {
	n := newNode(t, 1)
	n.createReplica()
	dial := func(export string, s []byte) (*nbd.Client, error) {
		return nbd.Dial(context.Background(), "tcp", n.DataAddr().String(), export, nbd.DialOptions{Secret: s, TLS: overTLS && s != nil})
	}
	c, err := dial("rw/vol/vol-r-1/5/five", secret)
	require.NoError(t, err)
	require.NoError(t, c.WriteAt(context.Background(), make([]byte, 4096), 0, true))
	for _, tc := range []struct {
		name, export string
		secret       []byte
		fenced       bool
	}{
		{"no secret", "rw/vol/vol-r-1/6/six", nil, false},
		{"the wrong secret", "rw/vol/vol-r-1/6/six", wrong, false},
		{"a lower generation", "rw/vol/vol-r-1/4/four", secret, true},
		{"the same generation by another session", "rw/vol/vol-r-1/5/other", secret, true},
		{"another volume's name", "rw/other/vol-r-1/6/six", secret, false},
		{"a replica that is not here", "rw/vol/vol-r-9/6/six", secret, false},
		{"a read-only export", "ro/vol-r-1", secret, false},
		{"the engine", "engine/vol", secret, false},
	} {
		got, err := dial(tc.export, tc.secret)
		if err == nil {
			_ = got.Close()
			t.Errorf("%s: let in", tc.name)
		}
		assert.Equal(t, tc.fenced, isFenced(err), "%s: %v", tc.name, err)
	}
	assert.NoError(t, c.Flush(context.Background()), "those who were refused disturbed the one inside")

	// A higher generation takes over, and the older connection is cut.
	higher, err := dial("rw/vol/vol-r-1/6/six", secret)
	require.NoError(t, err)
	<-c.Done()
	assert.Error(t, c.WriteAt(context.Background(), make([]byte, 512), 0, false), "the older engine still writes")
	require.NoError(t, higher.Flush(context.Background()))
	require.NoError(t, higher.Close())
	_ = c.Close()
}

func TestReadersOfAReplicaAreCutWhenAnEngineComes(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	r, err := n.dialTool("ro/" + n.replicaName())
	require.NoError(t, err)
	assert.Error(t, r.WriteAt(context.Background(), make([]byte, 512), 0, false), "a read-only export took a write")
	w, err := nbd.Dial(context.Background(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/s", nbd.DialOptions{Secret: secret})
	require.NoError(t, err)
	<-r.Done()
	require.NoError(t, w.WriteAt(context.Background(), make([]byte, 512), 0, false))
	require.NoError(t, w.Close())
	_ = r.Close()
}

func TestAStoppedProcessComesBackWithCleanReplicas(t *testing.T) {
	c := newCluster(t)
	epoch := c.startEngine(c[0], c.engineSpec(1, nil))
	v, err := c[0].dialTool("engine/" + volume)
	require.NoError(t, err)
	want := fill(t, v, 2)
	c[0].stop() // with a tool connected and the engine running
	_ = v.Close()

	c[0].start()
	c[0].startReplica()
	assert.Equal(t, want, c[0].replicaHash(), "after the restart")
	s := c[0].until("the replica", func(s *proto.State) bool { return len(s.GetReplicas()) == 1 }).GetReplicas()[0]
	assert.Equal(t, int64(1), s.GetGeneration(), "replica %v", s)
	assert.Equal(t, int64(1), s.GetEpoch().GetGeneration())
	assert.NotZero(t, s.GetAllocatedBytes())
	assert.False(t, s.GetConnected())
	c.startEngine(c[0], c.engineSpec(2, epoch))
	c[0].stopEngine()
}

func TestAHigherGenerationReplacesAnEngineThatFailed(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	epoch := c.startEngine(home, c.engineSpec(3, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	want := fill(t, v, 3)
	require.NoError(t, c[0].replicas.find(c[0].replicaName()).replica.Fence(ctx, 4)) // the local replica ends the engine
	assert.Error(t, v.WriteAt(ctx, make([]byte, 4096), 0, false), "a write was acknowledged by an engine that was fenced")
	failed := home.untilEngine(proto.Phase_PHASE_ERROR)
	assert.Equal(t, engine.ReasonFenced, failed.GetReason(), failed.GetMessage())
	require.NoError(t, v.Close())
	_, err = home.EngineStart(ctx, c.engineSpec(2, epoch))
	assert.Equal(t, reasonFenced, reason(err), "generation 2: %v", err)
	c.startEngine(home, c.engineSpec(5, epoch))
	v, err = home.dialTool("engine/" + volume)
	require.NoError(t, err)
	assert.Equal(t, want, hashOf(t, v), "after the replacement")
	require.NoError(t, v.Close())
	home.stopEngine()
}

func TestAnotherDaemonDisturbsNothing(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	spec := c.engineSpec(1, nil)
	c.startEngine(home, spec)
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	require.NoError(t, v.WriteAt(ctx, make([]byte, 4096), 0, false))

	second, err := client.New(home.options().GRPCSocket)
	require.NoError(t, err)
	for range 3 { // a daemon may start again and find everything in place
		state, err := second.EngineStart(ctx, spec)
		require.NoError(t, err)
		assert.Equal(t, proto.Phase_PHASE_RUNNING, state.GetPhase(), "engine %v", state)
		_, err = second.ReplicaStart(ctx, home.replicaSpec())
		require.NoError(t, err)
	}
	require.NoError(t, second.Close())
	require.NoError(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	_, err = home.EngineStop(ctx, &proto.EngineRef{Name: spec.GetName()})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err), "stop of a volume in use: %v", err)
	assert.Equal(t, reasonInUse, reason(err))
	_, err = home.ReplicaStop(ctx, &proto.ReplicaRef{Name: home.replicaName()})
	assert.Equal(t, reasonInUse, reason(err), "stop of a replica in use: %v", err)
	require.NoError(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	require.NoError(t, v.Close())
	home.stopEngine()
	home.stopEngine() // stopping an engine that does not exist is a success
}

// A forced stop that comes late must not stop an engine that was started later. After a forced stop the next engine can
// start, even if tools were connected.
func TestAForcedEndIsOfOneSession(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	first := c.engineSpec(1, nil)
	epoch := c.startEngine(home, first)
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	_, err = home.EngineStop(ctx, &proto.EngineRef{Name: first.GetName(), Session: "another", Force: true})
	require.NoError(t, err)
	require.NoError(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	_, err = home.EngineStop(ctx, &proto.EngineRef{Name: first.GetName(), Session: first.GetSession(), Force: true})
	require.NoError(t, err)
	assert.Error(t, v.WriteAt(ctx, make([]byte, 4096), 0, true), "an engine that was ended acknowledged a write")
	home.until("no engine", func(s *proto.State) bool { return len(s.GetEngines()) == 0 })
	c.startEngine(home, c.engineSpec(2, epoch))
	home.stopEngine()
}

func TestTheLifeOfAReplicaOverGRPC(t *testing.T) {
	ctx := context.Background()
	n := newNode(t, 1)
	spec := n.replicaSpec()

	// The replica does not exist yet: it is refused, and the state shows the reason.
	s, err := n.ReplicaStart(ctx, spec)
	require.NoError(t, err)
	assert.Equal(t, proto.Phase_PHASE_ERROR, s.GetPhase(), "replica that was never made: %v", s)
	assert.Equal(t, "ReplicaMissing", s.GetReason())
	n.createReplica()
	n.createReplica() // again
	_, err = n.ReplicaRemove(ctx, spec)
	assert.Equal(t, reasonHosted, reason(err), "removal of a replica that is served: %v", err)
	for _, again := range []bool{false, true} {
		_, err := n.ReplicaStop(ctx, &proto.ReplicaRef{Name: spec.GetName()})
		assert.NoError(t, err, "again %t", again)
	}
	other := n.replicaSpec()
	other.Uid = "uid-other"
	_, err = n.ReplicaRemove(ctx, other)
	assert.Equal(t, "OtherReplica", reason(err), "removal under another uid: %v", err)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	_, err = n.ReplicaCreate(ctx, other)
	assert.Equal(t, "OtherReplica", reason(err), "creation under another uid: %v", err)
	for range 2 {
		_, err = n.ReplicaRemove(ctx, spec)
		require.NoError(t, err)
	}
	left, err := os.ReadDir(filepath.Join(n.root, "disk/replicas"))
	require.NoError(t, err)
	assert.Empty(t, left)
	n.until("no replica", func(s *proto.State) bool { return s != nil && len(s.GetReplicas()) == 0 })
	spec.Secret = nil
	_, err = n.ReplicaStart(ctx, spec)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "a replica without a secret: %v", err)
}

func TestTheWatchTellsOfAProcessThatGoesAndComesBack(t *testing.T) {
	n := newNode(t, 1)
	first := n.until("a state", func(s *proto.State) bool { return s != nil }).GetInfo()
	assert.NotEmpty(t, first.GetUuid(), "info %v", first)
	assert.NotEmpty(t, first.GetBootId())
	assert.NotZero(t, first.GetPort())
	assert.Equal(t, "test", first.GetVersion())
	watcher, err := client.New(n.options().GRPCSocket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	states := make(chan *proto.State)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watcher.WatchStates(ctx, func(s *proto.State) {
			select {
			case states <- s:
			case <-ctx.Done():
			}
		})
	}()
	s := <-states
	assert.Equal(t, first.GetUuid(), s.GetInfo().GetUuid(), "first state %v", s)
	n.stop()
	for s := range states {
		if s == nil {
			break
		}
	}
	n.start()
	s = <-states
	assert.NotEmpty(t, s.GetInfo().GetUuid(), "state of the new process %v", s)
	assert.NotEqual(t, first.GetUuid(), s.GetInfo().GetUuid())
	cancel()
	<-ended
	require.NoError(t, watcher.Close())
}

// A node that restarts has a new boot id, whatever the kernel below it reports.
func TestTheBootIsTheOneThatTheNodesRootShows(t *testing.T) {
	n := newNode(t, 1)
	kernel, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	got, want := n.info.GetBootId(), strings.TrimSpace(string(kernel))
	assert.Equal(t, want, got, "boot %q where the root has no /proc, want the kernel's", got)
	n.stop()
	dir := filepath.Join(n.root, "proc/sys/kernel/random")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte("of-the-node\n"), 0o600))
	n.start()
	got = n.info.GetBootId()
	assert.Equal(t, "of-the-node", got)
	assert.Equal(t, got, n.replicas.boot)
}

func TestAProcessThatIsEndedAtOnceEndsInOrder(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	n := newNode(t, 1)
	n.stop()
	for range 20 {
		i, err := New(n.options())
		require.NoError(t, err)
		require.NoError(t, i.Run(ended))
	}
}

func TestASecondProcessOnTheSameSocketsIsRefused(t *testing.T) {
	n := newNode(t, 1)
	_, err := New(n.options())
	require.ErrorIs(t, err, ErrRunning)
	_, err = n.Info(context.Background(), &proto.InfoRequest{})
	assert.NoError(t, err, "the first was disturbed")
}

func TestParseDataExport(t *testing.T) {
	for name, want := range map[string]dataExport{
		"rw/v/r/7/s": {"v", "r", 7, "s"},
		"rw/v/r/7":   {}, "rw/v/r/7/s/x": {}, "ro/v/r/7/s": {}, "rw//r/7/s": {}, "rw/v//7/s": {}, "rw/v/r/7/": {},
		"rw/v/r/x/s": {}, "rw/v/r/07/s": {}, "rw/v/r/+7/s": {}, "": {},
	} {
		got, err := parseDataExport(name)
		assert.Equal(t, want, got, "%q, %v", name, err)
		assert.Equal(t, want != dataExport{}, err == nil)
		if err == nil {
			assert.Equal(t, name, got.String())
		}
	}
}

func isPolicy(err error) bool {
	var p *nbd.PolicyError
	return errors.As(err, &p)
}
