package faulty_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

func newBackend() (*faulty.Backend, *memory.Backend, *clocktesting.FakeClock) {
	m, clock := memory.New(1<<20), clocktesting.NewFakeClock(time.Unix(0, 0))
	return faulty.Wrap(m, clock), m, clock
}

func content(t *testing.T, m *memory.Backend, n int) string {
	t.Helper()
	p := make([]byte, n)
	require.NoError(t, m.ReadAt(t.Context(), p, 0))
	return string(p)
}

func TestRulesDecideWhatAWriteDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		rule faulty.Rule
		errs [2]error // of two writes of "abcd"
		left string   // the content after the first
	}{
		{"no rule matches → written", faulty.Rule{Match: faulty.Of(faulty.Read), Err: syscall.EIO}, [2]error{}, "abcd"},
		{"error → nothing written", faulty.Rule{Err: syscall.EIO}, [2]error{syscall.EIO, syscall.EIO}, "\x00\x00\x00\x00"},
		{"error once → the second is written", faulty.Rule{Times: 1, Err: syscall.EIO}, [2]error{syscall.EIO, nil}, "\x00\x00\x00\x00"},
		{"torn → the first part written", faulty.Rule{Tear: 2, Err: syscall.EIO}, [2]error{syscall.EIO, syscall.EIO}, "ab\x00\x00"},
		{"lost acknowledgement → written", faulty.Rule{After: true, Err: syscall.EIO}, [2]error{syscall.EIO, syscall.EIO}, "abcd"},
		{"elsewhere → written", faulty.Rule{Match: faulty.Touching(faulty.Write, 4, 100), Err: syscall.EIO}, [2]error{}, "abcd"},
		{"touching the last byte → nothing written", faulty.Rule{Match: faulty.Touching(faulty.Write, 3, 100), Err: syscall.EIO}, [2]error{syscall.EIO, syscall.EIO}, "\x00\x00\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, m, _ := newBackend()
			b.Inject(c.rule)
			for i, want := range c.errs {
				assert.ErrorIs(t, b.WriteAt(t.Context(), []byte("abcd"), 0, false), want, "write %d", i+1)
				got := content(t, m, 4)
				if i == 0 {
					assert.Equal(t, c.left, got)
				}
			}
		})
	}
}

func TestRemovedRuleActsNoMore(t *testing.T) {
	b, _, _ := newBackend()
	remove := b.Inject(faulty.Rule{Err: syscall.EIO})
	assert.ErrorIs(t, b.Flush(t.Context()), syscall.EIO)
	remove()
	assert.NoError(t, b.Flush(t.Context()))
}

func TestGateHoldsUntilOpened(t *testing.T) {
	b, m, _ := newBackend()
	g := faulty.NewGate()
	b.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	done := make(chan error, 1)
	go func() { done <- b.WriteAt(context.Background(), []byte("abcd"), 0, true) }()
	assert.Equal(t, faulty.Op{Seq: 1, Kind: faulty.Write, Length: 4, FUA: true}, <-g.Arrived())
	assert.Equal(t, "\x00\x00\x00\x00", content(t, m, 4), "while the write is held")
	g.Open()
	err := <-done
	require.NoError(t, err)
	assert.Equal(t, "abcd", content(t, m, 4), "after it is let go")
}

func TestGateLetsGoOfACancelledOperation(t *testing.T) {
	b, m, _ := newBackend()
	g := faulty.NewGate()
	b.Inject(faulty.Rule{Gate: g})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := b.WriteAt(ctx, []byte("abcd"), 0, false)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "\x00\x00\x00\x00", content(t, m, 4))
}

func TestDelayWaitsForTheClock(t *testing.T) {
	b, _, clock := newBackend()
	g := faulty.NewGate()
	g.Open()
	b.Inject(faulty.Rule{Gate: g, Delay: time.Minute})
	done := make(chan error, 1)
	go func() { done <- b.Flush(context.Background()) }()
	<-g.Arrived()
	for !clock.HasWaiters() { // the flush is between the gate and the clock
		select {
		case err := <-done:
			t.Fatalf("flush did not wait: %v", err)
		default:
		}
	}
	clock.Step(time.Minute)
	assert.NoError(t, <-done)
}

func TestEveryOperationIsRecorded(t *testing.T) {
	b, _, _ := newBackend()
	ctx := t.Context()
	_, extentsErr := b.Extents(ctx, 7, 8)
	for _, err := range []error{
		extentsErr, b.ReadAt(ctx, make([]byte, 2), 1), b.WriteAt(ctx, make([]byte, 3), 2, true),
		b.Flush(ctx), b.Trim(ctx, 4, 5, true), b.Zero(ctx, 5, 6, 3),
	} {
		require.NoError(t, err)
	}
	want := []faulty.Op{
		{Seq: 1, Kind: faulty.Extents, Off: 7, Length: 8},
		{Seq: 2, Kind: faulty.Read, Off: 1, Length: 2},
		{Seq: 3, Kind: faulty.Write, Off: 2, Length: 3, FUA: true},
		{Seq: 4, Kind: faulty.Flush},
		{Seq: 5, Kind: faulty.Trim, Off: 4, Length: 5, FUA: true},
		{Seq: 6, Kind: faulty.Zero, Off: 5, Length: 6, FUA: true, NoHole: true},
	}
	assert.Equal(t, want, b.Ops())
	b.Forget()
	assert.Empty(t, b.Ops(), "the record was not emptied")
}
