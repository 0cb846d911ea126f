package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// spaceRetry is how long a merge without space waits before it tries again.
const spaceRetry = 30 * time.Second

// repairRetry is how long a merge waits after an error that did not end the replica. The error may pass.
const repairRetry = 5 * time.Minute

// merger takes borders away that the line no longer has, and merges the files of their layers, in one goroutine for
// each replica. The goroutine starts with the first line and ends at the close of the replica. Nothing is merged while
// a snapshot is prepared and not switched: the switch must not wait for the disk.
type merger struct {
	r    *Replica
	wake chan struct{} // has an entry when there may be work
	stop chan struct{} // closed by end
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	line    points.Line        // guarded by mu
	started bool               // guarded by mu
	ended   bool               // guarded by mu
	held    int                // guarded by mu; calls in the lane that keep it from working
	cancel  context.CancelFunc // guarded by mu; nil while it does not work
	idle    chan struct{}      // guarded by mu; closed when the current work ends
	waits   layers.MergeWait   // guarded by mu
}

func newMerger(r *Replica) *merger {
	return &merger{r: r, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
}

// follow stores a line, and starts to work by it. A line of an earlier state is not stored: lines may arrive in another
// order than they were sent.
func (m *merger) follow(line points.Line) (isStored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if line.Line.Counter < m.line.Line.Counter {
		return false
	}
	m.line = line
	if m.ended {
		return true
	}
	if !m.started {
		m.started = true
		go m.run()
	}
	m.wakeUp()
	return true
}

// lineNow returns the line of the present session; the zero value if it has sent none.
func (m *merger) lineNow() points.Line {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.line
}

// forget removes the line, because its session has ended: the next session may bring an earlier one, after the API object
// was restored. It waits for the current work.
func (m *merger) forget() {
	m.hold()
	defer m.release()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line = points.Line{}
}

// wakeUp makes the goroutine look for work. It does not wait.
func (m *merger) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// hold ends the current work, and allows none until release. It waits for the disk.
func (m *merger) hold() {
	m.mu.Lock()
	m.held++
	idle := m.interruptLocked()
	m.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

func (m *merger) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held--
	m.wakeUp()
}

// interrupt ends the current work before its next copy. It does not wait.
func (m *merger) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.interruptLocked()
}

func (m *merger) interruptLocked() (idle chan struct{}) {
	if m.cancel == nil {
		return nil
	}
	m.cancel()
	return m.idle
}

// end ends the goroutine and waits for it. It may be called again.
func (m *merger) end() {
	m.mu.Lock()
	started := m.started
	if !m.ended {
		m.ended = true
		close(m.stop)
	}
	m.interruptLocked()
	m.mu.Unlock()
	if started {
		<-m.done
	}
}

// waiting says why a merge waits: one CamelCase word, or "".
func (m *merger) waiting() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mergeWaits[m.waits]
}

// needsReaders means that a border which must go is read: a tool or a session has a view of it.
const needsReaders layers.MergeWait = 100

var mergeWaits = map[layers.MergeWait]string{
	layers.NoWait: "", layers.NeedsBarrier: "NeedsBarrier", layers.NeedsSnapshot: "NeedsSnapshot",
	layers.NeedsRepair: "NeedsRepair", layers.NeedsSpace: "NeedsSpace",
	needsReaders: "NeedsReaders",
}

func (m *merger) run() {
	defer close(m.done)
	for {
		wait := m.work()
		m.mu.Lock()
		changed := m.waits != wait
		m.waits = wait
		m.mu.Unlock()
		if changed {
			m.r.changed()
		}
		if !m.sleep(retryAfter[wait]) {
			return
		}
	}
}

var retryAfter = map[layers.MergeWait]time.Duration{layers.NeedsSpace: spaceRetry, layers.NeedsRepair: repairRetry}

// sleep waits until there may be work, at most for the given time; 0 is no limit. It returns false if there will be no
// work.
func (m *merger) sleep(limit time.Duration) bool {
	var retry <-chan time.Time
	if limit > 0 {
		t := m.r.opts.Clock.NewTimer(limit)
		defer t.Stop()
		retry = t.C()
	}
	select {
	case <-m.stop:
		return false
	case <-m.wake:
	case <-retry:
	}
	return true
}

// work does what can be done now, and returns why the rest waits.
func (m *merger) work() layers.MergeWait {
	c := m.r.chainNow()
	if c == nil || m.r.hasFailed.Load() {
		return layers.NoWait
	}
	ctx, line, ok := m.begin()
	if !ok {
		return layers.NeedsBarrier
	}
	defer m.over()
	if m.r.hasFailed.Load() { // it failed before begin, so its interrupt came too early
		return layers.NoWait
	}
	if line.Line.Counter > 0 { // without a line, each kept map may still be needed
		if err := c.ForgetBases(line.Line); err != nil {
			return m.judge(ctx, c, err)
		}
	}
	for {
		if ctx.Err() != nil {
			return layers.NeedsBarrier
		}
		held, err := m.join(ctx, c, line)
		if err != nil {
			return m.judge(ctx, c, err)
		}
		more, wait, err := c.Merge(pacedContext{ctx, m.r.limit()})
		if err != nil {
			return m.judge(ctx, c, err)
		}
		switch {
		case more:
		case wait == layers.NoWait && held:
			return needsReaders
		default:
			return wait
		}
	}
}

// begin starts to work, unless a call in the lane or a snapshot keeps it from that.
func (m *merger) begin() (context.Context, points.Line, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.held > 0 || m.r.attempt.isPending() {
		return nil, points.Line{}, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.idle = cancel, make(chan struct{})
	return ctx, m.line, true
}

func (m *merger) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancel()
	m.cancel = nil
	close(m.idle)
}

// join takes away the borders that may go. A border above the counter is newer than the line, so it stays: its point
// was intended after the line was sent. A border that is read stays until the view is closed; held reports this.
func (m *merger) join(ctx context.Context, c *chain.Chain, line points.Line) (held bool, err error) {
	for _, l := range c.Layers().Layers {
		p := l.Top.Point
		if p.Number == 0 || p.Number > line.Line.Counter || !line.Line.MayJoin(p, layers.Busy{Needed: line.Needed}) {
			continue
		}
		if err := ctx.Err(); err != nil { // also after the disk was lost
			return held, err
		}
		m.r.dropViews(p)
		switch err := c.Join(p, line.Line, line.Needed); {
		case errors.Is(err, layers.ErrHeld):
			held = true
		case errors.Is(err, layers.ErrNoBorder):
		case err != nil:
			return held, err
		}
	}
	return held, nil
}

// judge returns why the work waits after an error. An error of the disk that has ended the chain ends the replica.
func (m *merger) judge(ctx context.Context, c *chain.Chain, err error) layers.MergeWait {
	switch failed := c.Err(); {
	case failed != nil && !errors.Is(failed, chain.ErrClosed):
		m.r.fail(err)
		return layers.NoWait
	case ctx.Err() != nil, errors.Is(err, layers.ErrBusy):
		return layers.NeedsBarrier
	case isNoSpace(err):
		return layers.NeedsSpace
	}
	if m.r.opts.Log != nil {
		m.r.opts.Log.WithError(err).Warn("Cannot merge layers")
	}
	return layers.NeedsRepair
}

// pacedContext makes a merge wait, before each copy, until more may be written.
type pacedContext struct {
	context.Context
	out *writeback
}

// Err is asked by a merge before each copy, without a lock.
func (p pacedContext) Err() error {
	_ = p.out.awaitRoom(p.Context, nil) // its error is the one of the context
	return p.Context.Err()
}
