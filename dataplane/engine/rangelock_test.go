package engine

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queued starts a lock and returns a channel that delivers it, after it has entered the queue.
func queued(r *rangeLock, off, length int64, mode lockMode) chan *span {
	r.mu.Lock()
	n := len(r.spans)
	r.mu.Unlock()
	got := make(chan *span, 1)
	go func() { got <- r.lock(off, length, mode) }()
	for {
		r.mu.Lock()
		queued := len(r.spans) > n
		r.mu.Unlock()
		if queued {
			return got
		}
	}
}

func waiting(r *rangeLock, off int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.from == off && s.blockers > 0 {
			return true
		}
	}
	return false
}

func TestRangeLockLetsNeighboursPassAndOverlapsWait(t *testing.T) {
	var r rangeLock
	a := r.lock(0, 10, exclusive)
	b := r.lock(10, 10, exclusive) // adjacent, without overlap
	c := queued(&r, 5, 10, exclusive)
	require.True(t, waiting(&r, 5), "a range that overlaps two others does not wait")
	r.unlock(a)
	require.True(t, waiting(&r, 5), "it does not wait for the second")
	r.unlock(b)
	r.unlock(<-c)
	require.Empty(t, r.spans)
}

func TestRangeLockIsFair(t *testing.T) {
	var r rangeLock
	a := r.lock(0, 10, exclusive)
	large := queued(&r, 1, 100, exclusive)
	late := queued(&r, 50, 1, exclusive) // overlaps no held span, only a waiting one
	require.True(t, waiting(&r, 50), "a later request overtook one that waits")
	r.unlock(a)
	l := <-large
	require.True(t, waiting(&r, 50), "the later request runs beside the earlier")
	r.unlock(l)
	r.unlock(<-late)
}

func TestRangeLockSharesAmongReaders(t *testing.T) {
	var r rangeLock
	a, b := r.lock(0, 10, shared), r.lock(5, 10, shared)
	w := queued(&r, 8, 1, exclusive)
	require.True(t, waiting(&r, 8), "a writer runs beside readers")
	r.unlock(a)
	r.unlock(b)
	r.unlock(<-w)
}

func TestRangeLockTriesWithoutWaiting(t *testing.T) {
	var r rangeLock
	a := r.lock(0, 10, shared)
	for _, tc := range []struct {
		name        string
		off, length int64
		mode        lockMode
		free        bool
	}{
		{"another reader of what is read → free", 0, 10, shared, true},
		{"a writer beside what is read → free", 10, 10, exclusive, true},
		{"a writer of what is read → not free", 9, 10, exclusive, false},
	} {
		s := r.tryLock(tc.off, tc.length, tc.mode)
		assert.Equal(t, tc.free, s != nil, "%s: %v", tc.name, s)
		if s != nil {
			r.unlock(s)
		}
	}
	w := queued(&r, 5, 10, exclusive)
	assert.Nil(t, r.tryLock(0, 6, shared), "a reader overtook a writer that waits")
	r.unlock(a)
	r.unlock(<-w)
	assert.Empty(t, r.spans)
}

func TestRangeLockExcludesUnderLoad(t *testing.T) {
	const cells, workers, rounds = 64, 8, 500
	var r rangeLock
	var owner [cells]atomic.Int32
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for range rounds {
				from := rnd.Int64N(cells)
				length := 1 + rnd.Int64N(cells-from)
				s := r.lock(from, length, exclusive)
				for i := from; i < from+length; i++ {
					assert.True(t, owner[i].CompareAndSwap(0, int32(w+1)), "cell %d is held twice", i)
				}
				for i := from; i < from+length; i++ {
					owner[i].Store(0)
				}
				r.unlock(s)
			}
		})
	}
	wg.Wait()
}

func BenchmarkRangeLockAmong16(b *testing.B) {
	var r rangeLock
	for i := range int64(15) {
		r.lock(i*4096, 4096, exclusive)
	}
	for b.Loop() {
		r.unlock(r.lock(1<<30, 4096, exclusive))
	}
}
