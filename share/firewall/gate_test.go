package firewall

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guard installs a gate in the server's network. Its slots last for long, so that no step of a test has a deadline.
func (d clientRules) guard(life time.Duration) gate {
	d.t.Helper()
	g := gate{port: testPort, ttl: life}
	d.in(d.server, g.install)
	return g
}

// close waits until data sent over a connection gets no answer.
func (d clientRules) close(conn net.Conn) {
	d.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		require.False(d.t, time.Now().After(deadline), "it is answered still")
		require.NoError(d.t, conn.SetDeadline(time.Now().Add(500*time.Millisecond)))
		_, err := conn.Write([]byte("hello"))
		require.NoError(d.t, err)
		if _, err = io.ReadFull(conn, make([]byte, 5)); err != nil {
			return
		}
	}
}

// heard waits for data that was sent while the port was closed: the kernels send it again.
func (d clientRules) heard(conn net.Conn) {
	d.t.Helper()
	require.NoError(d.t, conn.SetDeadline(time.Now().Add(patience)))
	answer := make([]byte, 5)
	_, err := io.ReadFull(conn, answer)
	require.NoError(d.t, err)
	assert.Equal(d.t, "hello", string(answer))
}

// elements is the number of elements in a set.
func (d clientRules) elements(s *nftables.Set) int {
	d.t.Helper()
	var found []nftables.SetElement
	d.in(d.server, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		found, err = c.GetSetElements(s)
		return err
	})
	return len(found)
}

// A question that was armed and confirmed opens the port. The port closes at once, or when the question's time is over.
// Established connections pause and lose nothing.
func TestThePortOpensAndCloses(t *testing.T) {
	d := newClientRules(t)
	before := d.call("192.0.2.1")
	g := d.guard(time.Hour)
	d.close(before)
	d.refused("192.0.2.2")
	d.refused("fd00:2::2")
	d.in(d.server, func() error { // Ganesha's supervisor
		conn, err := net.Dial("tcp", "127.0.0.1:2049")
		if err == nil {
			d.echo(conn)
			err = conn.Close()
		}
		return err
	})
	d.in(d.server, func() error { return g.arm(0) })
	d.refused("192.0.2.2")
	d.in(d.server, func() error { return g.confirm(0) })
	d.heard(before)
	six := d.call("fd00:2::1")

	// The next question is under way, and is then confirmed; the port stays open.
	d.in(d.server, func() error { return g.arm(1) })
	d.echo(six)
	d.in(d.server, func() error { return g.confirm(1) })
	d.in(d.server, func() error { return g.arm(0) })
	d.echo(six)
	d.in(d.server, func() error { return g.arm(1) })
	d.close(six)
	d.in(d.server, func() error { return g.confirm(1) })
	d.heard(six)

	d.in(d.server, g.close)
	d.close(six)
	d.in(d.server, g.open)
	d.heard(six)
	d.in(d.server, func() error { return g.limit(0) })
	d.echo(six)
	assert.Zero(t, d.elements(g.armed(withoutLimit)))
	assert.Equal(t, 1, d.elements(g.armed(0)))
	d.in(d.server, g.close)
	d.close(six)
	d.in(d.server, g.remove)
	d.heard(six)
}

// The process does nothing after a "yes": the kernel closes the port. The process confirms late, after a pause: that
// opens nothing.
func TestTheKernelClosesThePortOfAPausedProcess(t *testing.T) {
	d := newClientRules(t)
	g := d.guard(2 * time.Second)
	d.in(d.server, func() error { return g.arm(0) })
	d.in(d.server, func() error { return g.confirm(0) })
	conn := d.call("192.0.2.1")
	d.close(conn)
	assert.Zero(t, d.elements(g.armed(0)))

	d.in(d.server, func() error { return g.arm(1) })
	require.Eventually(t, func() bool { return d.elements(g.armed(1)) == 0 }, patience, 10*time.Millisecond)
	d.in(d.server, func() error { return g.confirm(1) })
	d.silent(conn)
	d.in(d.server, g.open)
	d.heard(conn)
}

// A port that was open without limit is limited from then on.
func TestATimeLimitNeedsNoProcess(t *testing.T) {
	d := newClientRules(t)
	g := d.guard(time.Second)
	d.in(d.server, g.open)
	conn := d.call("192.0.2.1")
	require.Eventually(t, func() bool { return d.elements(g.armed(withoutLimit)) == 1 }, patience, time.Millisecond)
	d.in(d.server, func() error { return g.limit(0) })
	d.close(conn)
}
