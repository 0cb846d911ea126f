package nbd

import (
	"bufio"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What came before a handshake was not encrypted, and anybody can have sent it: it must not be taken for a part of
// what is.
func TestBytesBeforeAHandshakeAreRefused(t *testing.T) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	go func() { _, _ = theirs.Write([]byte("early")) }()
	in := bufio.NewReader(ours)
	_, err := in.Peek(5)
	require.NoError(t, err)
	_, err = newSecureConn(ours, in, func(net.Conn) *tls.Conn {
		t.Error("a handshake has begun")
		_ = ours.Close()
		return tls.Client(ours, newClientTLS())
	})
	assert.ErrorIs(t, err, ErrProtocol)
}
