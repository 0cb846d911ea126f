package nbd

import (
	"bufio"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Bytes that came before a handshake were not encrypted, and anyone can have sent them. They must not be taken for
// encrypted data.
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
