package instance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/status"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib      = 1 << 20
	testSize = 64 * mib
	volume   = "vol"
	patience = 30 * time.Second
)

var (
	secret = bytes.Repeat([]byte("s"), 32)
	wrong  = bytes.Repeat([]byte("w"), 32)
)

// node is one data-plane process, run inside the test process, with a root directory of its own.
type node struct {
	t      testing.TB
	number int
	root   string
	*Instance
	*client.Client
	end func()
	// quietPeriod is the value for the next process that is started; 0 is the default.
	quietPeriod time.Duration
	// prepare, if set, is called with a process before it serves.
	prepare func(*Instance)
	// keeper is the Keeper of the next process that is started; nil: the process holds its devices itself.
	keeper device.Keeper

	mu    sync.Mutex
	state *proto.State  // guarded by mu; as received from the watch
	news  chan struct{} // guarded by mu; closed when state changes
}

// newNode starts a process. The paths of its sockets are short, because the kernel limits their length.
func newNode(t testing.TB, number int) *node {
	t.Helper()
	return nodeAt(t, number, newRoot(t))
}

func newRoot(t testing.TB) string {
	t.Helper()
	root, err := os.MkdirTemp("", "lh")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return root
}

// diskUUID is the UUID of the disk that each node has.
const diskUUID = "d15c0000-0000-4000-8000-000000000001"

// makeDisk turns a directory into a disk, unless it already is that disk.
func makeDisk(t testing.TB, dir, uuid string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, disk.ReplicasDirName), 0o700))
	text, err := disk.EncodeConfig(disk.NewConfig("disk", uuid))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, disk.ConfigFileName), text, 0o600))
}

// nodeAt starts a process with an existing root directory.
func nodeAt(t testing.TB, number int, root string) *node {
	t.Helper()
	return nodeWith(t, number, root, nil)
}

// nodeWith is like nodeAt, but prepares the process first.
func nodeWith(t testing.TB, number int, root string, prepare func(*Instance)) *node {
	t.Helper()
	makeDisk(t, filepath.Join(root, "disk"), diskUUID)
	n := &node{t: t, number: number, root: root, prepare: prepare, news: make(chan struct{})}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) toolSocket() string { return filepath.Join(n.root, "run/nbd.sock") }

func (n *node) options() Options {
	return Options{
		Root: n.root, DataListen: "127.0.0.1:0", ToolSocket: n.toolSocket(), GRPCSocket: filepath.Join(n.root, "run/grpc.sock"),
		GenerationsSocket: filepath.Join(n.root, "run/share/generations.sock"),
		DeviceDir:         filepath.Join(n.root, "dev"), QuietPeriod: n.quietPeriod, Keeper: n.keeper, Version: "test",
	}
}

func (n *node) start() {
	n.t.Helper()
	var err error
	n.Instance, err = New(n.options())
	require.NoError(n.t, err)
	if n.prepare != nil {
		n.prepare(n.Instance)
	}
	n.Client, err = client.New(n.options().GRPCSocket)
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	i, c := n.Instance, n.Client
	running.Go(func() {
		assert.NoError(n.t, i.Run(ctx), "node %d", n.number)
	})
	watching, unwatch := context.WithCancel(context.Background())
	running.Go(func() { c.WatchStates(watching, n.update) })
	n.end = func() {
		cancel()
		unwatch()
		running.Wait()
		_ = c.Close()
	}
}

// stop stops the process in order.
func (n *node) stop() {
	if n.end != nil {
		n.end()
		n.end = nil
		n.update(nil)
	}
}

func (n *node) update(s *proto.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
	close(n.news)
	n.news = make(chan struct{})
}

// until waits for a state for which ready returns true; nil is the state of a process that does not run. It also asks
// ready from time to time without a change of the state: ready may depend on more than the state shows.
func (n *node) until(what string, ready func(*proto.State) bool) *proto.State {
	n.t.Helper()
	late := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		n.mu.Lock()
		s, news := n.state, n.news
		n.mu.Unlock()
		if ready(s) {
			return s
		}
		select {
		case <-news:
		case <-again.C:
		case <-late:
			n.t.Fatalf("node %d never had %s; it has %v", n.number, what, s)
		}
	}
}

func (n *node) replicaName() string { return fmt.Sprintf("%s-r-%d", volume, n.number) }

func (n *node) replicaSpec() *proto.ReplicaSpec {
	return &proto.ReplicaSpec{
		Name: n.replicaName(), Volume: volume, Uid: fmt.Sprintf("uid-%d", n.number),
		Directory: "/disk/replicas/" + n.replicaName(), DiskPath: "/disk", DiskUuid: diskUUID, SizeBytes: testSize, Secret: secret,
	}
}

func (n *node) createReplica() {
	n.t.Helper()
	_, err := n.ReplicaCreate(context.Background(), n.replicaSpec())
	require.NoError(n.t, err)
	n.startReplica()
}

func (n *node) startReplica() {
	n.t.Helper()
	s, err := n.ReplicaStart(context.Background(), n.replicaSpec())
	require.NoError(n.t, err)
	require.Equal(n.t, proto.Phase_PHASE_RUNNING, s.GetPhase(), "replica %v", s)
}

// cluster is three nodes, each with a replica of one volume.
type cluster []*node

func newCluster(t testing.TB) cluster {
	c := cluster{newNode(t, 1), newNode(t, 2), newNode(t, 3)}
	for _, n := range c {
		n.createReplica()
	}
	return c
}

func (c cluster) engineSpec(generation int64, epoch *proto.Epoch) *proto.EngineSpec {
	s := &proto.EngineSpec{
		Name: volume + "-e-0", Volume: volume, Generation: generation, Session: fmt.Sprint("session-", generation),
		SizeBytes: testSize, Frontend: proto.Frontend_FRONTEND_SOCKET, Epoch: epoch, Secret: secret,
	}
	for _, n := range c {
		s.Members = append(s.Members, &proto.Member{
			Name: n.replicaName(), Uid: n.replicaSpec().GetUid(), Address: n.DataAddr().String(), Tls: true,
		})
	}
	return s
}

// startEngine acts as the controller until the engine runs, and returns the epoch that it recorded.
func (c cluster) startEngine(on *node, s *proto.EngineSpec) *proto.Epoch {
	on.t.Helper()
	_, err := on.EngineStart(context.Background(), s)
	require.NoError(on.t, err)
	got := on.until("a proposed epoch", func(st *proto.State) bool {
		return len(st.GetEngines()) == 1 && st.GetEngines()[0].GetSession() == s.GetSession() && st.GetEngines()[0].GetProposedEpoch() != nil
	})
	epoch := got.GetEngines()[0].GetProposedEpoch()
	_, err = on.EngineRecordEpoch(context.Background(), &proto.EpochRecord{Name: s.GetName(), Session: s.GetSession(), Epoch: epoch})
	require.NoError(on.t, err)
	on.untilEngine(proto.Phase_PHASE_RUNNING)
	return epoch
}

func (n *node) untilEngine(phase proto.Phase) *proto.EngineState {
	n.t.Helper()
	s := n.until("an engine in "+phase.String(), func(st *proto.State) bool {
		return len(st.GetEngines()) == 1 && st.GetEngines()[0].GetPhase() == phase
	})
	return s.GetEngines()[0]
}

// member is the replica of a node in the state of an engine on any node; nil if the state does not contain it.
func (n *node) member(s *proto.State) *proto.MemberState {
	for _, e := range s.GetEngines() {
		for _, m := range e.GetMembers() {
			if m.GetName() == n.replicaName() {
				return m
			}
		}
	}
	return nil
}

func (n *node) replicaState(s *proto.State) *proto.ReplicaState {
	for _, r := range s.GetReplicas() {
		if r.GetName() == n.replicaName() {
			return r
		}
	}
	return nil
}

func (n *node) stopReplica(fence int64) error {
	_, err := n.ReplicaStop(context.Background(), &proto.ReplicaRef{Name: n.replicaName(), FenceGeneration: fence})
	return err
}

// stopEngine repeats the request while the volume is in use, because the server learns of a disconnected tool with a
// delay.
func (n *node) stopEngine() {
	n.t.Helper()
	var err error
	require.Eventually(n.t, func() bool {
		_, err = n.EngineStop(context.Background(), &proto.EngineRef{Name: volume + "-e-0"})
		return reason(err) != reasonInUse
	}, patience, time.Millisecond, "the volume stays in use")
	require.NoError(n.t, err)
}

// dialTool opens an export of the local socket.
func (n *node) dialTool(export string) (*nbd.Client, error) {
	return nbd.Dial(context.Background(), "unix", n.toolSocket(), export, nbd.DialOptions{})
}

// fill writes random bytes at random places of a volume, flushes, and returns the sha256 of the whole volume.
func fill(t testing.TB, b nbd.Backend, seed uint64) string {
	t.Helper()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		p := make([]byte, (1+rng.IntN(64))*4096)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		require.NoError(t, b.WriteAt(ctx, p, rng.Int64N(testSize/4096-64)*4096, false))
	}
	require.NoError(t, b.Trim(ctx, 8*mib, 3*mib, false))
	require.NoError(t, b.Zero(ctx, 20*mib, mib, 0))
	require.NoError(t, b.Flush(ctx))
	return hashOf(t, b)
}

func hashOf(t testing.TB, b nbd.Backend) string {
	t.Helper()
	h := sha256.New()
	p := make([]byte, mib)
	for off := int64(0); off < testSize; off += mib {
		require.NoError(t, b.ReadAt(context.Background(), p, off))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// replicaHash reads a replica through its read-only export.
func (n *node) replicaHash() string {
	n.t.Helper()
	c, err := n.dialTool("ro/" + n.replicaName())
	require.NoError(n.t, err)
	defer c.Close()
	return hashOf(n.t, c)
}

// reason returns the reason of a refusal that was received over gRPC.
func reason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
