package nbd_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

func TestEveryOperationArrivesAsItWasAsked(t *testing.T) {
	f := faulty.Wrap(memory.New(8<<30), clocktesting.NewFakeClock(time.Unix(0, 0)))
	x := serving(&nbd.Export{
		Name: "vol", Description: "words", Size: 8 << 30, MultiConn: true,
		BlockSize: nbd.BlockSize{Min: 512, Preferred: 8192, Max: 1 << 20}, Backend: f,
	})
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	want := nbd.ExportInfo{
		Name: "vol", Description: "words", Size: 8 << 30, MultiConn: true, CanFlush: true, CanFUA: true, CanTrim: true, CanZero: true,
		Structured: true, CanExtents: true, BlockSize: nbd.BlockSize{Min: 512, Preferred: 8192, Max: 1 << 20},
	}
	assert.Equal(t, want, c.Info())
	assert.Equal(t, int64(8<<30), c.Size())
	ctx := within(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10/16)
	got := make([]byte, len(data))
	for _, err := range []error{
		c.WriteAt(ctx, data, 4096, true), c.WriteAt(ctx, data, 1<<20, false), c.ReadAt(ctx, got, 4096), c.Flush(ctx),
		c.Zero(ctx, 4096, 512, nbd.ZeroFUA|nbd.ZeroNoHole), c.Trim(ctx, 1<<20, 4096, true), c.Zero(ctx, 0, 5<<29, 0),
	} {
		require.NoError(t, err)
	}
	assert.True(t, bytes.Equal(got, data), "other data read than written")
	_, err := c.Extents(ctx, 512, 8<<30-512)
	require.NoError(t, err)
	wantOps := []faulty.Op{
		{Seq: 1, Kind: faulty.Write, Off: 4096, Length: 64 << 10, FUA: true},
		{Seq: 2, Kind: faulty.Write, Off: 1 << 20, Length: 64 << 10},
		{Seq: 3, Kind: faulty.Read, Off: 4096, Length: 64 << 10},
		{Seq: 4, Kind: faulty.Flush},
		{Seq: 5, Kind: faulty.Zero, Off: 4096, Length: 512, FUA: true, NoHole: true},
		{Seq: 6, Kind: faulty.Trim, Off: 1 << 20, Length: 4096, FUA: true},
		{Seq: 7, Kind: faulty.Zero, Off: 0, Length: 1 << 30},
		{Seq: 8, Kind: faulty.Zero, Off: 1 << 30, Length: 1 << 30},
		{Seq: 9, Kind: faulty.Zero, Off: 2 << 30, Length: 1 << 29},
		{Seq: 10, Kind: faulty.Extents, Off: 512, Length: 1 << 30},
	}
	assert.Equal(t, wantOps, f.Ops())
}

func TestExtentsCrossTheWire(t *testing.T) {
	m := memory.New(1 << 20)
	require.NoError(t, m.WriteAt(t.Context(), []byte("x"), 8192, false))
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	got, err := dial(t, path, "vol", nbd.DialOptions{}).Extents(within(t), 4096, 1<<19)
	want := []nbd.Extent{
		{Offset: 4096, Length: 4096, Flags: nbd.ExtentHole | nbd.ExtentZero},
		{Offset: 8192, Length: 4096},
		{Offset: 12288, Length: 1<<19 - 8192, Flags: nbd.ExtentHole | nbd.ExtentZero},
	}
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestErrorsCrossTheWire(t *testing.T) {
	f := faulty.Wrap(memory.New(1<<20), clocktesting.NewFakeClock(time.Unix(0, 0)))
	_, path := listen(t, serving(&nbd.Export{Name: "vol", Size: 1 << 20, Backend: f}), nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	for _, no := range []syscall.Errno{syscall.EPERM, syscall.EIO, syscall.ENOMEM, syscall.EINVAL, syscall.ENOSPC, syscall.EOVERFLOW, syscall.ENOTSUP, syscall.ESHUTDOWN} {
		f.Inject(faulty.Rule{Times: 1, Err: &nbd.Error{Errno: no, Msg: "the reason"}})
		err := c.WriteAt(within(t), []byte("x"), 0, false)
		var e *nbd.Error
		assert.ErrorIs(t, err, no)
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "the reason", e.Msg)
		assert.NotErrorIs(t, err, nbd.ErrUnknownOutcome, "%v: an answer taken for none", no)
		assert.NotErrorIs(t, err, nbd.ErrNotSent, "%v: an answer taken for none", no)
	}
	f.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Err: syscall.EIO})
	assert.ErrorIs(t, c.ReadAt(within(t), make([]byte, 4096), 0), syscall.EIO)
	assert.NoError(t, c.ReadAt(within(t), make([]byte, 4096), 0), "read after an error")
}

func TestRequestsThatCannotBeServedAreNotSent(t *testing.T) {
	f := faulty.Wrap(memory.New(1<<20), clocktesting.NewFakeClock(time.Unix(0, 0)))
	_, path := listen(t, serving(
		&nbd.Export{Name: "rw", Size: 1 << 20, BlockSize: nbd.BlockSize{Min: 512}, Backend: f},
		&nbd.Export{Name: "ro", Size: 1 << 20, ReadOnly: true, Backend: f},
	), nbd.ServerOptions{})
	rw, ro, ctx := dial(t, path, "rw", nbd.DialOptions{}), dial(t, path, "ro", nbd.DialOptions{}), within(t)
	_, extentsErr := rw.Extents(ctx, 0, 1<<20+512)
	for _, c := range []struct {
		name string
		err  error
		want syscall.Errno
	}{
		{"read before the start", rw.ReadAt(ctx, make([]byte, 512), -512), syscall.EINVAL},
		{"read past the end", rw.ReadAt(ctx, make([]byte, 512), 1<<20), syscall.EINVAL},
		{"read larger than any payload", rw.ReadAt(ctx, make([]byte, 33<<20), 0), syscall.EINVAL},
		{"read not aligned", rw.ReadAt(ctx, make([]byte, 100), 0), syscall.EINVAL},
		{"write past the end", rw.WriteAt(ctx, make([]byte, 512), 1<<20, false), syscall.ENOSPC},
		{"zero past the end", rw.Zero(ctx, 512, 1<<20, 0), syscall.ENOSPC},
		{"trim past the end", rw.Trim(ctx, 512, 1<<20, false), syscall.EINVAL},
		{"extents past the end", extentsErr, syscall.EINVAL},
		{"write to a read-only export", ro.WriteAt(ctx, make([]byte, 512), 0, false), syscall.EPERM},
		{"trim of a read-only export", ro.Trim(ctx, 0, 512, false), syscall.EPERM},
		{"zero of a read-only export", ro.Zero(ctx, 0, 512, 0), syscall.EPERM},
	} {
		assert.ErrorIs(t, c.err, c.want, c.name)
	}
	assert.Empty(t, f.Ops())
}

func TestDialReportsRefusals(t *testing.T) {
	x := serving()
	x.err["no"] = nbd.ErrPolicy("generation 3 is over")
	_, path := listen(t, x, nbd.ServerOptions{})
	_, err := nbd.Dial(within(t), "unix", path, "none", nbd.DialOptions{})
	assert.ErrorIs(t, err, nbd.ErrUnknownExport, "unknown export")
	var p *nbd.PolicyError
	_, err = nbd.Dial(within(t), "unix", path, "no", nbd.DialOptions{})
	require.ErrorAs(t, err, &p)
	assert.Equal(t, "generation 3 is over", p.Text)
	silent, err := net.Listen("unix", path+"2")
	require.NoError(t, err)
	defer silent.Close()
	_, err = nbd.Dial(within(t), "unix", path+"2", "x", nbd.DialOptions{Timeout: time.Millisecond})
	assert.ErrorIs(t, err, context.DeadlineExceeded, "silent server")
}

// TestConcurrentRequestsDoNotMix runs workers over TCP and a few connections. Each worker owns a region, writes it, and
// reads it back.
func TestConcurrentRequestsDoNotMix(t *testing.T) {
	const workers, rounds, region = 16, 60, 128 << 10
	m := memory.New(workers * region)
	s := nbd.NewServer(serving(m.Export("vol")), nbd.ServerOptions{MaxInFlight: 8})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	clients := make([]*nbd.Client, 2)
	for i := range clients {
		clients[i], err = nbd.Dial(within(t), "tcp", l.Addr().String(), "vol", nbd.DialOptions{})
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng, c, base := rand.New(rand.NewPCG(1, uint64(w))), clients[w%2], int64(w*region)
			ctx := context.Background()
			if w%3 == 0 {
				ctx = within(t) // covers both ways of sending
			}
			for range rounds {
				off, n := rng.IntN(region/2), 1+rng.IntN(region/2)
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				got := make([]byte, n)
				if err := errors.Join(c.WriteAt(ctx, data, base+int64(off), false), c.ReadAt(ctx, got, base+int64(off))); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got, data) {
					t.Errorf("worker %d read other data than it wrote", w)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		_ = c.Close()
	}
	cancel()
	assert.NoError(t, errors.Join(<-served, s.Shutdown(within(t))))
}

func TestConnectionLostMidRequestLeavesTheOutcomeUnknown(t *testing.T) {
	x, f, gate := gated(t, faulty.Of(faulty.Write, faulty.Read))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	results := make(chan error, 3)
	go func() { results <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	go func() { results <- c.WriteAt(within(t), []byte("abcd"), 0, true) }()
	go func() { results <- c.ReadAt(within(t), make([]byte, 4), 0) }()
	for range 3 {
		receive(t, gate.Arrived(), "a request")
	}
	x.opens()[0].Drop()
	for range 3 {
		err := receive(t, results, "a result")
		assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
		assert.NotErrorIs(t, err, nbd.ErrNotSent)
	}
	err := c.WriteAt(within(t), []byte("abcd"), 0, false)
	assert.ErrorIs(t, err, nbd.ErrNotSent)
	assert.NotErrorIs(t, err, nbd.ErrUnknownOutcome, "a write after the loss")
	assert.Len(t, f.Ops(), 3)
}

func TestCancelledRequestLeavesTheConnectionWhole(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Read))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{})
	require.NoError(t, c.WriteAt(within(t), []byte("abcd"), 0, false))
	ctx, cancel := context.WithCancel(context.Background())
	result, p := make(chan error, 1), []byte("mine")
	go func() { result <- c.ReadAt(ctx, p, 0) }()
	receive(t, gate.Arrived(), "the read")
	cancel()
	err := receive(t, result, "the result")
	assert.ErrorIs(t, err, nbd.ErrUnknownOutcome)
	assert.ErrorIs(t, err, context.Canceled)
	gate.Open() // now the reply comes, and no call waits for it
	q := make([]byte, 4)
	err = c.ReadAt(within(t), q, 0)
	require.NoError(t, err)
	assert.Equal(t, "abcd", string(q), "the next read")
	err = c.Flush(within(t))
	require.NoError(t, err)
	assert.Equal(t, "mine", string(p))
	err = c.Flush(ctx)
	assert.ErrorIs(t, err, nbd.ErrNotSent)
	assert.ErrorIs(t, err, context.Canceled, "a request that began cancelled")
}

func TestCloseLetsRequestsFinish(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{CloseTimeout: patience})
	result, closed := make(chan error, 1), make(chan error, 1)
	go func() { result <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	receive(t, gate.Arrived(), "the write")
	go func() { closed <- c.Close() }()
	gate.Open()
	assert.NoError(t, receive(t, result, "the write"))
	err := receive(t, closed, "the close")
	require.NoError(t, err)
	assert.ErrorIs(t, c.Err(), nbd.ErrClosed)
	assert.Zero(t, x.stillOpen("vol"), "opens after close")
	err = c.Flush(within(t))
	assert.ErrorIs(t, err, nbd.ErrNotSent)
	assert.ErrorIs(t, err, nbd.ErrClosed, "flush after close")
}

func TestCloseTimesOut(t *testing.T) {
	x, _, gate := gated(t, faulty.Of(faulty.Write))
	defer gate.Open()
	_, path := listen(t, x, nbd.ServerOptions{})
	c := dial(t, path, "vol", nbd.DialOptions{CloseTimeout: time.Millisecond})
	result := make(chan error, 1)
	go func() { result <- c.WriteAt(context.Background(), []byte("abcd"), 0, false) }()
	receive(t, gate.Arrived(), "the write")
	_ = c.Close()
	assert.ErrorIs(t, receive(t, result, "the write"), nbd.ErrUnknownOutcome)
}
