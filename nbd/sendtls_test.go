package nbd

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// overTLS makes the two ends of a TLS connection over the two ends of another.
func overTLS(pair func(*testing.T) (net.Conn, net.Conn)) func(*testing.T) (net.Conn, net.Conn) {
	return func(t *testing.T) (net.Conn, net.Conn) {
		t.Helper()
		ours, theirs := pair(t)
		config, err := newServerTLS()
		require.NoError(t, err)
		type end struct {
			*secureConn
			err error
		}
		server := make(chan end, 1)
		go func() {
			s, err := newSecureConn(theirs, newSource(theirs), func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
			server <- end{s, err}
		}()
		client, err := newSecureConn(ours, newSource(ours), func(c net.Conn) *tls.Conn { return tls.Client(c, newClientTLS()) })
		require.NoError(t, err)
		s := <-server
		require.NoError(t, s.err)
		return client, s.secureConn
	}
}

// offering has the kernel take at most n bytes of each offer of q, and counts the offers.
func offering(q *sendQueue, n int) *int {
	offers := 0
	q.offered = func(fd uintptr) bool {
		offers++
		p := q.vec[0]
		if n < len(p) {
			p = p[:n]
		}
		if len(p) > 0 {
			q.n, q.err = unix.Write(int(fd), p)
		}
		return true
	}
	return &offers
}

func TestWhatTheKernelLeavesOfSealedFramesIsSentFirst(t *testing.T) {
	for _, n := range []int{0, 1, 20, 1 << 20} {
		ours, theirs := overTLS(tcpPair)(t)
		q, to := newSendQueue(ours), newFates()
		offers := offering(q, n)
		q.yield = func() { // another frame comes while the sender lets others run
			q.yield = func() {}
			q.send(to.frame("b", "B"))
		}
		q.send(to.frame("a", "A"))
		assert.Equal(t, []string{"a sent", "b sent"}, to.all(), "their bytes are no longer used")
		q.send(to.frame("c", "C"))
		got := make([]byte, 6)
		_, err := io.ReadFull(theirs, got)
		require.NoError(t, err)
		q.wait()
		assert.Equal(t, "aAbBcC", string(got), "%d bytes taken", n)
		assert.Positive(t, *offers)
		assert.Equal(t, []string{"a sent", "b sent", "c sent"}, to.all())
		assert.Nil(t, q.sealed, "records are kept")
		q.fail(errors.New("the end"))
	}
}

func TestWhatIsMuchIsSealedByTheWriter(t *testing.T) {
	much := strings.Repeat("x", maxSealBySender)
	for name, send := range map[string]func(*sendQueue, *fates){
		"the frame":                 func(q *sendQueue, to *fates) { q.send(to.frame("a", much)) },
		"what came while it waited": func(q *sendQueue, to *fates) { q.send(to.frame("a", "")) },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := overTLS(tcpPair)(t)
			q, to := newSendQueue(ours), newFates()
			offers := offering(q, 1<<20)
			want := "a" + much
			if name != "the frame" {
				q.yield = func() {
					q.yield = func() {}
					q.send(to.frame("", much))
				}
			}
			send(q, to)
			got := make([]byte, len(want))
			_, err := io.ReadFull(theirs, got)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
			q.wait()
			assert.Zero(t, *offers, "a sender sealed it")
			q.fail(errors.New("the end"))
		})
	}
}

func TestASenderOverTLSWhoseOfferFails(t *testing.T) {
	ours, _ := overTLS(tcpPair)(t)
	q, to := newSendQueue(ours), newFates()
	q.offered = func(uintptr) bool { q.err = syscall.EPIPE; return true }
	q.send(to.frame("a", "A"))
	q.send(to.frame("z", "Z"))
	q.wait()
	assert.Equal(t, []string{"a broken", "z unsent"}, to.all())
	assert.EqualError(t, q.explain(nil), "send: broken pipe")
	assert.Nil(t, q.sealed, "records are kept")
}
