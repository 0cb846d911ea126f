package nbd

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The sent bytes are read unchanged. They are sent in pieces of all lengths, and read in pieces of all lengths, by all
// methods.
func TestASourceGivesWhatWasSent(t *testing.T) {
	for name, pair := range map[string]func(*testing.T) (net.Conn, net.Conn){
		"TCP": tcpPair, "unix": unixPair, "another": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			random := rand.New(rand.NewPCG(1, 2))
			sent := make([]byte, 8<<20)
			for i := range sent {
				sent[i] = byte(random.Uint32())
			}
			go func() {
				length := rand.New(rand.NewPCG(3, 4))
				for rest := sent; len(rest) > 0; {
					n := min(len(rest), 1+length.IntN(1<<(1+length.IntN(18))))
					if _, err := theirs.Write(rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
				_ = theirs.Close()
			}()
			s := newSource(ours)
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(1<<(1+random.IntN(17))))
				switch random.IntN(3) {
				case 0:
					n = min(n, readBuffer)
					got, err := s.Peek(n)
					require.NoError(t, err)
					require.True(t, bytes.Equal(rest[:n], got), "peeked %d bytes at %d", n, len(sent)-len(rest))
					continue
				case 1:
					got := make([]byte, n)
					_, err := io.ReadFull(s, got)
					require.NoError(t, err)
					require.True(t, bytes.Equal(rest[:n], got), "read %d bytes at %d", n, len(sent)-len(rest))
				case 2:
					_, err := s.Discard(n)
					require.NoError(t, err)
				}
				rest = rest[n:]
			}
			_, err := s.Read(make([]byte, 1))
			assert.ErrorIs(t, err, io.EOF)
			_, err = s.Peek(1)
			assert.ErrorIs(t, err, io.EOF)
			_, err = s.Discard(1)
			assert.ErrorIs(t, err, io.EOF)
		})
	}
}

// A connection that waits holds no buffer. A connection that has bytes holds one.
func TestASourceThatWaitsHoldsNoBuffer(t *testing.T) {
	ours, theirs := tcpPair(t)
	s := newSource(ours).(*socketSource)
	for range 2 {
		_, err := theirs.Write([]byte("abc"))
		require.NoError(t, err)
		got, err := s.Peek(2)
		require.NoError(t, err)
		assert.Equal(t, "ab", string(got))
		require.NotNil(t, s.buf)
		_, err = s.Discard(3)
		require.NoError(t, err)
		require.NoError(t, ours.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err = s.Peek(1)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Nil(t, s.buf)
		require.NoError(t, ours.SetReadDeadline(time.Time{}))
	}
}

// Bytes that were read before the end, or before a deadline, stay available.
func TestASourceKeepsWhatItHasWhenItFails(t *testing.T) {
	ours, theirs := unixPair(t)
	s := newSource(ours)
	_, err := theirs.Write([]byte("abc"))
	require.NoError(t, err)
	_, err = s.Peek(3)
	require.NoError(t, err)
	require.NoError(t, ours.SetReadDeadline(time.Unix(1, 0)))
	_, err = s.Peek(4)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, ours.SetReadDeadline(time.Time{}))
	require.NoError(t, theirs.Close())
	n, err := s.Discard(4)
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 3, n)
	require.NoError(t, ours.Close())
	_, err = s.Read(make([]byte, 1))
	require.Error(t, err)
	assert.True(t, errors.Is(err, net.ErrClosed), err)
}
