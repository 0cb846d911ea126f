package nbd_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// deviceClient behaves like the kernel's client: no handshake, simple replies.
type deviceClient struct {
	t    *testing.T
	conn net.Conn
}

// serveDevice serves a backend without a handshake, until the test ends.
func serveDevice(t *testing.T, size int64, b nbd.Backend) deviceClient {
	t.Helper()
	ours, theirs := net.Pipe()
	server := nbd.NewServer(nil, nbd.ServerOptions{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.ServeExport(theirs, &nbd.Export{Name: "v", Size: size, BlockSize: nbd.BlockSize{Min: 512}, Backend: b})
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-ended
		assert.NoError(t, server.Shutdown(context.Background()))
	})
	require.NoError(t, ours.SetDeadline(time.Now().Add(10*time.Second)))
	return deviceClient{t: t, conn: ours}
}

func (c deviceClient) send(command uint16, cookie uint64, off int64, length int, data []byte) {
	c.t.Helper()
	b := binary.BigEndian.AppendUint32(nil, 0x25609513)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, command)
	b = binary.BigEndian.AppendUint64(b, cookie)
	b = binary.BigEndian.AppendUint64(b, uint64(off))
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	_, err := c.conn.Write(append(b, data...))
	require.NoError(c.t, err)
}

// reply reads the next reply. It also reads n bytes of data if the reply has no error.
func (c deviceClient) reply(n int) (cookie uint64, errno uint32, data []byte) {
	c.t.Helper()
	var head [16]byte
	_, err := io.ReadFull(c.conn, head[:])
	require.NoError(c.t, err)
	require.EqualValues(c.t, 0x67446698, binary.BigEndian.Uint32(head[:]))
	if errno = binary.BigEndian.Uint32(head[4:]); errno == 0 {
		data = make([]byte, n)
		_, err = io.ReadFull(c.conn, data)
		require.NoError(c.t, err)
	}
	return binary.BigEndian.Uint64(head[8:]), errno, data
}

func TestServeExportNeedsNoHandshake(t *testing.T) {
	c := serveDevice(t, 1<<20, memory.New(1<<20))
	want := make([]byte, 4096)
	copy(want, "some bytes")
	c.send(1, 1, 8192, len(want), want)
	cookie, errno, _ := c.reply(0)
	assert.EqualValues(t, 1, cookie)
	assert.Zero(t, errno)
	c.send(0, 2, 8192, len(want), nil)
	cookie, errno, got := c.reply(len(want))
	assert.EqualValues(t, 2, cookie)
	assert.Zero(t, errno)
	assert.Equal(t, want, got)
	c.send(3, 3, 0, 0, nil)
	_, errno, _ = c.reply(0)
	assert.Zero(t, errno, "flush")
	c.send(0, 4, 1<<20, 4096, nil)
	cookie, errno, _ = c.reply(4096)
	assert.EqualValues(t, 4, cookie)
	assert.EqualValues(t, 22, errno, "a read past the end")
}

// hanging leaves each read in a disk, and answers it from elsewhere.
type hanging struct {
	*memory.Backend
	answers chan struct{} // closed when the disk answers
}

func (h hanging) ReadLate(_ context.Context, p []byte, _ int64, elsewhere func([]byte, error)) (bool, error) {
	got := make([]byte, len(p))
	copy(got, "elsewhere")
	elsewhere(got, nil)
	<-h.answers
	return true, nil
}

// Reads are answered while a disk hangs, even more reads than one connection may have under way.
func TestServeExportAnswersReadsLeftBehind(t *testing.T) {
	h := hanging{memory.New(1 << 20), make(chan struct{})}
	c := serveDevice(t, 1<<20, h)
	t.Cleanup(func() { close(h.answers) })
	for i := range uint64(200) {
		c.send(0, i, 0, 512, nil)
		cookie, errno, got := c.reply(512)
		require.Equal(t, i, cookie)
		require.Zero(t, errno)
		require.Equal(t, "elsewhere", string(got[:9]))
	}
}
