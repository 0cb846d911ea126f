package nfsclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// success is the head of a reply to a call that was accepted and executed.
func success(xid uint32) Words { return Words{}.Put(xid, 1, 0, 0, 0, 0) }

func TestCalls(t *testing.T) {
	assert.Equal(t, []byte{
		0x80, 0, 0, 40, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 4, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}, nullCall(7))
	lookup := lookupCall(7, "pvc-1")
	assert.Equal(t, uint32(len(lookup)-4)|lastFragment, binary.BigEndian.Uint32(lookup))
	assert.Zero(t, len(lookup)%4)
	assert.True(t, bytes.HasSuffix(lookup, []byte{
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 24, 0, 0, 0, 15, 0, 0, 0, 5, 'p', 'v', 'c', '-', '1', 0, 0, 0, 0, 0, 0, 10,
		0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 0, // space_avail is attribute 42
	}), "%x", lookup)
}

func TestNullReplies(t *testing.T) {
	for _, c := range []struct {
		name   string
		record []byte
		good   bool
	}{
		{"accepted and executed → an answer", success(7), true},
		{"with a verifier → an answer", Words{}.Put(7, 1, 0, 1).Opaque("abcde").Put(0), true},
		{"nothing → none", nil, false},
		{"another call's reply → none", success(8), false},
		{"a call → none", Words{}.Put(7, 0, 2, 100003, 4, 0), false},
		{"denied → none", Words{}.Put(7, 1, 1, 0, 2, 2), false},
		{"denied, and the rest looks like an answer → none", Words{}.Put(7, 1, 1, 0, 0, 0), false},
		{"no such version → none", Words{}.Put(7, 1, 0, 0, 0, 2, 3, 3), false},
		{"too long → none", success(7).Put(0), false},
		{"a verifier longer than the message → none", Words{}.Put(7, 1, 0, 0, 4096, 0), false},
		{"a verifier whose length overflows → none", Words{}.Put(7, 1, 0, 0, 0xfffffffd, 0, 0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := parseNull(7, c.record)
			if c.good {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, ErrReply)
			}
		})
	}
	for cut := range success(7) {
		assert.Error(t, parseNull(7, success(7)[:cut]), "%d bytes", cut)
	}
}

func TestLookupReplies(t *testing.T) {
	results := func(handle string) Words {
		return success(7).Put(0).Opaque("tag").Put(4, 24, 0, 15, 0, 10, 0).Opaque(handle).Put(9, 0, 2, 0, 1<<10).Opaque("8 bytes.")
	}
	got, err := parseLookup(7, results("handle"))
	require.NoError(t, err)
	assert.Equal(t, "handle", string(got))
	whole := results("handle")
	for cut := range whole {
		_, err := parseLookup(7, whole[:cut])
		assert.Error(t, err, "%d bytes", cut)
	}
	none, err := parseLookup(7, success(7).Put(0).Opaque("").Put(4, 24, 0, 15, 0, 10, 0).Opaque("h").Put(9, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	require.NoError(t, err, "a server without that attribute")
	assert.Equal(t, "h", string(none))
	_, err = parseLookup(7, success(7).Put(2).Opaque("").Put(2, 24, 0, 15, 2))
	assert.ErrorIs(t, err, StatusError(2))
	assert.False(t, IsBusy(err))
	_, err = parseLookup(7, success(7).Put(10008).Opaque("").Put(1, 24, 10008))
	assert.True(t, IsBusy(fmt.Errorf("wrapped: %w", err)), "it is well, and shall be asked again")
	for name, record := range map[string][]byte{
		"no handle":              results(""),
		"a handle too long":      results(string(make([]byte, 129))),
		"more than was asked":    append(results("handle"), 0, 0, 0, 0),
		"another operation":      success(7).Put(0).Opaque("").Put(4, 24, 0, 9, 0, 10, 0).Opaque("h").Put(9, 0, 0, 0),
		"a status in the middle": success(7).Put(0).Opaque("").Put(4, 24, 0, 15, 5, 10, 0).Opaque("h").Put(9, 0, 0, 0),
		"a status at the end":    success(7).Put(0).Opaque("").Put(4, 24, 0, 15, 0, 10, 0).Opaque("h").Put(9, 5, 0, 0),
		"a mask too long":        success(7).Put(0).Opaque("").Put(4, 24, 0, 15, 0, 10, 0).Opaque("h").Put(9, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0),
		"a mask without end":     success(7).Put(0).Opaque("").Put(4, 24, 0, 15, 0, 10, 0).Opaque("h").Put(9, 0, 0xffffffff, 0),
		"too few results":        success(7).Put(0).Opaque("").Put(2, 24, 0, 15, 0),
		"a tag without end":      success(7).Put(0, 0xffffffff, 3),
	} {
		_, err := parseLookup(7, record)
		assert.ErrorIs(t, err, ErrReply, name)
	}
}

func TestRecords(t *testing.T) {
	in := append([]byte{0, 0, 0, 2, 'a', 'b', 0x80, 0, 0, 1, 'c'}, "rest"...)
	got, err := readRecord(iotest.OneByteReader(bytes.NewReader(in)))
	require.NoError(t, err)
	assert.Equal(t, "abc", string(got))
	for cut := range 11 {
		_, err := readRecord(bytes.NewReader(in[:cut]))
		assert.Error(t, err, "%d bytes", cut)
	}
	for name, hostile := range map[string][]byte{
		"more than fits memory":            {0xff, 0xff, 0xff, 0xff},
		"empty fragments without end":      {0, 0, 0, 0, 0, 0, 0, 0},
		"many fragments that are too much": bytes.Repeat(append([]byte{0, 0, 4, 0}, make([]byte, 1024)...), 5),
	} {
		_, err := readRecord(bytes.NewReader(hostile))
		assert.ErrorIs(t, err, ErrReply, name)
	}
}

func FuzzReplies(f *testing.F) {
	f.Add([]byte(success(7)))
	f.Add([]byte(success(7).Put(0).Opaque("tag").Put(4, 24, 0, 15, 0, 10, 0).Opaque("handle").Put(9, 0, 2, 0, 1<<10).Opaque("8 bytes.")))
	f.Fuzz(func(t *testing.T, record []byte) {
		_ = parseNull(7, record)
		if handle, err := parseLookup(7, record); err == nil && len(handle) > maxFH {
			t.Errorf("a handle of %d bytes", len(handle))
		}
		_, _ = readRecord(bytes.NewReader(record))
	})
}

// nfsServer handles each connection with answer, until the test ends.
func nfsServer(t *testing.T, answer func(net.Conn)) Prober {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	return NewProber(number, 10*time.Second)
}

func TestProber(t *testing.T) {
	xidOf := func(c net.Conn) uint32 {
		var head [8]byte
		_, _ = io.ReadFull(c, head[:])
		return binary.BigEndian.Uint32(head[4:])
	}
	t.Run("an answer", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = c.Write(success(xidOf(c)).framed()) })
		assert.NoError(t, p.Null(t.Context()))
	})
	t.Run("an answer to another question", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = c.Write(success(xidOf(c) + 1).framed()) })
		assert.ErrorIs(t, p.Null(t.Context()), ErrReply)
	})
	t.Run("an echo", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
		assert.ErrorIs(t, p.Null(t.Context()), ErrReply)
	})
	t.Run("two answers over one connection", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) {
			for range 2 {
				_, _ = c.Write(success(xidOf(c)).framed())
				_, _ = io.CopyN(io.Discard, c, 36) // the rest of the call
			}
		})
		assert.NoError(t, p.with(t.Context(), func(conn net.Conn) error { return errors.Join(Null(conn), Null(conn)) }))
	})
	t.Run("an export", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) {
			_, _ = c.Write(success(xidOf(c)).Put(0).Opaque("").Put(4, 24, 0, 15, 0, 10, 0).Opaque("handle").Put(9, 0, 0, 0).framed())
		})
		handle, err := p.Lookup(t.Context(), "vol")
		assert.NoError(t, err)
		assert.Equal(t, "handle", string(handle))
	})
	t.Run("a server that is busy", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = c.Write(success(xidOf(c)).Put(10008).Opaque("").Put(1, 24, 10008).framed()) })
		_, err := p.Lookup(t.Context(), "vol")
		assert.True(t, IsBusy(err), "%v", err)
	})
	t.Run("half an answer", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = c.Write(success(xidOf(c)).framed()[:12]) })
		assert.Error(t, p.Null(t.Context()))
	})
	t.Run("no answer within the limit", func(t *testing.T) {
		p := nfsServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		p.limit = 50 * time.Millisecond
		assert.Error(t, p.Null(t.Context()))
	})
	t.Run("no answer when the asker gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := nfsServer(t, func(c net.Conn) {
			xidOf(c)
			cancel()
			_, _ = io.Copy(io.Discard, c)
		})
		assert.Error(t, p.Null(ctx))
	})
	t.Run("no server", func(t *testing.T) {
		assert.Error(t, NewProber(1, time.Second).Null(t.Context()))
	})
}
