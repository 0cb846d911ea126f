package nbd

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// testClient is a Client on a connection whose handshake is over, without a reader.
func testClient(v *valve) *Client {
	return &Client{
		conn: v, opts: DialOptions{}.withDefaults(), out: newSendQueue(v), info: ExportInfo{Size: 1 << 20, Structured: true, CanFlush: true},
		limits: limits{size: 1 << 20, blockMin: 1, maxPayload: MaxPayload, structured: true}, done: make(chan struct{}), reading: make(chan struct{}),
		calls: map[uint64]*call{},
	}
}

// TestACallThatTheReaderHoldsIsNotUsedAgain has a connection fail while the reader is between a reply's header and its end.
func TestACallThatTheReaderHoldsIsNotUsedAgain(t *testing.T) {
	v := newValve()
	c := testClient(v)
	close(c.reading)
	k, err := c.register(request{Type: cmdControl}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.frameDone(fateSent)
	held, _, err := c.find(k.req.Cookie) // the reader has read the header
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cut")
	c.Cut(cause)
	<-k.done
	if _, err := k.result(); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, cause) {
		t.Errorf("the call ended with %v", err)
	}
	c.finish(held, nil) // the reader comes to the end of the reply
	if len(k.done) != 0 {
		t.Error("who uses the call now was told the outcome of another")
	}
}

// TestMemoryIsGivenBackOnlyWhenTheSocketHasLetGo cuts a connection while a write of it is held in the socket.
func TestMemoryIsGivenBackOnlyWhenTheSocketHasLetGo(t *testing.T) {
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
	if err := <-told; !errors.Is(err, ErrNotSent) || errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, cause) {
		t.Errorf("the write that waited ended with %v", err)
	}
	if len(told) != 0 || !v.isClosed() {
		t.Fatal("a write was told to have ended while the socket holds its memory, or the socket is open")
	}
	v.result <- errors.New("closed")
	if err := <-told; !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrNotSent) || !errors.Is(err, cause) {
		t.Errorf("the write in the socket ended with %v", err)
	}
	if err := c.Flush(context.Background()); !errors.Is(err, ErrNotSent) {
		t.Errorf("a flush after the cut: %v", err)
	}
	_ = c.Close()
}
