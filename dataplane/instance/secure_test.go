package instance

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// wiretap forwards connections to a node and stores the data.
type wiretap struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu
}

func tap(t *testing.T, to string) *wiretap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wiretap{listener: l}
	w.serving.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.serving.Go(func() { w.pass(near, far) })
			w.serving.Go(func() { w.pass(far, near) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); w.serving.Wait() })
	return w
}

func (w *wiretap) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.seen.Write(buf[:n])
		w.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wiretap) has(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.seen.Bytes(), []byte(what))
}

// TestWhatAnEngineSendsIsNotRead writes through an engine, has a replica rebuilt, and examines all data between the
// nodes.
func TestWhatAnEngineSendsIsNotRead(t *testing.T) {
	for _, tc := range []struct {
		name string
		tls  bool
	}{{"over TLS → nothing", true}, {"without → all of it, so the test can tell", false}} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			spec := c.engineSpec(1, nil)
			wires := map[string]*wiretap{}
			for i, m := range spec.GetMembers() {
				wires[m.GetName()] = tap(t, c[i].DataAddr().String())
				m.Address, m.Tls = wires[m.GetName()].listener.Addr().String(), tc.tls
			}
			c.startEngine(c[0], spec)
			v, err := c[0].dialTool("engine/" + volume)
			require.NoError(t, err)
			words := bytes.Repeat([]byte("what a user keeps to himself "), 1000)
			words = words[:len(words)/512*512]
			require.NoError(t, v.WriteAt(t.Context(), words, 0, true))
			require.NoError(t, v.Close())
			c[0].stopEngine()
			for _, n := range c[1:] {
				assert.Equal(t, !tc.tls, wires[n.replicaName()].has("keeps to himself"), "data on the way to %s", n.replicaName())
				assert.Equal(t, !tc.tls, wires[n.replicaName()].has(n.replicaName()), "the name of %s", n.replicaName())
				assert.Equal(t, c[0].replicaHash(), n.replicaHash(), "replica %d", n.number)
			}
		})
	}
}

// TestAPodAtAnOldAddressIsGivenNothing gives another process the address of an instance manager. That process serves a
// replica of the same name, but does not have the volume's key.
func TestAPodAtAnOldAddressIsGivenNothing(t *testing.T) {
	c := newCluster(t)
	epoch := c.startEngine(c[0], c.engineSpec(1, nil))
	c[0].stopEngine()
	impostor := newNode(t, 3)
	s := impostor.replicaSpec()
	s.Secret = wrong
	_, err := impostor.ReplicaCreate(context.Background(), s)
	require.NoError(t, err)
	_, err = impostor.ReplicaStart(context.Background(), s)
	require.NoError(t, err)

	spec := c.engineSpec(2, epoch)
	spec.Members[2].Address = impostor.DataAddr().String()
	next := c.startEngine(c[0], spec)
	assert.Equal(t, []string{"vol-r-1", "vol-r-2"}, next.GetMembers(), "the members of the next epoch")
	state := impostor.until("its replica", func(s *proto.State) bool { return len(s.GetReplicas()) == 1 })
	assert.Zero(t, state.GetReplicas()[0].GetGeneration(), "an engine was let in")
	c[0].stopEngine()
}

// TestTLSIsDemandedWhenTheDaemonSaysSo checks that the demand applies to new connections, and can be withdrawn.
func TestTLSIsDemandedWhenTheDaemonSaysSo(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	dial := func(generation string, overTLS bool) (*nbd.Client, error) {
		return nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/"+generation, nbd.DialOptions{Secret: secret, TLS: overTLS})
	}
	demand := func(only bool) {
		t.Helper()
		s := n.replicaSpec()
		s.TlsOnly = only
		_, err := n.ReplicaStart(t.Context(), s)
		require.NoError(t, err)
		n.until("the demand", func(s *proto.State) bool { return len(s.GetReplicas()) == 1 && s.GetReplicas()[0].GetTlsOnly() == only })
	}
	early, err := dial("1/one", false)
	require.NoError(t, err, "an engine of an earlier release")
	demand(true)
	require.NoError(t, early.Flush(t.Context()), "a connection that exists")
	_, err = dial("2/two", false)
	require.ErrorContains(t, err, "only over TLS")
	require.NoError(t, early.Flush(t.Context()), "one that was refused disturbed the one inside")
	secured, err := dial("3/three", true)
	require.NoError(t, err)
	require.NoError(t, secured.Flush(t.Context()))
	demand(false)
	late, err := dial("4/four", false)
	require.NoError(t, err)
	for _, c := range []*nbd.Client{early, secured, late} {
		require.NoError(t, c.Close())
	}
}
