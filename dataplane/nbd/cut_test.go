package nbd

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testClient returns a Client on a connection after its handshake, without a reader.
func testClient(v *valve) *Client {
	c := &Client{
		opts: DialOptions{}.withDefaults(), out: newSendQueue(v), info: ExportInfo{Size: 1 << 20, Structured: true, CanFlush: true},
		limits: limits{blockMin: 1, maxPayload: MaxPayload, structured: true}, done: make(chan struct{}), reading: make(chan struct{}),
		calls: map[uint64]*call{},
	}
	c.size.Store(c.info.Size)
	return c
}

// TestACallThatTheReaderHoldsIsNotUsedAgain makes a connection fail while the reader is between the header and the end
// of a reply.
func TestACallThatTheReaderHoldsIsNotUsedAgain(t *testing.T) {
	v := newValve()
	c := testClient(v)
	close(c.reading)
	k, err := c.register(request{Type: cmdControl}, nil, nil)
	require.NoError(t, err)
	k.frameDone(frameSent)
	held, _, err := c.find(k.req.Cookie) // the reader has read the header
	require.NoError(t, err)
	cause := errors.New("cut")
	c.Cut(cause)
	<-k.done
	_, err = k.result()
	assert.ErrorIs(t, err, ErrUnknownOutcome)
	assert.ErrorIs(t, err, cause)
	c.finish(held, nil) // the reader reaches the end of the reply
	assert.Empty(t, k.done, "who uses the call now was told the outcome of another")
}

// TestMemoryIsReleasedOnlyAfterTheSocketReleasedIt cuts a connection while the socket holds one of its writes.
func TestMemoryIsReleasedOnlyAfterTheSocketReleasedIt(t *testing.T) {
	v := newValve()
	c := testClient(v)
	close(c.reading)
	told := make(chan error, 2)
	p := bytes.Repeat([]byte("x"), 4096)
	c.WriteAsync(p, 0, false, func(err error) { told <- err })
	<-v.entered // the socket has the first write
	c.WriteAsync(p, 4096, false, func(err error) { told <- err })
	cause := errors.New("expelled")
	c.Cut(cause)
	err := <-told
	assert.ErrorIs(t, err, ErrNotSent)
	assert.NotErrorIs(t, err, ErrUnknownOutcome)
	assert.ErrorIs(t, err, cause)
	require.Empty(t, told)
	require.True(t, v.isClosed(), "a write was told to have ended while the socket holds its memory, or the socket is open")
	v.result <- errors.New("closed")
	err = <-told
	assert.ErrorIs(t, err, ErrUnknownOutcome)
	assert.NotErrorIs(t, err, ErrNotSent)
	assert.ErrorIs(t, err, cause)
	assert.ErrorIs(t, c.Flush(context.Background()), ErrNotSent, "a flush after the cut")
	_ = c.Close()
}
