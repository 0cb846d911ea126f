package nbd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHeadersOnTheWire(t *testing.T) {
	var b [requestLen]byte
	r := request{Flags: 0x0102, Type: 0x0304, Cookie: 0x05060708090a0b0c, Offset: 0x0d0e0f1011121314, Length: 0x15161718}
	r.encode(b[:])
	want := []byte("\x25\x60\x95\x13\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18")
	assert.Equal(t, want, b[:])
	got, err := decodeRequest(b[:])
	require.NoError(t, err)
	assert.Equal(t, r, got)

	s := simpleReply{Errno: 0x01020304, Cookie: 0x05060708090a0b0c}
	s.encode(b[:])
	want = []byte("\x67\x44\x66\x98\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c")
	assert.Equal(t, want, b[:simpleLen])
	reply, err := decodeSimpleReply(b[:])
	require.NoError(t, err)
	assert.Equal(t, s, reply)

	c := chunk{Flags: 0x0102, Type: 0x0304, Cookie: 0x05060708090a0b0c, Length: 0x0d0e0f10}
	c.encode(b[:])
	want = []byte("\x66\x8e\x33\xef\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10")
	assert.Equal(t, want, b[:chunkLen])
	decoded, err := decodeChunk(b[:])
	require.NoError(t, err)
	assert.Equal(t, c, decoded)
}

func TestPayloadsRoundTrip(t *testing.T) {
	b := appendErrorPayload(nil, uint32(ENOSPC), "disk full")
	assert.Equal(t, []byte("\x00\x00\x00\x1c\x00\x09disk full"), b)
	e, err := decodeErrorPayload(append(b, 0, 0, 0, 0, 0, 0, 0, 7)) // like in ERROR_OFFSET
	require.NoError(t, err)
	assert.Equal(t, Error{Errno: ENOSPC, Msg: "disk full"}, *e)

	in := []Extent{{Offset: 4096, Length: 0x01020304, Flags: ExtentHole}, {Offset: 4096 + 0x01020304, Length: 5, Flags: ExtentHole | ExtentZero}}
	b = appendStatusPayload(nil, 9, in)
	assert.Equal(t, []byte("\x00\x00\x00\x09\x01\x02\x03\x04\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x03"), b)
	id, out, err := decodeStatusPayload(b, 4096)
	require.NoError(t, err)
	assert.Equal(t, uint32(9), id)
	assert.Equal(t, in, out)
}

func TestOptionsRoundTrip(t *testing.T) {
	g := goOption{Name: "vol", Infos: []uint16{3, 258}}
	assert.Equal(t, []byte("\x00\x00\x00\x03vol\x00\x02\x00\x03\x01\x02"), g.encode())
	got, err := decodeGoOption(g.encode())
	require.NoError(t, err)
	assert.Equal(t, g, got)
	m := metaOption{Name: "vol", Queries: []string{"a", "base:allocation"}}
	assert.Equal(t, []byte("\x00\x00\x00\x03vol\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x0fbase:allocation"), m.encode())
	meta, err := decodeMetaOption(m.encode())
	require.NoError(t, err)
	assert.Equal(t, m, meta)
	opt, data, err := readOption(bufio.NewReader(bytes.NewReader(appendOption(nil, 7, []byte("xyz")))))
	assert.Equal(t, uint32(7), opt)
	assert.Equal(t, "xyz", string(data))
	assert.NoError(t, err)
	opt, rep, data, err := readOptionReply(bufio.NewReader(bytes.NewReader(appendOptionReply(nil, 7, 3, []byte("xyz")))))
	assert.Equal(t, uint32(7), opt)
	assert.Equal(t, uint32(3), rep)
	assert.Equal(t, "xyz", string(data))
	assert.NoError(t, err)

	var i info
	for _, b := range [][]byte{
		exportInfo{Size: 0x0102030405060708, Flags: 0x0910}.encode(),
		encodeBlockSize(BlockSize{Min: 512, Preferred: 4096, Max: 1 << 20}),
		[]byte("\x00\x01name"), []byte("\x00\x02words"), []byte("\x77\x77unknown kinds are skipped"),
	} {
		assert.NoError(t, i.add(b), "information % x", b)
	}
	want := info{
		HasExport: true, Export: exportInfo{Size: 0x0102030405060708, Flags: 0x0910}, Name: "name", Description: "words",
		BlockSize: BlockSize{Min: 512, Preferred: 4096, Max: 1 << 20},
	}
	assert.Equal(t, want, i)
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	goBytes := func(b string) error { _, err := decodeGoOption([]byte(b)); return err }
	metaBytes := func(b string) error { _, err := decodeMetaOption([]byte(b)); return err }
	status := func(b string) error { _, _, err := decodeStatusPayload([]byte(b), 0); return err }
	failure := func(b string) error { _, err := decodeErrorPayload([]byte(b)); return err }
	infoBytes := func(b string) error { return new(info).add([]byte(b)) }
	option := func(b string) error { _, _, err := readOption(bufio.NewReader(strings.NewReader(b))); return err }
	reply := func(b string) error {
		_, _, _, err := readOptionReply(bufio.NewReader(strings.NewReader(b)))
		return err
	}
	req := func(b string) error { _, err := decodeRequest([]byte(b)); return err }
	for _, c := range []struct {
		name   string
		decode func(string) error
		bytes  string
	}{
		{"go option that is empty", goBytes, ""},
		{"go option whose name is longer than the option", goBytes, "\x00\x00\x00\x09vol\x00\x00"},
		{"go option whose name is longer than any name", goBytes, "\x00\x00\x10\x01" + strings.Repeat("x", 4097) + "\x00\x00"},
		{"go option without a count", goBytes, "\x00\x00\x00\x03vol\x00"},
		{"go option that counts more than it holds", goBytes, "\x00\x00\x00\x03vol\x00\x02\x00\x01"},
		{"go option with something behind it", goBytes, "\x00\x00\x00\x03vol\x00\x00\x01"},
		{"meta option that counts four thousand million queries", metaBytes, "\x00\x00\x00\x00\xff\xff\xff\xff"},
		{"meta option with something behind it", metaBytes, "\x00\x00\x00\x00\x00\x00\x00\x00\x01"},
		{"block status of nothing", status, "\x00\x00\x00\x01"},
		{"block status with half an extent", status, "\x00\x00\x00\x01\x00\x00\x00\x01"},
		{"block status with an empty extent", status, "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"error whose text is longer than the chunk", failure, "\x00\x00\x00\x05\x00\x04abc"},
		{"error that is none", failure, "\x00\x00\x00\x00\x00\x00"},
		{"export information cut short", infoBytes, "\x00\x00\x01"},
		{"block size information cut short", infoBytes, "\x00\x03\x01"},
		{"option with another magic", option, "IHAVEOPS\x00\x00\x00\x01\x00\x00\x00\x00"},
		{"option longer than may be skipped", option, "IHAVEOPT\x00\x00\x00\x01\x00\x10\x00\x01"},
		{"option reply longer than may be held", reply, "\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x01\x00\x01"},
		{"request with another magic", req, strings.Repeat("\x00", 28)},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.ErrorIs(t, c.decode(c.bytes), ErrProtocol)
		})
	}
}

func TestErrorsOnTheWire(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		errno uint32
		text  string
	}{
		{"a plain number keeps its number", syscall.ENOSPC, 28, "no space left on device"},
		{"a wrapped number keeps its number and the text around it", fmt.Errorf("write block 7: %w", syscall.ENOSPC), 28, "write block 7: no space left on device"},
		{"an Error keeps both", fmt.Errorf("x: %w", &Error{Errno: EOVERFLOW, Msg: "too long"}), 75, "too long"},
		{"a quota is no space", syscall.EDQUOT, 28, "disk quota exceeded"},
		{"a read-only file system is not permitted", syscall.EROFS, 1, "read-only file system"},
		{"a number that the protocol lacks is an I/O error", syscall.ENOENT, 5, "no such file or directory"},
		{"an error without a number is an I/O error", errors.New("odd"), 5, "odd"},
		{"a cancelled request is a shutdown", context.Canceled, 108, "context canceled"},
		{"an unknown outcome is an I/O error, whatever caused it", fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Canceled), 5, "no reply arrived; it is unknown whether the request was executed: context canceled"},
		{"a long text is cut", errors.New(strings.Repeat("x", 5000)), 5, strings.Repeat("x", 1024)},
	} {
		t.Run(c.name, func(t *testing.T) {
			errno, text := wireError(c.err)
			assert.Equal(t, c.errno, errno)
			assert.Equal(t, c.text, text)
		})
	}
	assert.Equal(t, EINVAL, errnoFromWire(2))
}

func TestExtentsAreClipped(t *testing.T) {
	const hz = ExtentHole | ExtentZero
	for _, c := range []struct {
		name string
		in   []Extent
		one  bool
		want []Extent // nil: refused
	}{
		{"as asked → unchanged", []Extent{{100, 30, 0}, {130, 70, hz}}, false, []Extent{{100, 30, 0}, {130, 70, hz}}},
		{"past the range → cut at its end", []Extent{{100, 30, 0}, {130, 700, hz}, {830, 1, 0}}, false, []Extent{{100, 30, 0}, {130, 70, hz}}},
		{"short of the range → passed on", []Extent{{100, 30, 0}}, false, []Extent{{100, 30, 0}}},
		{"one wanted → the first", []Extent{{100, 30, 0}, {130, 70, hz}}, true, []Extent{{100, 30, 0}}},
		{"none → refused", nil, false, nil},
		{"wrong start → refused", []Extent{{0, 200, 0}}, false, nil},
		{"a gap → refused", []Extent{{100, 30, 0}, {140, 60, 0}}, false, nil},
		{"an empty one → refused", []Extent{{100, 0, 0}}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := clipExtents(c.in, 100, 100, c.one)
			assert.Equal(t, c.want, got, err)
			assert.Equal(t, c.want != nil, err == nil)
		})
	}
}

func TestCoverage(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []span
		ok    bool // the last part was accepted
		whole bool
	}{
		{"one part → whole", []span{{0, 100}}, true, true},
		{"in order → whole", []span{{0, 40}, {40, 60}, {60, 100}}, true, true},
		{"backwards → whole", []span{{60, 100}, {40, 60}, {0, 40}}, true, true},
		{"the middle last → whole", []span{{0, 40}, {60, 100}, {40, 60}}, true, true},
		{"a gap → not whole", []span{{0, 40}, {60, 100}}, true, false},
		{"the end missing → not whole", []span{{0, 99}}, true, false},
		{"the same part twice → refused", []span{{0, 40}, {0, 40}}, false, false},
		{"an overlap with the one before → refused", []span{{0, 40}, {39, 41}}, false, false},
		{"an overlap with the one after → refused", []span{{60, 100}, {50, 61}}, false, false},
		{"swallowing another → refused", []span{{60, 70}, {50, 80}}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v coverage
			ok := false
			for _, p := range c.parts {
				ok = v.add(p.from, p.to)
			}
			assert.Equal(t, c.ok, ok)
			assert.Equal(t, c.whole, v.whole(100))
		})
	}
}

func TestBuffersComeFromTheClassThatFits(t *testing.T) {
	for _, c := range []struct{ n, capacity int }{{1, 4096}, {4096, 4096}, {4097, 8192}, {1 << 20, 1 << 20}, {MaxPayload, 32 << 20}} {
		b := getBuffer(c.n)
		require.Len(t, b.data, c.n)
		assert.Equal(t, c.capacity, cap(b.data), "buffer of %d bytes", c.n)
		b.release()
	}
}
