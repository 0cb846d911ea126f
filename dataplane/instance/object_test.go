package instance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// object simulates the engine's API object: it records the epochs that the engine proposes, by the rules.
type object struct {
	on      *node
	session string

	mu    sync.Mutex
	state membership.Object // guarded by mu
}

// manage starts an engine and records the epochs that it proposes until the test ends.
func (c cluster) manage(on *node, s *proto.EngineSpec) *object {
	on.t.Helper()
	o := &object{on: on, session: s.GetSession(), state: membership.Object{
		Generation: s.GetGeneration(), Session: s.GetSession(), Epoch: epochFromWire(s.GetEpoch()),
	}}
	stop := make(chan struct{})
	var recording sync.WaitGroup
	recording.Go(func() { o.record(stop) })
	on.t.Cleanup(func() {
		close(stop)
		recording.Wait()
	})
	_, err := on.EngineStart(context.Background(), s)
	require.NoError(on.t, err)
	on.untilEngine(proto.Phase_PHASE_RUNNING)
	return o
}

func (o *object) record(stop <-chan struct{}) {
	for {
		o.on.mu.Lock()
		s, news, rpc := o.on.state, o.on.news, o.on.Client
		o.on.mu.Unlock()
		for _, e := range s.GetEngines() {
			if e.GetSession() != o.session || e.GetProposedEpoch() == nil || !o.take(epochFromWire(e.GetProposedEpoch())) {
				continue
			}
			_, err := rpc.EngineRecordEpoch(context.Background(), &proto.EpochRecord{Name: e.GetName(), Session: o.session, Epoch: e.GetProposedEpoch()})
			if err != nil {
				o.on.t.Logf("record %v: %v", e.GetProposedEpoch(), err) // the engine now has another proposal, or has ended
			}
		}
		select {
		case <-news:
		case <-stop:
			return
		}
	}
}

// take simulates the compare-and-swap.
func (o *object) take(e membership.Epoch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := membership.CanRecord(o.state, o.session, e); err != nil {
		return false
	}
	o.state.Epoch = e
	return true
}

// overtake raises the generation, as a controller does that assumes the engine to be stopped. No further epoch is
// recorded.
func (o *object) overtake(generation int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state.Generation, o.state.Session = generation, ""
}

func (o *object) epoch() membership.Epoch {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state.Epoch
}

func (o *object) memberRequest(n *node, bandwidth int64) *proto.EngineMemberRequest {
	return &proto.EngineMemberRequest{
		Name: volume + "-e-0", Session: o.session, BandwidthBytesPerSecond: bandwidth,
		Member: &proto.Member{Name: n.replicaName(), Uid: n.replicaSpec().GetUid(), Address: n.DataAddr().String(), Tls: true},
	}
}

// add requests a rebuild, and repeats the request after each change while another rebuild is under way.
func (o *object) add(n *node) {
	o.on.t.Helper()
	o.on.until("an end of other rebuilds", func(*proto.State) bool {
		_, err := o.on.EngineAddReplica(context.Background(), o.memberRequest(n, 0))
		if reason(err) != reasonBusy {
			require.NoError(o.on.t, err)
		}
		return err == nil
	})
}

// untilMember waits until the engine shows a replica in a mode.
func (o *object) untilMember(n *node, mode string) *proto.MemberState {
	o.on.t.Helper()
	s := o.on.until(fmt.Sprintf("replica %d in %s", n.number, mode), func(s *proto.State) bool { return n.member(s).GetMode() == mode })
	return n.member(s)
}

// scribbler writes to a volume continuously until it is stopped.
type scribbler struct {
	writing sync.WaitGroup
	stop    chan struct{}
	wrote   chan struct{} // has an entry after each acknowledged write, if there is room
	err     error         // error of the failed write; set when writing is done
}

func scribble(v nbd.Backend) *scribbler {
	s := &scribbler{stop: make(chan struct{}), wrote: make(chan struct{}, 1)}
	s.writing.Go(func() {
		rng := rand.New(rand.NewPCG(5, 5))
		p := make([]byte, 16<<10)
		for {
			select {
			case <-s.stop:
				return
			default:
			}
			for i := 0; i < len(p); i += 512 {
				p[i] = byte(rng.Uint32())
			}
			if s.err = v.WriteAt(context.Background(), p, rng.Int64N(testSize/4096-4)*4096, false); s.err != nil {
				return
			}
			select {
			case s.wrote <- struct{}{}:
			default:
			}
		}
	})
	return s
}

// more waits for writes that start from now on.
func (s *scribbler) more() {
	for range 3 {
		<-s.wrote
	}
}

// end stops writing and returns the error that stopped it earlier.
func (s *scribbler) end(t testing.TB) error {
	t.Helper()
	close(s.stop)
	s.writing.Wait()
	return s.err
}
