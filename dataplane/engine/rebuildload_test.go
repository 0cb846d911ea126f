package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// Writers overlap at random while a replica is rebuilt and a failure occurs at a random moment. Afterwards the members
// hold the same bytes. Each writer also has blocks of its own; these contain the data that was acknowledged last.
func TestRebuildUnderLoadWithFailures(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 9))
			r := newRig(t, "a", "b", "c")
			r.local = []string{"a", "b", "c", ""}[rnd.IntN(4)]
			r.wrap = jittered
			for _, d := range r.disks {
				d.fill(t, 'x', 0, testSize/2)
			}
			r.disk("c").fill(t, 'y', 0, testSize)
			r.disk("c").rebuilding = true
			r.recorded = membership.NewEpoch(1, 2, []string{"a", "b"})
			e, changed := r.run(2)
			load := startLoad(t, e, seed, 0)
			<-load.begun
			if victim := rnd.IntN(4); victim < 3 {
				r.breakSometime(rnd, r.disks[victim].name)
			}
			r.add(e, "c")
			r.await(e, changed, "end of the rebuild", func(s State) bool {
				return e.idle() && (rebuilt("c")(s) || failedWith("c")(s))
			})
			load.stop()
			s := r.await(e, changed, "settled epoch", func(s State) bool { return s.ProposedEpoch.IsZero() && len(s.Epoch.Members) == countMode(s, ModeRW) })
			t.Logf("ended with %s", s.Epoch)
			r.sameBytes(s.Epoch.Members...)
			load.check(t, r.disk(s.Epoch.Members[0]))
			// the failure may also break the last flush
			if err := e.Stop(t.Context()); err != nil {
				assert.ErrorIs(t, err, ErrUnclean)
			}
		})
	}
}

// breakSometime makes a disk fail one of its next requests, in one of several ways.
func (r *rig) breakSometime(rnd *rand.Rand, name string) {
	after := rnd.IntN(60)
	kinds := []faulty.Kind{faulty.Write, faulty.Read, faulty.Flush, faulty.Zero}
	err := []error{nbd.EIO, nbd.ENOSPC, nbd.ErrUnknownOutcome}[rnd.IntN(3)]
	only := kinds[rnd.IntN(len(kinds))]
	seen := 0
	r.disk(name).io.Inject(faulty.Rule{
		Match: func(op faulty.Op) bool {
			if op.Kind != only {
				return false
			}
			seen++
			return seen > after
		},
		Times: 1, Tear: 100, Err: err,
	})
}

// load is several writers on a volume: each has its own blocks, and all share some.
type load struct {
	from  int64 // bytes; nothing before it is changed
	quit  chan struct{}
	begun chan struct{} // closed when a write to a writer's own block was acknowledged
	wg    sync.WaitGroup
	mu    sync.Mutex
	last  map[int64]byte // guarded by mu; by offset: the value that was acknowledged last
}

const (
	loadBlock   = 4096
	loadWriters = 4
)

// startLoad starts to change the volume from an offset on; everything before the offset stays unchanged.
func startLoad(t *testing.T, e *Engine, seed uint64, from int64) *load {
	l := &load{from: from, quit: make(chan struct{}), begun: make(chan struct{}), last: map[int64]byte{}}
	for w := range loadWriters {
		l.wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := 0; !isClosed(l.quit); n++ {
				if err := l.step(e.Backend(), rnd, w, n); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	return l
}

// step writes one of the writer's own blocks, or to the half of the volume that all share.
func (l *load) step(b nbd.Backend, rnd *rand.Rand, w, n int) error {
	ctx, value := context.Background(), byte(1+rnd.IntN(255))
	switch rnd.IntN(6) {
	case 0:
		return b.WriteAt(ctx, pattern(value, 1+rnd.Int64N(20_000)), l.from+rnd.Int64N(testSize/2-l.from-20_000), false)
	case 1:
		return b.Zero(ctx, l.from+rnd.Int64N(testSize/2-l.from-20_000), 1+rnd.Int64N(20_000), 0)
	case 2:
		return b.Flush(ctx)
	}
	off := testSize/2 + loadBlock*(rnd.Int64N(testSize/2/loadBlock/loadWriters)*loadWriters+int64(w))
	if err := b.WriteAt(ctx, pattern(value, loadBlock), off, n%5 == 0); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		close(l.begun)
	}
	l.last[off] = value
	return nil
}

func (l *load) stop() {
	close(l.quit)
	l.wg.Wait()
}

func (l *load) check(t *testing.T, d *disk) {
	t.Helper()
	for off, want := range l.last {
		got := d.bytes(t, off, loadBlock)
		assert.Equal(t, want, got[0], "at %d %s", off, d.name)
		assert.True(t, isUniform(got))
	}
	assert.NotEmpty(t, l.last, "nothing was written")
}

func isUniform(p []byte) bool { return slices.Equal(p[1:], p[:len(p)-1]) }
