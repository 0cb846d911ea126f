package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// farewell is how long a connection that was not cut waits for its peer when it is closed.
const farewell = 2 * time.Second

// peer is a member over the network with a process that may hang. Then nothing is answered until the connection is cut,
// or its farewell is over.
type peer struct {
	*session
	rig  *rig
	hung <-chan struct{} // when it is closed, the process hangs
	// deaf, once closed, makes WriteAsync block in the socket. It simulates a rare write for which a client must wait.
	deaf <-chan struct{}

	once  sync.Once
	ended chan struct{}
	mu    sync.Mutex // held between the last WriteAsync and Close
	calls sync.WaitGroup
}

func (r *rig) peer(s *session, hung, deaf <-chan struct{}) *peer {
	return &peer{session: s, rig: r, hung: hung, deaf: deaf, ended: make(chan struct{})}
}

func (p *peer) WriteAt(ctx context.Context, b []byte, off int64, fua bool) error {
	if isClosed(p.hung) {
		<-p.ended
		return nbd.ErrUnknownOutcome
	}
	return p.session.WriteAt(ctx, b, off, fua)
}

func (p *peer) Flush(ctx context.Context) error {
	if isClosed(p.hung) {
		<-p.ended
		return nbd.ErrUnknownOutcome
	}
	return p.session.Flush(ctx)
}

func (p *peer) WriteAsync(b []byte, off int64, fua bool, done func(error)) {
	if isClosed(p.deaf) {
		done(p.WriteAt(context.Background(), b, off, fua))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.Done()) {
		done(nbd.ErrNotSent)
		return
	}
	p.calls.Go(func() { done(p.WriteAt(context.Background(), b, off, fua)) })
}

func (p *peer) end() { p.once.Do(func() { close(p.ended) }) }

func (p *peer) Close() error {
	if isClosed(p.hung) && !isClosed(p.ended) {
		timer := p.rig.clock.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-p.ended:
		}
	}
	p.end()
	err := p.session.Close()
	p.mu.Lock()   // a later caller sees that it is closed
	p.mu.Unlock() //nolint:staticcheck // it guards only the order
	p.calls.Wait()
	return err
}

// cutPeer is a peer with a connection that can be cut.
type cutPeer struct{ *peer }

func (p cutPeer) Cut(error) { p.end() }

// Requests that waited for a member over the network continue as soon as the epoch is in force, not after the farewell
// of its connection.
func TestAnExpelledMemberIsCutAtOnce(t *testing.T) {
	for name, do := range map[string]func(nbd.Backend) error{"write": writeOnes, "flush": flush} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "a"
			hung := make(chan struct{})
			r.wrap = func(d *disk, s *session) Replica {
				if d.name == "b" {
					return cutPeer{r.peer(s, hung, nil)}
				}
				return s
			}
			e, changed := r.run(1)
			close(hung)
			answered := make(chan error, 1)
			go func() { answered <- do(e.Backend()) }()
			r.stepUntil(func() bool { return countMode(e.State(), ModeERR) == 1 })
			// no simulated time passes from here on
			assert.NoError(t, r.answer(answered))
			r.await(e, changed, "epoch", inEpoch("a", "c"))
		})
	}
}

// A member over the network accepts nothing. The others get the write at once, whatever their names are: no simulated
// time passes.
func TestAWriteComesToAllMembersThoughOneTakesNothing(t *testing.T) {
	for _, hanging := range []string{"b", "c"} {
		t.Run(hanging, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "a"
			hung := make(chan struct{})
			r.wrap = func(d *disk, s *session) Replica {
				switch d.name {
				case "a":
					return s
				case hanging:
					return cutPeer{r.peer(s, hung, nil)}
				}
				return cutPeer{r.peer(s, nil, nil)}
			}
			e, changed := r.run(1)
			close(hung)
			came := map[string]chan error{"a": make(chan error, 1), "b": make(chan error, 1), "c": make(chan error, 1)}
			delete(came, hanging)
			for name, c := range came {
				g := faulty.NewGate()
				r.disk(name).io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Gate: g})
				go func() {
					<-g.Arrived()
					g.Open()
					c <- nil
				}()
			}
			answered := make(chan error, 1)
			go func() { answered <- writeOnes(e.Backend()) }()
			for _, c := range came {
				assert.NoError(t, r.answer(c))
			}
			r.stepUntil(func() bool { return len(answered) > 0 })
			assert.NoError(t, <-answered)
			s := r.await(e, changed, "epoch", func(s State) bool { return len(s.Epoch.Members) < 3 })
			assert.False(t, s.Epoch.Has(hanging))
		})
	}
}

// The call to one member blocks, so the next member gets the request late. Only the first member is slow.
func TestAMemberThatGotNoRequestIsNotSlow(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	hung := make(chan struct{})
	r.wrap = func(d *disk, s *session) Replica {
		switch d.name {
		case "b":
			return r.peer(s, hung, hung)
		case "c":
			return r.peer(s, nil, nil)
		}
		return s
	}
	e, changed := r.run(1)
	close(hung)
	began := r.clock.Now()
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	r.stepUntil(func() bool { return len(answered) > 0 })
	assert.NoError(t, <-answered)
	assert.GreaterOrEqual(t, r.clock.Since(began), membership.SlowAfter)
	s := r.await(e, changed, "epoch", func(s State) bool { return len(s.Epoch.Members) < 3 })
	r.expectModes(s, map[string]string{"a": ModeRW, "b": ModeERR, "c": ModeRW})
	r.sameBytes("a", "c")
}

// A long range is zeroed in pieces of limited length, which end at multiples of this length.
func TestALongRangeIsZeroedInPieces(t *testing.T) {
	const size = 5 * zeroPiece / 2
	for name, do := range map[string]func(b nbd.Backend, off, length int64) error{
		"zero": func(b nbd.Backend, off, length int64) error {
			return b.Zero(context.Background(), off, length, nbd.ZeroFUA|nbd.ZeroNoHole)
		},
		"trim": func(b nbd.Backend, off, length int64) error { return b.Trim(context.Background(), off, length, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			for _, d := range r.disks {
				d.resize(size)
			}
			e, _ := r.run(1, func(c *Config) { c.SizeBytes = size })
			const off = zeroPiece / 2
			require.NoError(t, do(e.Backend(), off, size-off))
			noHole := name == "zero"
			want := []faulty.Op{
				{Seq: 1, Kind: faulty.Zero, Off: off, Length: zeroPiece - off, FUA: true, NoHole: noHole},
				{Seq: 2, Kind: faulty.Zero, Off: zeroPiece, Length: zeroPiece, FUA: true, NoHole: noHole},
				{Seq: 3, Kind: faulty.Zero, Off: 2 * zeroPiece, Length: zeroPiece / 2, FUA: true, NoHole: noHole},
			}
			for _, d := range r.disks {
				assert.Equal(t, want, d.io.Ops(), d.name)
			}
			for _, d := range r.disks {
				d.io.Forget()
			}
			err := do(e.Backend(), off, size)
			assert.ErrorIs(t, err, nbd.ENOSPC)
			assert.Empty(t, r.disk("a").io.Ops(), "past the end")
		})
	}
}

// If a piece is refused, the whole range is refused.
func TestALongRangeIsNotZeroedBeyondAPieceThatFails(t *testing.T) {
	const size = 2 * zeroPiece
	r := newRig(t, "a")
	r.disk("a").resize(size)
	e, _ := r.run(1, func(c *Config) { c.SizeBytes = size })
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Zero), Times: 1, Err: nbd.EIO})
	err := e.Backend().Zero(t.Context(), 0, size, 0)
	ops := r.disk("a").io.Ops()
	assert.ErrorIs(t, err, nbd.EIO, "got %v after %s", err, fmt.Sprint(ops))
	assert.Len(t, ops, 1)
}
