package faulty_test

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

func newBackend() (*faulty.Backend, *memory.Backend, *clocktesting.FakeClock) {
	m, clock := memory.New(1<<20), clocktesting.NewFakeClock(time.Unix(0, 0))
	return faulty.Wrap(m, clock), m, clock
}

func content(t *testing.T, m *memory.Backend, n int) string {
	t.Helper()
	p := make([]byte, n)
	if err := m.ReadAt(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

func TestRulesDecideWhatAWriteDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		rule faulty.Rule
		errs [2]error // of two writes of "abcd"
		left string   // what they leave after the first
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
				if err := b.WriteAt(t.Context(), []byte("abcd"), 0, false); !errors.Is(err, want) {
					t.Errorf("write %d: %v, want %v", i+1, err, want)
				}
				if got := content(t, m, 4); i == 0 && got != c.left {
					t.Errorf("left %q, want %q", got, c.left)
				}
			}
		})
	}
}

func TestRemovedRuleActsNoMore(t *testing.T) {
	b, _, _ := newBackend()
	remove := b.Inject(faulty.Rule{Err: syscall.EIO})
	if err := b.Flush(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("flush: %v", err)
	}
	remove()
	if err := b.Flush(t.Context()); err != nil {
		t.Errorf("flush: %v", err)
	}
}

func TestGateHoldsUntilOpened(t *testing.T) {
	b, m, _ := newBackend()
	g := faulty.NewGate()
	b.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	done := make(chan error, 1)
	go func() { done <- b.WriteAt(context.Background(), []byte("abcd"), 0, true) }()
	if op := <-g.Arrived(); op != (faulty.Op{Seq: 1, Kind: faulty.Write, Length: 4, FUA: true}) {
		t.Errorf("arrived %+v", op)
	}
	if got := content(t, m, 4); got != "\x00\x00\x00\x00" {
		t.Errorf("held write left %q", got)
	}
	g.Open()
	if err := <-done; err != nil || content(t, m, 4) != "abcd" {
		t.Errorf("let go: %v, %q", err, content(t, m, 4))
	}
}

func TestGateLetsGoOfACancelledOperation(t *testing.T) {
	b, m, _ := newBackend()
	g := faulty.NewGate()
	b.Inject(faulty.Rule{Gate: g})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.WriteAt(ctx, []byte("abcd"), 0, false); !errors.Is(err, context.Canceled) || content(t, m, 4) != "\x00\x00\x00\x00" {
		t.Errorf("got %v, %q", err, content(t, m, 4))
	}
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
	if err := <-done; err != nil {
		t.Errorf("flush: %v", err)
	}
}

func TestEveryOperationIsRecorded(t *testing.T) {
	b, _, _ := newBackend()
	ctx := t.Context()
	_, extentsErr := b.Extents(ctx, 7, 8)
	for _, err := range []error{
		extentsErr, b.ReadAt(ctx, make([]byte, 2), 1), b.WriteAt(ctx, make([]byte, 3), 2, true),
		b.Flush(ctx), b.Trim(ctx, 4, 5, true), b.Zero(ctx, 5, 6, 3),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []faulty.Op{
		{Seq: 1, Kind: faulty.Extents, Off: 7, Length: 8},
		{Seq: 2, Kind: faulty.Read, Off: 1, Length: 2},
		{Seq: 3, Kind: faulty.Write, Off: 2, Length: 3, FUA: true},
		{Seq: 4, Kind: faulty.Flush},
		{Seq: 5, Kind: faulty.Trim, Off: 4, Length: 5, FUA: true},
		{Seq: 6, Kind: faulty.Zero, Off: 5, Length: 6, FUA: true, NoHole: true},
	}
	if got := b.Ops(); !slices.Equal(got, want) {
		t.Errorf("recorded %+v", got)
	}
	if b.Forget(); len(b.Ops()) != 0 {
		t.Error("the record was not emptied")
	}
}
