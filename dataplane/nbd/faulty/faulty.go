// Package faulty wraps an nbd.Backend so that tests decide which faults occur, where and when. The faults are errors,
// torn writes, delays on an injected clock, and gates, which delay an operation until the test releases it. It records
// every operation. It owns no goroutine and no randomness: only the rules and the order of the operations decide what
// happens.
package faulty

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Kind is a Backend method.
type Kind string

// The kinds of operations.
const (
	Read    Kind = "read"
	Write   Kind = "write"
	Flush   Kind = "flush"
	Trim    Kind = "trim"
	Zero    Kind = "zero"
	Extents Kind = "extents"
)

// Op is one operation as it arrived. Off and Length are in bytes. Seq counts from 1 in the order of arrival.
type Op struct {
	Seq         int
	Kind        Kind
	Off, Length int64
	FUA         bool
	NoHole      bool
}

// Rule describes the faults of the operations that it matches. Its parts act in this order: Gate, Delay, Tear, Err. An
// operation that passes all of them without an error reaches the wrapped Backend.
type Rule struct {
	// Match selects operations; nil selects all. It is called under the Backend's lock and must not call the Backend.
	Match func(Op) bool
	// Times limits how many operations the rule acts on; zero means no limit.
	Times int
	// Gate, if set, delays the operation until the gate is opened or the operation's context is done.
	Gate *Gate
	// Delay, if positive, is a waiting time on the Backend's clock.
	Delay time.Duration
	// Tear, if positive, writes this many bytes of a write to the wrapped Backend before Err is returned.
	Tear int
	// After passes the operation to the wrapped Backend before Err is returned: the lost acknowledgement.
	After bool
	// Err, if set, is returned instead of the result.
	Err error
}

// Of matches operations of the given kinds.
func Of(kinds ...Kind) func(Op) bool {
	return func(op Op) bool { return slices.Contains(kinds, op.Kind) }
}

// Touching matches operations of the given kind with a range that has a byte in [off, off+length).
func Touching(kind Kind, off, length int64) func(Op) bool {
	return func(op Op) bool { return op.Kind == kind && op.Off < off+length && off < op.Off+op.Length }
}

// Gate delays operations. The zero value is not usable; see NewGate.
type Gate struct {
	arrived chan Op
	open    chan struct{}
	once    sync.Once
}

// maxArrivals is how many arrivals a Gate remembers for a test that has not received them yet.
const maxArrivals = 4096

// NewGate creates a closed gate.
func NewGate() *Gate {
	return &Gate{arrived: make(chan Op, maxArrivals), open: make(chan struct{})}
}

// Arrived delivers each operation that reaches the gate. It drops operations that come while maxArrivals wait.
func (g *Gate) Arrived() <-chan Op { return g.arrived }

// Open releases all operations, delayed and future. It may be called more than once.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

func (g *Gate) pass(ctx context.Context, op Op) error {
	select {
	case g.arrived <- op:
	default:
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backend is an nbd.Backend with faults.
type Backend struct {
	inner nbd.Backend
	clock clock.Clock

	mu    sync.Mutex
	rules []*active // guarded by mu; the first that matches acts
	ops   []Op      // guarded by mu
	seq   int       // guarded by mu
}

var _ nbd.Backend = (*Backend)(nil)

type active struct {
	Rule
	left int // operations that it may still act on, if Times is set
}

// Wrap returns inner without any faults. The clock serves only Rule.Delay.
func Wrap(inner nbd.Backend, c clock.Clock) *Backend { return &Backend{inner: inner, clock: c} }

// Inject adds a rule after the existing rules. The returned function removes the rule again; operations that the rule
// delays stay delayed.
func (b *Backend) Inject(r Rule) (remove func()) {
	a := &active{Rule: r, left: r.Times}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = append(b.rules, a)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rules = slices.DeleteFunc(b.rules, func(x *active) bool { return x == a })
	}
}

// Ops returns the operations so far, in the order of their arrival.
func (b *Backend) Ops() []Op {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ops)
}

// Forget empties the record. Seq continues to count.
func (b *Backend) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ops = nil
}

// admit records op and returns the rule that acts on it, if any.
func (b *Backend) admit(op *Op) *active {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	op.Seq = b.seq
	b.ops = append(b.ops, *op)
	for _, a := range b.rules {
		if a.Match != nil && !a.Match(*op) || a.Times > 0 && a.left == 0 {
			continue
		}
		a.left--
		return a
	}
	return nil
}

// run performs op. perform calls the wrapped Backend. tear performs the first part of a torn write; it is nil for other
// operations.
func (b *Backend) run(ctx context.Context, op Op, tear func(n int) error, perform func() error) error {
	r := b.admit(&op)
	if r == nil {
		return perform()
	}
	if r.Gate != nil {
		if err := r.Gate.pass(ctx, op); err != nil {
			return err
		}
	}
	if r.Delay > 0 {
		timer := b.clock.NewTimer(r.Delay)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.Err == nil {
		return perform()
	}
	switch {
	case r.Tear > 0 && tear != nil:
		if err := tear(r.Tear); err != nil {
			return err
		}
	case r.After:
		if err := perform(); err != nil {
			return err
		}
	}
	return r.Err
}

// ReadAt implements nbd.Backend.
func (b *Backend) ReadAt(ctx context.Context, p []byte, off int64) error {
	op := Op{Kind: Read, Off: off, Length: int64(len(p))}
	return b.run(ctx, op, nil, func() error { return b.inner.ReadAt(ctx, p, off) })
}

// WriteAt implements nbd.Backend.
func (b *Backend) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	op := Op{Kind: Write, Off: off, Length: int64(len(p)), FUA: fua}
	tear := func(n int) error { return b.inner.WriteAt(ctx, p[:min(n, len(p))], off, fua) }
	return b.run(ctx, op, tear, func() error { return b.inner.WriteAt(ctx, p, off, fua) })
}

// Flush implements nbd.Backend.
func (b *Backend) Flush(ctx context.Context) error {
	return b.run(ctx, Op{Kind: Flush}, nil, func() error { return b.inner.Flush(ctx) })
}

// Trim implements nbd.Backend.
func (b *Backend) Trim(ctx context.Context, off, length int64, fua bool) error {
	op := Op{Kind: Trim, Off: off, Length: length, FUA: fua}
	return b.run(ctx, op, nil, func() error { return b.inner.Trim(ctx, off, length, fua) })
}

// Zero implements nbd.Backend.
func (b *Backend) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	op := Op{Kind: Zero, Off: off, Length: length, FUA: flags&nbd.ZeroFUA != 0, NoHole: flags&nbd.ZeroNoHole != 0}
	return b.run(ctx, op, nil, func() error { return b.inner.Zero(ctx, off, length, flags) })
}

// Extents implements nbd.Backend.
func (b *Backend) Extents(ctx context.Context, off, length int64) ([]nbd.Extent, error) {
	var out []nbd.Extent
	op := Op{Kind: Extents, Off: off, Length: length}
	err := b.run(ctx, op, nil, func() (err error) {
		out, err = b.inner.Extents(ctx, off, length)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
