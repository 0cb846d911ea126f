package fuse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const testSize = 4 << 20

// store is a backend in memory that can fail and wait.
type store struct {
	mu      sync.Mutex
	data    []byte        // guarded by mu
	flushes int           // guarded by mu
	kept    bool          // guarded by mu; of the last Zero
	err     error         // guarded by mu
	wait    chan struct{} // if set, writes wait for it
}

func (s *store) ReadAt(_ context.Context, p []byte, off int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(p, s.data[off:off+int64(len(p))])
	return s.err
}

func (s *store) WriteAt(_ context.Context, p []byte, off int64) error {
	if s.wait != nil {
		<-s.wait
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		copy(s.data[off:off+int64(len(p))], p)
	}
	return s.err
}

func (s *store) Flush(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushes++
	return s.err
}

func (s *store) Zero(_ context.Context, off, length int64, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.data[off : off+length])
	s.kept = keep
	return s.err
}

// kernel is the other end of a connection: a socket of packets behaves like /dev/fuse.
type kernel struct {
	t      testing.TB
	fd     int
	server *Server
	store  *store
	served chan error
}

func newKernel(t testing.TB) *kernel {
	t.Helper()
	return newKernelWith(t, nil)
}

// newKernelWith is like newKernel, but prepares the server before it serves.
func newKernelWith(t testing.TB, prepare func(*Server)) *kernel {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	for _, fd := range pair {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	}
	k := &kernel{t: t, fd: pair[0], store: &store{data: make([]byte, testSize)}, served: make(chan error, 1)}
	k.server, err = NewServer(pair[1], testSize, MaxWrite, k.store)
	require.NoError(t, err)
	if prepare != nil {
		prepare(k.server)
	}
	go func() { k.served <- k.server.Serve() }()
	t.Cleanup(k.hangUp)
	return k
}

// holdWrites makes writes wait until they are released. The end of the test also releases them, because a server that
// waits for them would block it.
func (k *kernel) holdWrites() (release func()) {
	held := make(chan struct{})
	k.store.wait = held
	release = sync.OnceFunc(func() { close(held) })
	k.t.Cleanup(release)
	return release
}

// hangUp ends the connection, and expects the server to end.
func (k *kernel) hangUp() {
	if k.fd < 0 {
		return
	}
	_ = unix.Close(k.fd)
	k.fd = -1
	assert.NoError(k.t, <-k.served)
	l, s := k.server.large.used, k.server.small.used
	assert.Zero(k.t, l, "%d large and %d small buffers were not given back", l, s)
	assert.Zero(k.t, s)
}

// encode encodes a request.
func encode(opcode uint32, unique, node uint64, body []byte) []byte {
	p := make([]byte, inHeaderBytes, inHeaderBytes+len(body))
	le.PutUint32(p, uint32(inHeaderBytes+len(body)))
	le.PutUint32(p[4:], opcode)
	le.PutUint64(p[8:], unique)
	le.PutUint64(p[16:], node)
	return append(p, body...)
}

func (k *kernel) send(opcode uint32, unique, node uint64, body []byte) {
	k.t.Helper()
	_, err := unix.Write(k.fd, encode(opcode, unique, node, body))
	require.NoError(k.t, err)
}

func (k *kernel) reply() (unique uint64, status syscall.Errno, body []byte) {
	k.t.Helper()
	p := make([]byte, 2<<20)
	n, err := unix.Read(k.fd, p)
	require.NoError(k.t, err)
	require.GreaterOrEqual(k.t, n, outHeaderBytes)
	require.Equal(k.t, uint32(n), le.Uint32(p))
	return le.Uint64(p[8:]), syscall.Errno(-int32(le.Uint32(p[4:]))), p[outHeaderBytes:n]
}

func (k *kernel) ask(opcode uint32, node uint64, body []byte) (syscall.Errno, []byte) {
	k.t.Helper()
	const unique = 1<<63 | 42 // as in a request that is sent again
	k.send(opcode, unique, node, body)
	got, status, reply := k.reply()
	assert.Equal(k.t, uint64(unique), got, "%x", uint64(unique))
	return status, reply
}

// body encodes fields of 8 and 4 bytes.
func body(fields ...any) []byte {
	var p []byte
	for _, f := range fields {
		switch f := f.(type) {
		case uint64:
			p = le.AppendUint64(p, f)
		case uint32:
			p = le.AppendUint32(p, f)
		case []byte:
			p = append(p, f...)
		default:
			panic(fmt.Sprintf("BUG: %T", f))
		}
	}
	return p
}

func writeBody(off uint64, data []byte) []byte {
	return body(uint64(0), off, uint32(len(data)), uint32(0), uint64(0), uint64(0), data)
}

func readBody(off uint64, size uint32) []byte {
	return body(uint64(0), off, size, uint32(0), uint64(0), uint64(0))
}

func fallocateBody(off, length uint64, mode uint32) []byte {
	return body(uint64(0), off, length, mode, uint32(0))
}

func TestInitAgreesOnWhatALoopDeviceNeeds(t *testing.T) {
	k := newKernel(t)
	all := ^uint32(0)
	status, p := k.ask(opInit, 0, body(uint32(7), uint32(45), uint32(131072), all, all, make([]byte, 44)))
	want := body(uint32(7), uint32(38), uint32(131072),
		uint32(1<<0|1<<5|1<<15|1<<18|1<<22|1<<30), uint32(192<<16|256), uint32(1<<20), uint32(1), uint32(256), uint32(1<<7), make([]byte, 28))
	assert.Zero(t, status, "%x, %x", p, want)
	assert.True(t, bytes.Equal(p, want))
	for name, p := range map[string][]byte{
		"another protocol": body(uint32(8), uint32(0), uint32(0), uint32(0)),
		"too old a kernel": body(uint32(7), uint32(30), uint32(0), uint32(0)),
		"too short":        body(uint32(7), uint32(45)),
	} {
		status, _ := k.ask(opInit, 0, p)
		assert.Equal(t, unix.EPROTO, status, name)
	}
}

func TestTheFileIsFoundAndDescribed(t *testing.T) {
	k := newKernel(t)
	status, p := k.ask(opLookup, rootNode, []byte("volume.img\x00"))
	assert.Zero(t, status)
	require.Len(t, p, 128)
	assert.Equal(t, uint64(imageNode), le.Uint64(p))
	assert.Equal(t, uint64(testSize), le.Uint64(p[48:]))
	for _, name := range []string{"other\x00", "volume.img", "\x00", ""} {
		status, _ := k.ask(opLookup, rootNode, []byte(name))
		assert.Equal(t, unix.ENOENT, status, "lookup of %q", name)
	}
	status, p = k.ask(opGetattr, imageNode, make([]byte, 16))
	assert.Zero(t, status)
	require.Len(t, p, 104)
	assert.Equal(t, uint32(0o100600), le.Uint32(p[76:]))
	status, _ = k.ask(opGetattr, 3, make([]byte, 16))
	assert.Equal(t, unix.ENOENT, status, "attributes of nothing")
	status, p = k.ask(opOpen, imageNode, make([]byte, 8))
	assert.Zero(t, status)
	require.Len(t, p, 16)
	assert.Equal(t, uint32(1|1<<5|1<<6), le.Uint32(p[8:]))
	status, p = k.ask(opStatfs, rootNode, nil)
	assert.Zero(t, status)
	require.Len(t, p, 80)
	assert.Equal(t, uint64(testSize/4096), le.Uint64(p))
	assert.Equal(t, uint32(4096), le.Uint32(p[40:]))
	for opcode, want := range map[uint32]syscall.Errno{
		opSetattr: unix.EPERM, opInterrupt: unix.ENOSYS, 9: unix.ENOSYS, opRelease: 0, opFlush: 0, opDestroy: 0,
	} {
		status, p := k.ask(opcode, imageNode, make([]byte, 88))
		assert.Equal(t, want, status, "operation %d", opcode)
		assert.Empty(t, p, "operation %d", opcode)
	}
	// Requests that have no answer get none.
	k.send(opForget, 1, imageNode, make([]byte, 8))
	k.send(opBatchForget, 2, 0, make([]byte, 8))
	status, _ = k.ask(opFsync, imageNode, make([]byte, 16))
	assert.Zero(t, status)
	assert.Equal(t, 1, k.store.flushes)
}

func TestReadsAndWrites(t *testing.T) {
	for _, n := range []int{1, 4096, smallBytes, smallBytes + 1, 1 << 20} {
		t.Run(fmt.Sprint(n, " bytes"), func(t *testing.T) {
			k := newKernel(t)
			data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, n/7+1)[:n]
			for _, off := range []uint64{0, 4099, testSize - uint64(n)} {
				status, p := k.ask(opWrite, imageNode, writeBody(off, data))
				require.Zero(t, status, "write at %d, %x", off, p)
				require.Equal(t, uint32(n), le.Uint32(p))
				status, p = k.ask(opRead, imageNode, readBody(off, uint32(n)))
				assert.Zero(t, status, "read at %d, %d bytes", off, len(p))
				assert.True(t, bytes.Equal(p, data))
			}
		})
	}
	k := newKernel(t)
	k.store.data[testSize-1] = 9
	status, p := k.ask(opRead, imageNode, readBody(testSize-1, 4096))
	assert.Zero(t, status)
	assert.Equal(t, []byte{9}, p, "read across the end")
	for _, off := range []uint64{testSize, 1 << 63, ^uint64(0)} {
		status, p := k.ask(opRead, imageNode, readBody(off, 4096))
		assert.Zero(t, status)
		assert.Empty(t, p, "read behind the end")
		status, _ = k.ask(opWrite, imageNode, writeBody(off, []byte{1}))
		assert.Equal(t, unix.ENOSPC, status, "write behind the end")
	}
	status, _ = k.ask(opWrite, imageNode, writeBody(testSize-1, []byte{1, 2}))
	assert.Equal(t, unix.ENOSPC, status, "write across the end")
	status, _ = k.ask(opRead, imageNode, readBody(0, MaxWrite+1))
	assert.Equal(t, unix.EINVAL, status, "a read that is too long")
	long := writeBody(0, []byte{1, 2})
	status, _ = k.ask(opWrite, imageNode, long[:len(long)-1])
	assert.Equal(t, unix.EINVAL, status, "a write that says more than it has")
}

func TestFallocate(t *testing.T) {
	k := newKernel(t)
	for i := range k.store.data {
		k.store.data[i] = 1
	}
	status, _ := k.ask(opFallocate, imageNode, fallocateBody(4096, 8192, 3))
	assert.Zero(t, status)
	assert.False(t, k.store.kept, "punch a hole")
	for _, mode := range []uint32{0x10, 0x11} {
		status, _ := k.ask(opFallocate, imageNode, fallocateBody(testSize-4096, 4096, mode))
		assert.Zero(t, status, "mode %x", mode)
		assert.True(t, k.store.kept, "mode %x", mode)
	}
	want := bytes.Repeat([]byte{1}, testSize)
	clear(want[4096:12288])
	clear(want[testSize-4096:])
	assert.True(t, bytes.Equal(k.store.data, want), "other bytes are zero")
	for _, tc := range []struct {
		off, length uint64
		mode        uint32
		want        syscall.Errno
	}{{0, 4096, 0, unix.EOPNOTSUPP}, {0, testSize + 1, 3, unix.ENOSPC}, {1 << 63, 1 << 63, 3, unix.ENOSPC}, {testSize, 1, 3, unix.ENOSPC}} {
		status, _ := k.ask(opFallocate, imageNode, fallocateBody(tc.off, tc.length, tc.mode))
		assert.Equal(t, tc.want, status)
	}
}

func TestErrorsOfTheBackend(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want syscall.Errno
	}{
		{errors.New("some"), unix.EIO},
		{unix.ENOSPC, unix.ENOSPC},
		{fmt.Errorf("no: %w", unix.EINVAL), unix.EINVAL},
		{unix.ESHUTDOWN, unix.EIO},
		{unix.ENOTSUP, unix.EOPNOTSUPP},
	} {
		k := newKernel(t)
		k.store.err = tc.err
		for opcode, p := range map[uint32][]byte{
			opRead: readBody(0, 4096), opWrite: writeBody(0, []byte{1}), opFsync: make([]byte, 16), opFallocate: fallocateBody(0, 1, 3),
		} {
			if status, p := k.ask(opcode, imageNode, p); status != tc.want || len(p) != 0 {
				t.Errorf("operation %d, %v: %v, %x", opcode, tc.err, status, p)
			}
		}
	}
}

// One request waits, and others are served. Stop reads no further requests, and ends when all requests that were read
// are answered.
func TestStopAnswersWhatWasRead(t *testing.T) {
	k := newKernel(t)
	kept, err := Dup(k.server.fd) // as a holder would keep it
	require.NoError(t, err)
	defer unix.Close(kept)
	release := k.holdWrites()
	k.send(opWrite, 1, imageNode, writeBody(0, []byte{7}))
	status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
	require.Zero(t, status)
	k.server.Stop()
	select {
	case <-k.server.Ended():
		t.Fatal("it ended with a request unanswered")
	case <-time.After(20 * time.Millisecond):
	}
	k.send(opFsync, 2, imageNode, make([]byte, 16)) // for the successor
	release()
	unique, status, _ := k.reply()
	assert.Equal(t, uint64(1), unique)
	assert.Zero(t, status)
	<-k.server.Ended()
	p := make([]byte, pageBytes)
	n, err := unix.Read(kept, p)
	h, _, bad := parseHeader(p[:max(n, 0)])
	require.NoError(t, err)
	require.NoError(t, bad)
	assert.Equal(t, uint64(2), h.unique)
	assert.Equal(t, 1, k.store.flushes)
}

func TestServerOfLongerRequestsThanItsBuffers(t *testing.T) {
	fd, err := unix.Dup(0)
	require.NoError(t, err)
	_, err = NewServer(fd, testSize, MaxWrite+1, &store{})
	assert.Error(t, err, "it was made")
}

// A server with requests that hang has its share of buffers and no further ones; another server continues.
func TestBuffersOfOneServerAreNotThoseOfAnother(t *testing.T) {
	p := newPool(4096, 1, 3, 4)
	a, b := share{pool: p}, share{pool: p}
	held := []*buffer{}
	take := func(s *share) *buffer {
		b, err := s.get()
		require.NoError(t, err)
		held = append(held, b)
		return b
	}
	for range 3 {
		take(&a)
	}
	waits := make(chan *buffer)
	go func() { waits <- take(&a) }() // its fourth buffer
	take(&b)                          // the fourth buffer of all
	c := share{pool: p}
	first := take(&c) // over the limit of all, but the first buffer of a server
	select {
	case <-waits:
		t.Fatal("a server has more than its share")
	case <-time.After(20 * time.Millisecond):
	}
	first.release()
	held[0].release()
	<-waits
}

func FuzzServer(f *testing.F) {
	for _, p := range [][]byte{
		encode(opInit, 1, 0, make([]byte, 64)), encode(opRead, 1, imageNode, readBody(0, 4096)), encode(opWrite, 1, imageNode, writeBody(0, []byte{1, 2})),
		encode(opFallocate, 1, imageNode, fallocateBody(0, 4096, 3)), encode(opLookup, 1, rootNode, []byte(imageName+"\x00")),
		{},
		make([]byte, 40),
	} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 || len(p) > 1<<17 {
			return
		}
		k := newKernel(t)
		if _, err := unix.Write(k.fd, p); err != nil {
			t.Skip(err)
		}
		// The server must still be running.
		if h, _, err := parseHeader(p); err == nil && h.opcode != opForget && h.opcode != opBatchForget {
			if unique, _, _ := k.reply(); unique != h.unique {
				t.Errorf("reply to %x, not %x", unique, h.unique)
			}
		}
		if status, _ := k.ask(opFsync, imageNode, make([]byte, 16)); status != 0 {
			t.Error(status)
		}
	})
}

// The server tells the kernel that its information about the file is stale. From then on the kernel uses the new size.
func TestTheFileGrows(t *testing.T) {
	k := newKernel(t)
	size := func() uint64 {
		status, attr := k.ask(opGetattr, imageNode, make([]byte, 16))
		require.Zero(t, status)
		return le.Uint64(attr[16+8:])
	}
	require.Equal(t, uint64(testSize), size())
	status, _ := k.ask(opWrite, imageNode, writeBody(testSize, []byte("beyond")))
	require.Equal(t, unix.ENOSPC, status)
	k.store.data = make([]byte, 2*testSize)
	require.NoError(t, k.server.Grow(2*testSize))
	unique, code, told := k.reply()
	assert.Zero(t, unique, "it is no answer")
	assert.Equal(t, syscall.Errno(0), code+notifyInvalInode, "its code")
	assert.Equal(t, uint64(imageNode), le.Uint64(told))
	assert.Equal(t, ^uint64(0), le.Uint64(told[8:]), "attributes alone")
	assert.Equal(t, uint64(2*testSize), size())
	status, _ = k.ask(opWrite, imageNode, writeBody(testSize, []byte("beyond")))
	require.Zero(t, status)
	assert.Equal(t, "beyond", string(k.store.data[testSize:testSize+6]))
	require.NoError(t, k.server.Grow(testSize))
	k.reply()
	assert.Equal(t, uint64(2*testSize), size(), "it shrank")
	k.server.Stop()
	await(t, k.server.Ended())
	assert.ErrorContains(t, k.server.Grow(3*testSize), "the server has stopped", "the descriptor may be another file's by now")
}
