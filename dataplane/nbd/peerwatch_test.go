package nbd

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestSuspicion(t *testing.T) {
	type look struct {
		at   int // seconds
		info unix.TCPInfo
		dead bool
	}
	ms := func(seconds float64) uint32 { return uint32(seconds * 1000) }
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"everything was taken → alive, however long ago", []look{
			{0, unix.TCPInfo{Last_data_sent: ms(3600), Last_ack_recv: ms(3600)}, false},
			{60, unix.TCPInfo{Last_data_sent: ms(3660), Last_ack_recv: ms(3660)}, false},
		}},
		{"a closed window whose probes are answered → alive, though they are far apart", []look{
			{0, unix.TCPInfo{Notsent_bytes: 1, Last_data_sent: ms(100), Last_ack_recv: ms(50)}, false},
			// The last was sent a moment ago.
			{5, unix.TCPInfo{Notsent_bytes: 1, Probes: 1, Last_data_sent: ms(220), Last_ack_recv: ms(110)}, false},
			{10, unix.TCPInfo{Notsent_bytes: 1, Last_data_sent: ms(225), Last_ack_recv: ms(5)}, false},
			{125, unix.TCPInfo{Notsent_bytes: 1, Probes: 1, Last_data_sent: ms(340), Last_ack_recv: ms(120)}, false},
		}},
		{"data that the peer's kernel refuses with an answer each time → alive", []look{
			{0, unix.TCPInfo{Unacked: 1, Last_data_sent: ms(0.1), Last_ack_recv: ms(30)}, false},
			{30, unix.TCPInfo{Unacked: 1, Last_data_sent: ms(30.1), Last_ack_recv: ms(30.05)}, false},
			{60, unix.TCPInfo{Unacked: 1, Last_data_sent: ms(0.1), Last_ack_recv: ms(60.05)}, false},
		}},
		{"probes that nobody answers → dead", []look{
			{0, unix.TCPInfo{Notsent_bytes: 1, Probes: 1, Segs_out: 7, Last_ack_recv: ms(9)}, false},
			{19, unix.TCPInfo{Notsent_bytes: 1, Probes: 3, Segs_out: 9, Last_ack_recv: ms(28)}, false},
			{20, unix.TCPInfo{Notsent_bytes: 1, Probes: 3, Segs_out: 9, Last_ack_recv: ms(29)}, true},
		}},
		{"a probe that was lost → alive until two more go unanswered", []look{
			{0, unix.TCPInfo{Notsent_bytes: 1, Probes: 1, Segs_out: 7, Last_ack_recv: ms(9)}, false},
			{100, unix.TCPInfo{Notsent_bytes: 1, Probes: 1, Segs_out: 7, Last_ack_recv: ms(109)}, false},
			{130, unix.TCPInfo{Notsent_bytes: 1, Probes: 2, Segs_out: 8, Last_ack_recv: ms(139)}, false},
			{250, unix.TCPInfo{Notsent_bytes: 1, Probes: 3, Segs_out: 9, Last_ack_recv: ms(259)}, true},
		}},
		{"data that nobody acknowledges → dead, counted from when it was first seen and not from the last answer", []look{
			{0, unix.TCPInfo{Unacked: 1, Segs_out: 1, Last_data_sent: ms(0.2), Last_ack_recv: ms(3600)}, false},
			{19, unix.TCPInfo{Unacked: 1, Segs_out: 6, Last_data_sent: ms(6), Last_ack_recv: ms(3619)}, false},
			{20, unix.TCPInfo{Unacked: 1, Segs_out: 6, Last_data_sent: ms(7), Last_ack_recv: ms(3620)}, true},
		}},
		{"an answer in between → counted anew", []look{
			{0, unix.TCPInfo{Unacked: 1, Segs_out: 1, Last_data_sent: ms(0.2), Last_ack_recv: ms(9)}, false},
			{20, unix.TCPInfo{Unacked: 1, Segs_out: 6, Last_data_sent: ms(0.2), Last_ack_recv: ms(5)}, false},
			{39, unix.TCPInfo{Unacked: 1, Segs_out: 12, Last_data_sent: ms(9), Last_ack_recv: ms(24)}, false},
			{40, unix.TCPInfo{Unacked: 1, Segs_out: 12, Last_data_sent: ms(9), Last_ack_recv: ms(25)}, true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s suspicion
			for _, l := range c.looks {
				require.Equal(t, l.dead, s.confirms(time.Unix(int64(l.at), 0), &l.info, 20*time.Second), "after %d s", l.at)
			}
		})
	}
}

// watched returns a send queue on a TCP connection with a watch that checks often and has little patience.
func watched(t *testing.T) (q *sendQueue, theirs net.Conn) {
	t.Helper()
	ours, theirs := tcpPair(t)
	q = newSendQueue(ours)
	q.watch.every, q.watch.after = 10*time.Millisecond, 50*time.Millisecond
	t.Cleanup(func() { q.fail(errors.New("the end")); q.wait() })
	return q, theirs
}

func TestTheKernelCountsNoClosedWindow(t *testing.T) {
	ours, _ := tcpPair(t)
	tuneTCP(ours)
	raw, err := ours.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	var ms int
	cerr := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
	require.NoError(t, cerr)
	require.NoError(t, err)
	assert.Zero(t, ms, "the kernel ends the connection to a peer that has not read for %d ms", ms)
}

// deafen makes a connection's kernel drop all packets that arrive for it, as if the machine were gone.
func deafen(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	require.NoError(t, err)
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	require.NoError(t, cerr)
	require.NoError(t, err)
}

// awaitDeath waits until the connection is abandoned because the peer's machine is gone.
func awaitDeath(t *testing.T, q *sendQueue) {
	t.Helper()
	_ = q.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := q.conn.Read(make([]byte, 1)) // like a client's reader
	assert.ErrorIs(t, err, net.ErrClosed)
	assert.ErrorIs(t, q.explain(err), errPeerDead)
}

func TestADeadPeerIsNoticed(t *testing.T) {
	for name, payload := range map[string]int{"a request in the kernel's hands": 100, "more than the kernel takes": large} {
		t.Run(name, func(t *testing.T) {
			q, theirs := watched(t)
			to := newFates()
			deafen(t, theirs)
			q.send(to.frame("a", random(payload)))
			awaitDeath(t, q)
			<-to.n // the frame's owner has its memory back
		})
	}
}

// TestAPeerThatDoesNotReadIsNotCut checks a peer a hundred times. The peer is alive and reads nothing, and the watch
// has little patience for a dead peer.
func TestAPeerThatDoesNotReadIsNotCut(t *testing.T) {
	for name, after := range map[string]func(*testing.T, *sendQueue, *fates, net.Conn){
		"then it reads → it gets everything": func(t *testing.T, _ *sendQueue, to *fates, theirs net.Conn) {
			got := make([]byte, 1+large)
			_, err := io.ReadFull(theirs, got)
			assert.True(t, err == nil && string(got[1:]) == random(large), "the peer read other bytes, or not all: %v", err)
			<-to.n
		},
		"then it dies → it is noticed": func(t *testing.T, q *sendQueue, to *fates, theirs net.Conn) {
			deafen(t, theirs)
			awaitDeath(t, q)
			<-to.n
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, theirs := watched(t)
			looks := make(chan struct{}, 10000)
			busy := q.watch.busy
			q.watch.busy = func() bool { looks <- struct{}{}; return busy() }
			to := newFates()
			q.send(to.frame("a", random(large)))
			for range 100 {
				select {
				case <-looks:
				case <-to.n:
					t.Fatalf("told %v: %v", to.all(), q.explain(nil))
				}
			}
			after(t, q, to, theirs)
		})
	}
}

// TestThePeerWatchIsIdleWhenEverythingWasTaken shows that an idle connection is not checked.
func TestThePeerWatchIsIdleWhenEverythingWasTaken(t *testing.T) {
	q, theirs := watched(t)
	to := newFates()
	for range 2 { // and that the next request wakes it
		q.send(to.frame("a", "A"))
		require.True(t, q.watch.armed.Load(), "nobody looks at a request that was just sent")
		_, err := io.ReadFull(theirs, make([]byte, 2))
		require.NoError(t, err)
		for end := time.Now().Add(20 * time.Second); q.watch.armed.Load(); time.Sleep(time.Millisecond) {
			require.False(t, time.Now().After(end), "the watch does not end")
		}
	}
}
