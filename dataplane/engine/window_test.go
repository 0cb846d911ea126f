package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// plodder is a replica on a disk that does one request at a time, and takes long for each. Only its work advances the
// time. It advances the time only after all requests that the engine has given to the members have arrived. So
// goroutines that wait to be scheduled do not look like a slow disk.
type plodder struct {
	*session
	rig           *rig
	e             **Engine
	fast          *counted
	arrived, done atomic.Int64

	mu sync.Mutex
}

// counted is the other replica, which answers at once.
type counted struct {
	*session
	done atomic.Int64
}

func (c *counted) WriteAt(ctx context.Context, b []byte, off int64, fua bool) error {
	defer c.done.Add(1)
	return c.session.WriteAt(ctx, b, off, fua)
}

func (c *counted) Flush(ctx context.Context) error {
	defer c.done.Add(1)
	return c.session.Flush(ctx)
}

const plodding = 4 * time.Millisecond

// work advances the time by one request, and waits until the engine has checked.
func (p *plodder) work() {
	for w := &(*p.e).mirror.window; ; time.Sleep(20 * time.Microsecond) {
		arrived := p.arrived.Load()
		if isClosed(p.Done()) || (arrived-p.done.Load())*windowLeast >= w.used.Load() && p.fast.done.Load() >= arrived {
			break
		}
	}
	p.rig.clock.Step(plodding)
	for w, n := (*p.e).mirror.watchdog, 1; ; n++ {
		w.mu.Lock()
		late := w.isWoken && p.rig.clock.Since(w.lastCheck) > membership.CheckInterval+plodding
		w.mu.Unlock()
		if !late {
			return
		}
		time.Sleep(20 * time.Microsecond)
		if n > 100 && n%10 == 0 { // the watchdog may have set its timer only after the time had advanced
			p.rig.clock.Step(plodding)
		}
	}
}

func (p *plodder) WriteAt(ctx context.Context, b []byte, off int64, fua bool) error {
	p.arrived.Add(1)
	defer p.done.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work()
	return p.session.WriteAt(ctx, b, off, fua)
}

func (p *plodder) Flush(ctx context.Context) error {
	p.arrived.Add(1)
	defer p.done.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work()
	return p.session.Flush(ctx)
}

// A slow disk that works is not expelled for the length of its queue, however many requests users have under way.
func TestASlowDiskNextToAFastOneStays(t *testing.T) {
	const writers, writes = 4000, 4800 // 19 s of work for the slow disk
	r := newRig(t, "a", "b")
	r.local = "a"
	var e *Engine
	fast, slow := &counted{}, &plodder{rig: r, e: &e}
	slow.fast = fast
	r.wrap = func(d *disk, s *session) Replica {
		if d.name == "b" {
			slow.session = s
			return slow
		}
		fast.session = s
		return fast
	}
	e, _ = r.run(1)
	began := r.clock.Now()
	next := make(chan int64)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := range next {
				var err error
				if n%100 == 99 {
					err = e.Backend().Flush(context.Background())
				} else {
					err = e.Backend().WriteAt(context.Background(), pattern(byte(n), 512), n*512, false)
				}
				assert.NoError(t, err)
			}
		})
	}
	for n := range int64(writes) {
		next <- n
	}
	close(next)
	wg.Wait()
	assert.GreaterOrEqual(t, r.clock.Since(began), 2*membership.SlowAfter)
	s := e.State()
	assert.True(t, inEpoch("a", "b")(s), s)
	assert.Zero(t, countMode(s, ModeERR))
	r.sameBytes()
}

// Requests that wait enter in the order of their arrival. A request that needs much room is not overtaken by requests
// that need little.
func TestTheWindowIsFair(t *testing.T) {
	var w window
	w.enter(windowBytes)
	const large, small = windowBytes / 2, windowLeast
	var order []string
	entered := make(chan struct{})
	for i, cost := range []int64{large, small, large} {
		go func() {
			w.enter(cost)
			w.mu.Lock()
			order = append(order, []string{"first", "second", "third"}[i])
			w.mu.Unlock()
			entered <- struct{}{}
		}()
		for queued := 0; queued != i+1; time.Sleep(20 * time.Microsecond) {
			w.mu.Lock()
			queued = len(w.queue)
			w.mu.Unlock()
		}
	}
	w.leave(windowBytes)
	<-entered
	<-entered
	select {
	case <-entered:
		t.Fatal("more is inside than there is room for")
	default:
	}
	w.leave(large)
	<-entered
	slices.Sort(order[:2]) // both entered at once
	assert.Equal(t, []string{"first", "second", "third"}, order)
	w.leave(small)
	w.leave(large)
	used, waiting := w.used.Load(), w.waiting.Load()
	assert.Zero(t, used, "%d used and %d waiting in the end", used, waiting)
	assert.Zero(t, waiting)
}
