package instance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/instance/client"
	"github.com/longhorn-lep/longhorn-manager/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/nbd"
)

func TestWhatIsWrittenToAVolumeIsOnAllReplicas(t *testing.T) {
	c := newCluster(t)
	home := c[0]
	c.startEngine(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	want := fill(t, v, 1)
	if _, err := home.dialTool("ro/" + home.replicaName()); !isPolicy(err) {
		t.Errorf("a replica with an engine could be read behind its back: %v", err)
	}
	must(t, v.Close())
	home.stopEngine()
	for _, n := range c {
		if got := n.replicaHash(); got != want {
			t.Errorf("replica %d has %s, want %s", n.number, got, want)
		}
	}

	// The next engine runs elsewhere and finds it all.
	epoch := &proto.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1", "vol-r-2", "vol-r-3"}}
	c.startEngine(c[2], c.engineSpec(2, epoch))
	v, err = c[2].dialTool("engine/" + volume)
	must(t, err)
	if got := hashOf(t, v); got != want {
		t.Errorf("volume has %s, want %s", got, want)
	}
	must(t, v.Close())
	c[2].stopEngine()
}

func TestTheDataPortRefusesThoseWhoMayNot(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	dial := func(export string, s []byte) (*nbd.Client, error) {
		return nbd.Dial(context.Background(), "tcp", n.DataAddr().String(), export, nbd.DialOptions{Secret: s})
	}
	c, err := dial("rw/vol/vol-r-1/5/five", secret)
	must(t, err)
	must(t, c.WriteAt(context.Background(), make([]byte, 4096), 0, true))
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
		if isFenced(err) != tc.fenced {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if err := c.Flush(context.Background()); err != nil {
		t.Errorf("those who were refused disturbed the one inside: %v", err)
	}

	// A higher generation takes over: the older connection is cut.
	higher, err := dial("rw/vol/vol-r-1/6/six", secret)
	must(t, err)
	<-c.Done()
	if err := c.WriteAt(context.Background(), make([]byte, 512), 0, false); err == nil {
		t.Error("the older engine still writes")
	}
	must(t, higher.Flush(context.Background()))
	must(t, higher.Close())
	_ = c.Close()
}

func TestReadersOfAReplicaAreCutWhenAnEngineComes(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	r, err := n.dialTool("ro/" + n.replicaName())
	must(t, err)
	if err := r.WriteAt(context.Background(), make([]byte, 512), 0, false); err == nil {
		t.Error("a read-only export took a write")
	}
	w, err := nbd.Dial(context.Background(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/s", nbd.DialOptions{Secret: secret})
	must(t, err)
	<-r.Done()
	must(t, w.WriteAt(context.Background(), make([]byte, 512), 0, false))
	must(t, w.Close())
	_ = r.Close()
}

func TestAStoppedProcessComesBackWithCleanReplicas(t *testing.T) {
	c := newCluster(t)
	epoch := c.startEngine(c[0], c.engineSpec(1, nil))
	v, err := c[0].dialTool("engine/" + volume)
	must(t, err)
	want := fill(t, v, 2)
	c[0].stop() // with a tool connected and the engine running
	_ = v.Close()

	c[0].start()
	c[0].startReplica()
	if got := c[0].replicaHash(); got != want {
		t.Errorf("after the restart %s, want %s", got, want)
	}
	s := c[0].until("the replica", func(s *proto.State) bool { return len(s.GetReplicas()) == 1 }).GetReplicas()[0]
	if s.GetGeneration() != 1 || s.GetEpoch().GetGeneration() != 1 || s.GetAllocatedBytes() == 0 || s.GetConnected() {
		t.Errorf("replica %v", s)
	}
	c.startEngine(c[0], c.engineSpec(2, epoch))
	c[0].stopEngine()
}

func TestAHigherGenerationReplacesAnEngineThatFailed(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	epoch := c.startEngine(home, c.engineSpec(3, nil))
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	want := fill(t, v, 3)
	must(t, c[0].replicas.find(c[0].replicaName()).replica.Fence(ctx, 4)) // the local replica ends the engine
	if err := v.WriteAt(ctx, make([]byte, 4096), 0, false); err == nil {
		t.Error("a write was acknowledged by an engine that was fenced")
	}
	if failed := home.untilEngine(proto.Phase_PHASE_ERROR); failed.GetReason() != engine.ReasonFenced {
		t.Errorf("reason %s: %s", failed.GetReason(), failed.GetMessage())
	}
	must(t, v.Close())
	if _, err := home.EngineStart(ctx, c.engineSpec(2, epoch)); reason(err) != reasonFenced {
		t.Errorf("generation 2: %v", err)
	}
	c.startEngine(home, c.engineSpec(5, epoch))
	v, err = home.dialTool("engine/" + volume)
	must(t, err)
	if got := hashOf(t, v); got != want {
		t.Errorf("after the replacement %s, want %s", got, want)
	}
	must(t, v.Close())
	home.stopEngine()
}

func TestAnotherDaemonDisturbsNothing(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	spec := c.engineSpec(1, nil)
	c.startEngine(home, spec)
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	must(t, v.WriteAt(ctx, make([]byte, 4096), 0, false))

	second, err := client.New(home.options().GRPCSocket)
	must(t, err)
	for range 3 { // whatever a daemon does that starts and finds all in place
		state, err := second.EngineStart(ctx, spec)
		must(t, err)
		if state.GetPhase() != proto.Phase_PHASE_RUNNING {
			t.Errorf("engine %v", state)
		}
		_, err = second.ReplicaStart(ctx, home.replicaSpec())
		must(t, err)
	}
	must(t, second.Close())
	must(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	if _, err := home.EngineStop(ctx, &proto.EngineRef{Name: spec.GetName()}); status.Code(err) != codes.FailedPrecondition || reason(err) != reasonInUse {
		t.Errorf("stop of a volume in use: %v", err)
	}
	if _, err := home.ReplicaStop(ctx, &proto.ReplicaRef{Name: home.replicaName()}); reason(err) != reasonInUse {
		t.Errorf("stop of a replica in use: %v", err)
	}
	must(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	must(t, v.Close())
	home.stopEngine()
	home.stopEngine() // one that is not there is stopped
}

// A forced end that comes late must not hit the engine that was started since, and one that hits leaves the way free for the next
// engine though tools were connected.
func TestAForcedEndIsOfOneSession(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	first := c.engineSpec(1, nil)
	epoch := c.startEngine(home, first)
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	_, err = home.EngineStop(ctx, &proto.EngineRef{Name: first.GetName(), Session: "another", Force: true})
	must(t, err)
	must(t, v.WriteAt(ctx, make([]byte, 4096), 0, true))
	_, err = home.EngineStop(ctx, &proto.EngineRef{Name: first.GetName(), Session: first.GetSession(), Force: true})
	must(t, err)
	if err := v.WriteAt(ctx, make([]byte, 4096), 0, true); err == nil {
		t.Error("an engine that was ended acknowledged a write")
	}
	home.until("no engine", func(s *proto.State) bool { return len(s.GetEngines()) == 0 })
	c.startEngine(home, c.engineSpec(2, epoch))
	home.stopEngine()
}

func TestTheLifeOfAReplicaOverGRPC(t *testing.T) {
	ctx := context.Background()
	n := newNode(t, 1)
	spec := n.replicaSpec()

	// Not made yet: refused, and the state says why.
	s, err := n.ReplicaStart(ctx, spec)
	must(t, err)
	if s.GetPhase() != proto.Phase_PHASE_ERROR || s.GetReason() != "ReplicaMissing" {
		t.Errorf("replica that was never made: %v", s)
	}
	n.createReplica()
	n.createReplica() // again
	if _, err := n.ReplicaRemove(ctx, spec); reason(err) != reasonHosted {
		t.Errorf("removal of a replica that is served: %v", err)
	}
	for _, again := range []bool{false, true} {
		if _, err := n.ReplicaStop(ctx, &proto.ReplicaRef{Name: spec.GetName()}); err != nil {
			t.Errorf("stop, again %t: %v", again, err)
		}
	}
	other := n.replicaSpec()
	other.Uid = "uid-other"
	if _, err := n.ReplicaRemove(ctx, other); reason(err) != "OtherReplica" || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("removal under another uid: %v", err)
	}
	if _, err := n.ReplicaCreate(ctx, other); reason(err) != "OtherReplica" {
		t.Errorf("creation under another uid: %v", err)
	}
	for range 2 {
		_, err = n.ReplicaRemove(ctx, spec)
		must(t, err)
	}
	left, err := os.ReadDir(filepath.Join(n.root, "disk/replicas"))
	must(t, err)
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	n.until("no replica", func(s *proto.State) bool { return s != nil && len(s.GetReplicas()) == 0 })
	spec.Secret = nil
	if _, err := n.ReplicaStart(ctx, spec); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a replica without a secret: %v", err)
	}
}

func TestTheWatchTellsOfAProcessThatGoesAndComesBack(t *testing.T) {
	n := newNode(t, 1)
	first := n.until("a state", func(s *proto.State) bool { return s != nil }).GetInfo()
	if first.GetUuid() == "" || first.GetBootId() == "" || first.GetPort() == 0 || first.GetVersion() != "test" {
		t.Errorf("info %v", first)
	}
	watcher, err := client.New(n.options().GRPCSocket)
	must(t, err)
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
	if s := <-states; s.GetInfo().GetUuid() != first.GetUuid() {
		t.Errorf("first state %v", s)
	}
	n.stop()
	for s := range states {
		if s == nil {
			break
		}
	}
	n.start()
	if s := <-states; s.GetInfo().GetUuid() == "" || s.GetInfo().GetUuid() == first.GetUuid() {
		t.Errorf("state of the new process %v", s)
	}
	cancel()
	<-ended
	must(t, watcher.Close())
}

// A node that starts anew has another boot, whatever the kernel beneath it says.
func TestTheBootIsTheOneThatTheNodesRootShows(t *testing.T) {
	n := newNode(t, 1)
	kernel, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	if got, want := n.info.GetBootId(), strings.TrimSpace(string(kernel)); got != want {
		t.Errorf("boot %q where the root has no /proc, want the kernel's %q", got, want)
	}
	n.stop()
	dir := filepath.Join(n.root, "proc/sys/kernel/random")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte("of-the-node\n"), 0o600))
	n.start()
	if got := n.info.GetBootId(); got != "of-the-node" || n.replicas.boot != got {
		t.Errorf("boot %q, of replicas %q", got, n.replicas.boot)
	}
}

func TestAProcessThatIsEndedAtOnceEndsInOrder(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	n := newNode(t, 1)
	n.stop()
	for range 20 {
		i, err := New(n.options())
		must(t, err)
		if err := i.Run(ended); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecondProcessOnTheSameSocketsIsRefused(t *testing.T) {
	n := newNode(t, 1)
	if _, err := New(n.options()); !errors.Is(err, ErrRunning) {
		t.Fatalf("error %v", err)
	}
	if _, err := n.Info(context.Background(), &proto.InfoRequest{}); err != nil {
		t.Errorf("the first was disturbed: %v", err)
	}
}

func TestParseDataExport(t *testing.T) {
	for name, want := range map[string]dataExport{
		"rw/v/r/7/s": {"v", "r", 7, "s"},
		"rw/v/r/7":   {}, "rw/v/r/7/s/x": {}, "ro/v/r/7/s": {}, "rw//r/7/s": {}, "rw/v//7/s": {}, "rw/v/r/7/": {},
		"rw/v/r/x/s": {}, "rw/v/r/07/s": {}, "rw/v/r/+7/s": {}, "": {},
	} {
		got, err := parseDataExport(name)
		if got != want || (err == nil) != (want != dataExport{}) {
			t.Errorf("%q: %v, %v; want %v", name, got, err, want)
		}
		if err == nil && got.String() != name {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func isPolicy(err error) bool {
	var p *nbd.PolicyError
	return errors.As(err, &p)
}
