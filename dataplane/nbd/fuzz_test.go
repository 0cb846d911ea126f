package nbd

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

func FuzzDecodeRequest(f *testing.F) {
	var b [requestLen]byte
	request{Flags: 1, Type: cmdWrite, Cookie: 2, Offset: 3, Length: 4}.encode(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := decodeRequest(in)
		if err != nil {
			return
		}
		var out [requestLen]byte
		r.encode(out[:])
		if !bytes.Equal(out[:], in[:requestLen]) {
			t.Errorf("% x decoded and encoded is % x", in[:requestLen], out)
		}
		if validate(r, limits{size: 1 << 20, blockMin: 1, maxPayload: MaxPayload, structured: true, blockStatus: true}) == nil &&
			r.Type != cmdFlush && r.Offset+uint64(r.Length) > 1<<20 {
			t.Errorf("%+v found valid", r)
		}
	})
}

func FuzzDecodeOptions(f *testing.F) {
	f.Add(goOption{Name: "vol", Infos: []uint16{1, 3}}.encode())
	f.Add(metaOption{Name: "vol", Queries: []string{contextAllocation, "x"}}.encode())
	f.Add(exportInfo{Size: 1, Flags: 2}.encode())
	f.Add(appendOption(nil, optGo, []byte("x")))
	f.Add(appendOptionReply(nil, optGo, repAck, []byte("x")))
	f.Fuzz(func(t *testing.T, in []byte) {
		if o, err := decodeGoOption(in); err == nil && !bytes.Equal(o.encode(), in) {
			t.Errorf("go option % x became % x", in, o.encode())
		}
		if o, err := decodeMetaOption(in); err == nil && !bytes.Equal(o.encode(), in) {
			t.Errorf("meta option % x became % x", in, o.encode())
		}
		_ = new(info).add(in)
		_, _ = decodeErrorPayload(in)
		_, _, _ = decodeStatusPayload(in, 0)
		_, _, _ = readOption(bufio.NewReader(bytes.NewReader(in)))
		_, _, _, _ = readOptionReply(bufio.NewReader(bytes.NewReader(in)))
	})
}

// scriptConn is a connection on which the peer has already sent everything. Data written to it is dropped.
type scriptConn struct {
	net.Conn // nil: only the methods below are used
	in       io.Reader
}

func (c *scriptConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *scriptConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *scriptConn) Close() error                { return nil }
func (c *scriptConn) LocalAddr() net.Addr         { return &net.UnixAddr{Name: "local", Net: "unix"} }

func (c *scriptConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "remote", Net: "unix"} }
func (c *scriptConn) SetDeadline(time.Time) error      { return nil }
func (c *scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (c *scriptConn) SetWriteDeadline(time.Time) error { return nil }

// zeroes is a Backend without content.
type zeroes struct{}

func (zeroes) ReadAt(_ context.Context, p []byte, _ int64) error   { clear(p); return nil }
func (zeroes) WriteAt(context.Context, []byte, int64, bool) error  { return nil }
func (zeroes) Flush(context.Context) error                         { return nil }
func (zeroes) Trim(context.Context, int64, int64, bool) error      { return nil }
func (zeroes) Zero(context.Context, int64, int64, ZeroFlags) error { return nil }
func (zeroes) Extents(_ context.Context, off, n int64) ([]Extent, error) {
	return []Extent{{Offset: off, Length: n, Flags: ExtentHole | ExtentZero}}, nil
}

// Control implements Controller: it answers with its payload.
func (zeroes) Control(_ context.Context, _ uint16, p []byte) ([]byte, error) {
	return bytes.Clone(p), nil
}

type zeroExporter struct{}

func (zeroExporter) List(context.Context) []string { return []string{"zero"} }
func (zeroExporter) Open(_ context.Context, name string, _ ConnInfo) (*Export, error) {
	if name != "zero" {
		return nil, ErrUnknownExport
	}
	return &Export{Name: name, Size: 1 << 30, Backend: zeroes{}}, nil
}

func serverScript(options []byte, requests ...request) []byte {
	b := append([]byte{0, 0, 0, 3}, options...)
	for _, r := range requests {
		var h [requestLen]byte
		r.encode(h[:])
		b = append(b, h[:]...)
	}
	return b
}

func FuzzServerConnection(f *testing.F) {
	structured := appendOption(nil, optStructuredReply, nil)
	meta := appendOption(structured, optSetMetaContext, metaOption{Name: "zero", Queries: []string{contextAllocation}}.encode())
	open := appendOption(meta, optGo, goOption{Name: "zero", Infos: []uint16{infoBlockSize}}.encode())
	f.Add(serverScript(open, request{Type: cmdRead, Length: 512}, request{Type: cmdBlockStatus, Length: 512},
		request{Type: cmdWriteZeroes, Length: 512}, request{Type: cmdControl, Offset: 3}, request{Type: cmdWrite, Length: 8}))
	f.Add(serverScript(open, request{Type: cmdControl, Length: MaxControl + 1}))
	f.Add(serverScript(appendOption(nil, optExportName, []byte("zero")), request{Type: cmdRead, Length: MaxPayload}))
	f.Add(serverScript(appendOption(nil, optExportName, []byte("zero")), request{Type: cmdWrite, Length: 1<<32 - 1}))
	f.Add(serverScript(appendOption(appendOption(nil, optAuth, nil), optAuth, make([]byte, 40))))
	f.Add(serverScript(appendOption(nil, optStartTLS, nil)))
	f.Add(append(serverScript(appendOption(nil, optStartTLS, nil)), "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"...))
	f.Add(serverScript(appendOption(appendOption(nil, optList, nil), optInfo, goOption{Name: "zero"}.encode())))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := NewServer(zeroExporter{}, ServerOptions{
			Secret: func(string) ([]byte, bool) { return []byte("s"), false }, Secrets: func() [][]byte { return [][]byte{[]byte("s")} },
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.ServeConn(&scriptConn{in: bytes.NewReader(in)})
		runtime.ReadMemStats(&after)
		// 64 MiB may be in flight. Pools may miss now and then. So the bound is a multiple of 64 MiB, and does not
		// depend on the content of the input.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20+uint64(len(in)/requestLen+1)*MaxPayload {
			t.Errorf("%d bytes of input made the server allocate %d", len(in), grown)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// clientScript returns the server's part of a handshake that offers everything, up to the transmission phase.
func clientScript() []byte {
	b := be.AppendUint64(nil, magicServer)
	b = be.AppendUint64(b, magicOption)
	b = be.AppendUint16(b, flagFixedNewstyle|flagNoZeroes)
	b = appendOptionReply(b, optStructuredReply, repAck, nil)
	b = appendOptionReply(b, optSetMetaContext, repMetaContext, append([]byte{0, 0, 0, 7}, contextAllocation...))
	b = appendOptionReply(b, optSetMetaContext, repAck, nil)
	b = appendOptionReply(b, optGo, repInfo, exportInfo{Size: 1 << 20, Flags: txHasFlags | txFlush}.encode())
	return appendOptionReply(b, optGo, repAck, nil)
}

func FuzzClientHandshake(f *testing.F) {
	f.Add(clientScript())
	f.Fuzz(func(t *testing.T, in []byte) {
		conn := &scriptConn{in: bytes.NewReader(in)}
		h := &clientHandshake{conn: conn, in: bufio.NewReader(conn), name: "x", secret: nil}
		if err := h.run(); err == nil && h.exportInfo().Size < 0 {
			t.Error("export of negative size")
		}
	})
}

func FuzzClientReplies(f *testing.F) {
	data := make([]byte, chunkLen, 64)
	chunk{Type: chunkOffsetData, Cookie: 1, Length: 8 + 4}.encode(data)
	data = append(data, 0, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd')
	hole := make([]byte, chunkLen, 64)
	chunk{Flags: chunkFlagDone, Type: chunkOffsetHole, Cookie: 1, Length: 12}.encode(hole)
	hole = append(hole, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4)
	status := make([]byte, chunkLen, 64)
	chunk{Flags: chunkFlagDone, Type: chunkBlockStatus, Cookie: 2, Length: 12}.encode(status)
	status = append(status, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 3)
	var simple [simpleLen]byte
	simpleReply{Cookie: 3, Errno: 5}.encode(simple[:])
	f.Add(append(append(append(append([]byte{}, data...), hole...), status...), simple[:]...), true)
	f.Add(append(simple[:], "abcdefgh"...), false)
	control := make([]byte, chunkLen, 64)
	chunk{Flags: chunkFlagDone, Type: chunkControl, Cookie: 4, Length: 3}.encode(control)
	f.Add(append(control, "yes"...), true)
	f.Fuzz(func(t *testing.T, in []byte, structured bool) {
		conn := &scriptConn{in: bytes.NewReader(in)}
		c := &Client{
			in: bufio.NewReader(conn), opts: DialOptions{}.withDefaults(), statusID: 7, out: newSendQueue(conn),
			info: ExportInfo{Size: 1 << 20, Structured: structured}, done: make(chan struct{}), reading: make(chan struct{}),
			calls: map[uint64]*call{},
		}
		var calls []*call
		for _, r := range []request{{Type: cmdRead, Length: 8}, {Type: cmdBlockStatus, Length: 64}, {Type: cmdFlush}, {Type: cmdControl}} {
			k, err := c.register(r, make([]byte, 8), nil)
			if err != nil {
				t.Fatal(err)
			}
			k.frameDone(frameSent)
			calls = append(calls, k)
		}
		c.readReplies() // returns, at the latest, at the end of the input
		for _, k := range calls {
			<-k.done // and every call has an outcome
		}
	})
}
