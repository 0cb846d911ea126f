package flow

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/servicenet"
	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

const patience = time.Minute

// node is a network with pods that send back the bytes that they receive.
func node(t *testing.T) (*servicenet.Net, <-chan error) {
	t.Helper()
	ended := make(chan error, 8) // the results of connections at the first pod
	return servicenet.New(t, func(pod int, conn net.Conn) {
		_, err := io.Copy(conn, conn)
		if pod == 0 {
			ended <- err
		}
	}), ended
}

func flowOf(t *testing.T, conn net.Conn) Flow {
	t.Helper()
	return Flow{netip.MustParseAddrPort(conn.LocalAddr().String()), netip.MustParseAddrPort(conn.RemoteAddr().String())}
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 5))
	require.NoError(t, err)
}

// read waits until a connection ends.
func read(t *testing.T, conn net.Conn) error {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Read(make([]byte, 1))
	return err
}

func peer(t *testing.T, n *servicenet.Net, f Flow) netip.AddrPort {
	t.Helper()
	var found netip.AddrPort
	n.In(func() (err error) { found, err = f.Peer(); return err })
	return found
}

func TestOneConnectionIsBrokenAndNoOther(t *testing.T) {
	n, ended := node(t)
	n.Lead(0)
	old, direct := n.Dial(servicenet.Service, 0), n.Dial(servicenet.Pods[0], 0)
	echo(t, old)
	n.Lead(1)
	next := n.Dial(servicenet.Service, 0)
	echo(t, next)
	echo(t, old) // it is not changed

	was, is := flowOf(t, old), flowOf(t, next)
	broken := Socket{Flow: was}
	assert.Equal(t, servicenet.Pods[0], peer(t, n, was))
	assert.Equal(t, servicenet.Pods[1], peer(t, n, is))
	var found []Socket
	n.In(func() (err error) { found, err = To(servicenet.Service); return err })
	assert.ElementsMatch(t, []Socket{{Flow: was}, {Flow: is}}, found)

	n.In(broken.Break)
	require.ErrorIs(t, read(t, old), unix.ECONNABORTED)
	require.ErrorIs(t, <-ended, unix.ECONNRESET)
	echo(t, next)
	echo(t, direct)
	n.In(broken.Break) // again

	again := n.Dial(servicenet.Service, int(was.Local.Port())) // like the kernel's NFS client when it comes back
	echo(t, again)
	assert.Equal(t, servicenet.Pods[1], peer(t, n, flowOf(t, again)))
}

// TestAConnectionMayBeReopenedWhileItIsBroken: the kernel's NFS client connects again from the same port at once. If
// Break removed a tracking entry then, the entry would belong to the next connection, and its answers would be lost.
func TestAConnectionMayBeReopenedWhileItIsBroken(t *testing.T) {
	n, _ := node(t)
	for i := range 60 {
		n.Lead(0)
		old := n.Dial(servicenet.Service, 20000+i)
		echo(t, old)
		n.Lead(1)
		reopened := make(chan error, 1)
		go func() { reopened <- netns.In(n.File, func() error { return reopen(old) }) }()
		n.In(Socket{Flow: flowOf(t, old)}.Break)
		require.NoError(t, <-reopened, "round %d", i)
	}
}

// reopen waits until a connection is aborted, opens it again from the same port, and uses it.
func reopen(old net.Conn) error {
	port := old.LocalAddr().(*net.TCPAddr).Port
	_, _ = old.Read(make([]byte, 1))
	_ = old.Close()
	next, err := (&net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: patience}).Dial("tcp4", servicenet.Service.String())
	if err != nil {
		return err
	}
	defer next.Close()
	if err := next.SetDeadline(time.Now().Add(3 * time.Second)); err != nil { // of a lost answer nothing comes
		return err
	}
	if _, err := next.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(next, make([]byte, 5))
	return err
}

// halfOpen is a connection to the Service, in a node's network, that was opened after the pod's node had lost its
// power. The kernel sends the first packet to that pod again and again, even when the Service leads elsewhere. ended
// receives the result of the connection.
func halfOpen(t *testing.T) (n *servicenet.Net, s Socket, ended <-chan error) {
	t.Helper()
	n, _ = node(t)
	n.Lead(0)
	n.Silence(0)
	ended = n.Dialing(servicenet.Service)
	require.Eventually(t, func() bool {
		var found []Socket
		n.In(func() (err error) { found, err = To(servicenet.Service); return err })
		// the socket exists a moment before its timer; a timer that has just started has about 1 s (RFC 6298)
		if len(found) != 1 || found[0].Retry < time.Second/2 {
			return false
		}
		s = found[0]
		return true
	}, patience, time.Millisecond)
	assert.True(t, s.Opening)
	assert.LessOrEqual(t, s.Retry, time.Second)
	return n, s, ended
}

func TestAConnectionThatIsBeingOpenedIsBroken(t *testing.T) {
	n, s, ended := halfOpen(t)
	assert.Equal(t, servicenet.Pods[0], peer(t, n, s.Flow))
	n.Lead(1)
	n.In(s.Break)
	require.ErrorIs(t, <-ended, unix.ECONNABORTED)
	require.NoError(t, <-n.Dialing(servicenet.Service))
}

// TestAConnectionThatIsBeingOpenedIsRoutedAgain: the kernel's next try, of the same connection, goes where the Service
// leads then.
func TestAConnectionThatIsBeingOpenedIsRoutedAgain(t *testing.T) {
	n, s, ended := halfOpen(t)
	n.Lead(1)
	n.In(s.Forget)
	require.NoError(t, <-ended)
}

// TestAConnectionThatTheKernelForgotIsReset: this is the only effect if a kernel cannot destroy a socket. The client's
// next data goes to the other pod, which does not know the connection.
func TestAConnectionThatTheKernelForgotIsReset(t *testing.T) {
	n, _ := node(t)
	n.Lead(0)
	old := n.Dial(servicenet.Service, 0)
	echo(t, old)
	n.Lead(1)
	n.In(flowOf(t, old).Forget)
	_, err := old.Write([]byte("hello"))
	require.NoError(t, err)
	require.ErrorIs(t, read(t, old), unix.ECONNRESET)
}

func TestAnInvalidAnswerHasNoPeer(t *testing.T) {
	for name, attributes := range map[string][]byte{
		"nothing":                 nil,
		"cut off":                 {8, 0, 2, 0, 1},
		"an unknown attribute":    {4, 0, 99, 0},
		"a reply without a tuple": {4, 0, 2, 0x80},
	} {
		_, ok := replySource(attributes, unix.AF_INET)
		assert.False(t, ok, name)
	}
	_, ok := socketOf(make([]byte, diagAnswer-1))
	assert.False(t, ok)
}
