package csi

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/servicenet"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
	"github.com/longhorn-lep/longhorn-manager/util/flow"
)

// fakeNetwork is a shareNetwork with fixed values.
type fakeNetwork struct {
	serving     netip.AddrPort
	connections []shareConnection
	// closed, silent, unknown and stuck are the errors of the questions.
	closed, silent, unknown, stuck error
	broken, forgotten              []flow.Flow
}

func (f *fakeNetwork) Connect(context.Context, netip.AddrPort) (netip.AddrPort, net.Conn, error) {
	return f.serving, nil, f.closed
}

func (f *fakeNetwork) Ask(context.Context, net.Conn) error { return f.silent }

func (f *fakeNetwork) Connections(netip.AddrPort) ([]shareConnection, error) {
	return slices.Clone(f.connections), f.unknown
}

func (f *fakeNetwork) Break(c flow.Socket) error {
	f.broken = append(f.broken, c.Flow)
	return f.stuck
}

func (f *fakeNetwork) Forget(c flow.Flow) error {
	f.forgotten = append(f.forgotten, c)
	return f.stuck
}

// untouched is a touch that does nothing.
func untouched(netip.Addr) {}

// standing is a clock that does not advance.
func standing() time.Time { return time.Unix(1e9, 0) }

// lookAnew checks all shares, as if each was due.
func lookAnew(t *testing.T, f *follower) time.Duration {
	f.keep(nil)
	return f.checkShares(t.Context())
}

func TestConnectionsToTheFormerPodAreRedirected(t *testing.T) {
	oldPod, newPod := netip.MustParseAddrPort("10.1.0.4:2049"), netip.MustParseAddrPort("10.1.1.4:2049")
	share := netip.MustParseAddrPort("10.96.0.9:2049")
	first := flow.Flow{Local: netip.MustParseAddrPort("10.0.0.7:801"), Remote: share}
	second := flow.Flow{Local: netip.MustParseAddrPort("10.0.0.7:802"), Remote: share}
	to := func(f flow.Flow, pod netip.AddrPort) shareConnection {
		return shareConnection{flow.Socket{Flow: f}, pod}
	}
	opening := func(f flow.Flow, pod netip.AddrPort, retry time.Duration) shareConnection {
		return shareConnection{flow.Socket{Flow: f, Opening: true, Retry: retry}, pod}
	}
	boom := errors.New("boom")
	for _, c := range []struct {
		name      string
		network   fakeNetwork
		broken    []flow.Flow
		forgotten []flow.Flow
		logged    bool
		again     time.Duration
	}{
		{"another pod serves → the connection to the former is closed", fakeNetwork{serving: newPod, connections: []shareConnection{to(first, oldPod), to(second, newPod)}}, []flow.Flow{first}, nil, true, followInterval},
		{"another pod accepts connections and does not serve yet → it stays: the former server may work", fakeNetwork{serving: newPod, silent: boom, connections: []shareConnection{to(first, oldPod), to(second, newPod)}}, nil, nil, false, followRetryInterval},
		{"it is being opened, and the kernel tries again soon → it is forgotten", fakeNetwork{serving: newPod, silent: boom, connections: []shareConnection{opening(first, oldPod, soonRetry), to(second, oldPod)}}, nil, []flow.Flow{first}, true, followRetryInterval},
		{"it is being opened, and its next try may be on its way → it stays until the next look", fakeNetwork{serving: newPod, silent: boom, connections: []shareConnection{opening(first, oldPod, tryUnderWay-1)}}, nil, nil, false, followRetryInterval},
		{"it is being opened, and the kernel tries again late → it is closed", fakeNetwork{serving: newPod, silent: boom, connections: []shareConnection{opening(first, oldPod, soonRetry+1)}}, []flow.Flow{first}, nil, true, followRetryInterval},
		{"it is being opened to the pod that serves, and the kernel tries again soon → it stays", fakeNetwork{serving: newPod, connections: []shareConnection{opening(first, newPod, abortedPause)}}, nil, nil, false, followInterval},
		{"it is being opened to the pod that serves, and the kernel tries again late → it is closed", fakeNetwork{serving: newPod, silent: boom, connections: []shareConnection{opening(first, newPod, abortedPause+1)}}, []flow.Flow{first}, nil, true, followRetryInterval},
		{"the same pod serves → none is closed", fakeNetwork{serving: oldPod, connections: []shareConnection{to(first, oldPod)}}, nil, nil, false, followInterval},
		{"no pod accepts connections → none is closed", fakeNetwork{closed: boom, connections: []shareConnection{to(first, oldPod), opening(second, oldPod, time.Second)}}, nil, nil, false, followRetryInterval},
		{"the kernel does not track connections → none is closed", fakeNetwork{closed: flow.ErrNoPeer, connections: []shareConnection{to(first, oldPod)}}, nil, nil, false, followInterval},
		{"the kernel does not track connections, and the server is silent → none is closed", fakeNetwork{closed: flow.ErrNoPeer, silent: boom, connections: []shareConnection{to(first, oldPod)}}, nil, nil, false, followRetryInterval},
		{"the connections are not known → none is closed, and this is logged", fakeNetwork{serving: newPod, unknown: boom}, nil, nil, true, followInterval},
		{"it cannot be closed → this is logged", fakeNetwork{serving: newPod, connections: []shareConnection{to(first, oldPod)}, stuck: boom}, []flow.Flow{first}, nil, true, followInterval},
		{"one of several cannot be closed → the others are", fakeNetwork{serving: newPod, connections: []shareConnection{to(first, oldPod), to(second, oldPod)}, stuck: boom}, []flow.Flow{first, second}, nil, true, followInterval},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, hook := logtest.NewNullLogger()
				f := &follower{servers: func() ([]netip.Addr, error) { return []netip.Addr{share.Addr()}, nil }, network: &c.network, log: logrus.NewEntry(logger), now: standing, touch: untouched}
				began := time.Now()
				assert.Equal(t, c.again, f.checkShares(t.Context()))
				assert.ElementsMatch(t, c.broken, c.network.broken)
				assert.ElementsMatch(t, c.forgotten, c.network.forgotten)
				assert.Zero(t, time.Since(began), "it does not wait before it closes connections")
				assert.Equal(t, c.logged, len(hook.Entries) > 0)
			})
		})
	}
}

// askedNetwork records which shares were asked; those in silent give no answer.
type askedNetwork struct {
	fakeNetwork
	mu     sync.Mutex
	asked  []string
	silent map[string]bool
}

func (a *askedNetwork) Connect(_ context.Context, server netip.AddrPort) (netip.AddrPort, net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := server.Addr().String()
	a.asked = append(a.asked, name)
	if a.silent[name] {
		return netip.AddrPort{}, nil, errors.New("no answer")
	}
	return server, nil, nil
}

// A share that is down for days costs a node with many other shares no more than a share that serves.
func TestAShareWithoutAnAnswerIsAskedMoreOften(t *testing.T) {
	const down, up, gone = "10.96.0.1", "10.96.0.2", "10.96.0.3"
	logger, _ := logtest.NewNullLogger()
	now := standing()
	mounted := []netip.Addr{netip.MustParseAddr(down), netip.MustParseAddr(up), netip.MustParseAddr(gone)}
	network := &askedNetwork{silent: map[string]bool{down: true}}
	f := &follower{
		servers: func() ([]netip.Addr, error) { return mounted, nil },
		network: network, log: logrus.NewEntry(logger), now: func() time.Time { return now }, touch: untouched,
	}
	questions := func(of string, during time.Duration) (count int) {
		network.asked = nil
		for end := now.Add(during); now.Before(end); {
			now = now.Add(f.checkShares(t.Context()))
		}
		for _, name := range network.asked {
			if name == of {
				count++
			}
		}
		return count
	}
	assert.Equal(t, 20, questions(down, 6*time.Second))
	assert.Equal(t, 3, questions(up, 6*time.Second))
	questions(down, followRetryPeriod)
	assert.Equal(t, 30, questions(down, time.Minute))
	network.silent[down] = false
	questions(down, followInterval)
	network.silent[down] = true
	questions(down, followInterval)
	assert.Equal(t, 20, questions(down, 6*time.Second), "it gave an answer meanwhile")
	mounted = mounted[:2]
	assert.Zero(t, questions(gone, 6*time.Second))
	assert.Len(t, f.shares, 2)
}

func TestARepeatedFailureIsLoggedOnce(t *testing.T) {
	logger, hook := logtest.NewNullLogger()
	boom := errors.New("boom")
	f := &follower{servers: func() ([]netip.Addr, error) { return nil, boom }, log: logrus.NewEntry(logger), now: standing, touch: untouched}
	lookAnew(t, f)
	lookAnew(t, f)
	assert.Len(t, hook.Entries, 1)
	boom = nil
	lookAnew(t, f)
	boom = errors.New("boom")
	lookAnew(t, f)
	assert.Len(t, hook.Entries, 2)
}

// nullWords is the length of a call of the null procedure, with its record mark.
const nullWords = 11

// answerNull is an NFS server that knows the null procedure.
func answerNull(conn net.Conn) {
	for {
		call := make([]uint32, nullWords)
		if binary.Read(conn, binary.BigEndian, call) != nil {
			return
		}
		reply := []uint32{1<<31 | 24, call[1], 1, 0, 0, 0, 0}
		if binary.Write(conn, binary.BigEndian, reply) != nil {
			return
		}
	}
}

// TestANodeFollowsItsShare: the pod to which the Service led is frozen, and its kernel continues. The connection to it
// is closed when another pod answers, and not before. A socket stands for the kernel's NFS client, which not every
// kernel that runs this test has.
func TestANodeFollowsItsShare(t *testing.T) {
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	n := servicenet.New(t, func(pod int, conn net.Conn) {
		if pod == 0 {
			<-released // it is frozen
			return
		}
		answerNull(conn)
	})
	n.Lead(0)
	client := n.Dial(servicenet.Service, 0)
	direct := n.Dial(servicenet.Pods[0], 0)
	logger, hook := logtest.NewNullLogger()
	f := &follower{
		servers: func() ([]netip.Addr, error) { return []netip.Addr{servicenet.Service.Addr()}, nil },
		network: nodeNetwork(n.File), log: logrus.NewEntry(logger), now: standing, touch: untouched,
	}
	t.Cleanup(func() { f.keep(nil) })
	lookAnew(t, f)
	assert.Empty(t, hook.Entries, "no other pod serves")
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)

	n.Lead(1)
	lookAnew(t, f)
	require.NoError(t, client.SetDeadline(time.Now().Add(time.Minute)))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, unix.ECONNABORTED)
	require.NotNil(t, hook.LastEntry())
	assert.Equal(t, "Closed a connection to the former pod of a share", hook.LastEntry().Message)
	assert.Equal(t, servicenet.Pods[0], hook.LastEntry().Data["former"])
	_, err = direct.Write([]byte("x"))
	require.NoError(t, err, "it is not one of the Service's")

	next := n.Dial(servicenet.Service, client.LocalAddr().(*net.TCPAddr).Port)
	require.NoError(t, nfsclient.Null(next))
	hook.Reset()
	lookAnew(t, f)
	assert.Empty(t, hook.Entries, "the client is where the share is")
	require.NoError(t, nfsclient.Null(next))
}

// TestANodeFollowsItsShareFromADeadNode: the client is opening a connection to a pod on a node without power when
// another pod serves.
func TestANodeFollowsItsShareFromADeadNode(t *testing.T) {
	n := servicenet.New(t, func(_ int, conn net.Conn) { answerNull(conn) })
	n.Lead(0)
	n.Silence(0)
	network := nodeNetwork(n.File)
	ended := n.Dialing(servicenet.Service)
	require.Eventually(t, func() bool {
		connections, err := network.Connections(servicenet.Service)
		return err == nil && len(connections) == 1
	}, time.Minute, time.Millisecond)
	n.Lead(1)
	logger, hook := logtest.NewNullLogger()
	f := &follower{servers: func() ([]netip.Addr, error) { return []netip.Addr{servicenet.Service.Addr()}, nil }, network: network, log: logrus.NewEntry(logger), now: standing, touch: untouched}
	t.Cleanup(func() { f.keep(nil) })
	assert.Equal(t, followInterval, f.checkShares(t.Context()))
	require.NoError(t, <-ended, "the kernel's next try, after at most a second, leads to the other pod")
	require.Len(t, hook.Entries, 1)
	assert.Equal(t, "A connection that was being opened to the former pod of a share now leads to the next pod", hook.LastEntry().Message)
}
