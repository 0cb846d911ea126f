package firewall

import (
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAClientThatFindsNoServerIsNotRefused: a client without a server gets no answer, so the kernel's NFS client comes
// back sooner. A connected client still learns that its server exited.
func TestAClientThatFindsNoServerIsNotRefused(t *testing.T) {
	d := newClientRules(t)
	const nobody = testPort + 1
	conn := d.call("192.0.2.1")
	d.call("fd00:2::1")
	dial := func(network, to string, port int) error {
		var err error
		d.in(network, func() error {
			var conn net.Conn
			conn, err = net.DialTimeout("tcp", net.JoinHostPort(to, strconv.Itoa(port)), time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return nil
		})
		return err
	}
	addresses := []string{"192.0.2.100", "fd00:2::100"}
	for _, to := range addresses {
		require.ErrorIs(t, dial(d.client, to, nobody), syscall.ECONNREFUSED, "the test's network tells %s", to)
	}
	d.in(d.server, func() error { return DropRefusals(nobody) })
	d.in(d.server, func() error { return DropRefusals(nobody) }) // another process of the same pod
	for _, to := range addresses {
		err := dial(d.client, to, nobody)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		assert.True(t, timeout.Timeout(), "%s: %v", to, err)
		assert.ErrorIs(t, dial(d.client, to, nobody+1), syscall.ECONNREFUSED, "another port of %s", to)
	}
	assert.ErrorIs(t, dial(d.server, "127.0.0.1", nobody), syscall.ECONNREFUSED, "from this machine")

	d.in(d.server, func() error { return DropRefusals(testPort) })
	d.reset()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, syscall.ECONNRESET, "a connection that was there")
}
