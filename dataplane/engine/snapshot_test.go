package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// intend records the next point in the API object.
func (r *rig) intend() (layers.Line, layers.Point) {
	r.t.Helper()
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	line, p, err := r.api.line.Intend(uint64(1000+r.api.line.Counter), "")
	require.NoError(r.t, err)
	r.api.line = line
	return line, p
}

// conclude records that a point is ready, or gives it up, and tells the engine.
func (r *rig) conclude(e *Engine, p layers.Point, failed error) error {
	r.api.mu.Lock()
	change := r.api.line.Ready
	if failed != nil {
		change = r.api.line.GiveUp
	}
	line, err := change(p)
	if err == nil {
		r.api.line = line
	}
	r.api.mu.Unlock()
	return errors.Join(err, e.SetLine(context.Background(), e.cfg.Session, line))
}

// snapshot creates a snapshot that must succeed.
func (r *rig) snapshot(e *Engine) (layers.Point, SnapshotResult) {
	r.t.Helper()
	line, p := r.intend()
	result, err := e.Snapshot(r.t.Context(), e.cfg.Session, line, p)
	require.NoError(r.t, err)
	require.NoError(r.t, r.conclude(e, p, nil))
	return p, result
}

// sameView fails the test unless the view at a point is the same on the named disks, and equal to want if that is
// given.
func (r *rig) sameView(p layers.Point, want []byte, names ...string) {
	r.t.Helper()
	for _, name := range names {
		got, err := r.disk(name).data.view(p)
		require.NoError(r.t, err, name)
		if want == nil {
			want = got
		}
		r.sameContent(want, got, "the view at point %d of %s", p.Number, name)
	}
}

func (r *rig) sameContent(want, got []byte, format string, args ...any) {
	r.t.Helper()
	for i := range want {
		if want[i] != got[i] {
			r.t.Errorf("content differs, first at %d: want %d, got %d", i, want[i], got[i])
			r.t.Errorf(format, args...)
			return
		}
	}
}

func TestASnapshotIsTheContentAtTheGateOnEveryMember(t *testing.T) {
	for _, wire := range []bool{false, true} {
		r := newRig(t, "a", "b", "c")
		r.local = "a"
		r.wrap = jittered
		if wire {
			r.wrap = r.overTheWire
		}
		var mu sync.Mutex
		atGate := map[string][]byte{}
		for _, d := range r.disks {
			d.before = func(op uint16) {
				if op == points.OpSwitch {
					content, err := d.data.view(layers.Point{})
					mu.Lock()
					defer mu.Unlock()
					atGate[d.name] = content
					assert.NoError(t, err)
				}
			}
		}
		e, _ := r.run(1)
		ctx, stop := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				rnd := rand.New(rand.NewPCG(5, uint64(w)))
				for n := 0; ctx.Err() == nil; n++ {
					off, length := rnd.Int64N(1<<20)&^511, 512*(1+rnd.Int64N(20))
					err := e.Backend().WriteAt(context.Background(), pattern(byte(1+n), length), off, n%7 == 0)
					if n%5 == 0 {
						err = errors.Join(err, e.Backend().Zero(context.Background(), off, 4096, 0))
					}
					if !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		want := map[layers.Point][]byte{}
		for range 3 {
			p, result := r.snapshot(e)
			assert.Equal(t, []string{"a", "b", "c"}, result.Sealed)
			assert.True(t, result.Epoch.Equal(e.State().Epoch))
			mu.Lock()
			want[p] = atGate["a"]
			for name, content := range atGate {
				r.sameContent(want[p], content, "at the gate, on %s", name)
			}
			mu.Unlock()
		}
		stop()
		writers.Wait()
		for p, content := range want {
			r.sameView(p, content, "a", "b", "c")
		}
		r.sameBytes()
		require.NoError(t, e.Stop(t.Context()))
	}
}

// holdOperation makes a disk wait before an operation until the test ends. It returns a channel that is closed when the
// operation has arrived.
func (r *rig) holdOperation(name string, op uint16) <-chan struct{} {
	arrived, release := make(chan struct{}), make(chan struct{})
	var once, opened sync.Once
	r.disk(name).before = func(o uint16) {
		if o == op {
			once.Do(func() { close(arrived) })
			<-release
		}
	}
	r.releases = append(r.releases, func() { opened.Do(func() { close(release) }) })
	return arrived
}

func TestAnAttemptThatFailsChangesNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(r *rig, e *Engine) <-chan struct{} // time passes when the channel is closed
		want  error
		step  time.Duration
		left  []string // the members afterwards
	}{
		{"a member has no room for the next head", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").setControlErr(points.OpPrepare, nbd.ENOSPC)
			return nil
		}, layers.ErrNoRoom, 0, nil},
		{"a member cannot prepare", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").setControlErr(points.OpPrepare, nbd.EIO)
			return nil
		}, layers.ErrNotPrepared, 0, nil},
		{"a member has an older release", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").old = true
			return nil
		}, ErrNotSupported, 0, nil},
		{"a disk is below its reserve", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").data.noRoom = true
			return nil
		}, layers.ErrNoRoom, 0, nil},
		{"a member hangs while it prepares", func(r *rig, _ *Engine) <-chan struct{} {
			return r.holdOperation("b", points.OpPrepare)
		}, layers.ErrNotPrepared, prepareTimeout, nil},
		{"a member cannot switch", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("c").setControlErr(points.OpSwitch, nbd.EINVAL)
			return nil
		}, layers.ErrNotPrepared, 0, nil},
		{"a member hangs while it switches", func(r *rig, _ *Engine) <-chan struct{} {
			return r.holdOperation("c", points.OpSwitch)
		}, layers.ErrLate, pauseLimit, nil},
		{"a change under way is not answered", func(r *rig, e *Engine) <-chan struct{} {
			g, arrived := faulty.NewGate(), make(chan struct{})
			r.disk("c").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Gate: g})
			r.releases = append(r.releases, g.Open)
			go func() { _ = e.Backend().WriteAt(context.Background(), pattern(9, 512), 7*testRegion, false) }()
			<-g.Arrived()
			close(arrived)
			return arrived
		}, layers.ErrLate, pauseLimit, nil},
		{"members differ in a region", func(r *rig, e *Engine) <-chan struct{} {
			for _, d := range r.disks {
				d.io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Tear: 100, Err: nbd.ENOSPC})
			}
			require.ErrorIs(r.t, e.Backend().WriteAt(r.t.Context(), pattern(9, 512), 7*testRegion, false), nbd.ENOSPC)
			return nil
		}, layers.ErrUneven, 0, nil},
		{"a member is full while it seals", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").setControlErr(points.OpSeal, nbd.ENOSPC)
			return nil
		}, layers.ErrNoRoom, 0, nil},
		{"a member fails while it seals", func(r *rig, _ *Engine) <-chan struct{} {
			r.disk("b").setControlErr(points.OpSeal, nbd.EIO)
			return nil
		}, layers.ErrBusy, 0, []string{"a", "c"}},
		{"a member has failed, and the object cannot be written", func(r *rig, e *Engine) <-chan struct{} {
			r.api.cut(true)
			e.memberFailed(e.mirror.roster.Load().find("b"), errRemoved)
			r.releases = append(r.releases, func() { r.api.cut(false) })
			return nil
		}, layers.ErrBusy, 0, []string{"a", "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			e, changed := r.run(1)
			require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 4*testRegion), 0, false))
			arrived := tc.spoil(r, e)
			line, p := r.intend()
			ended := make(chan error, 1)
			go func() {
				_, err := e.Snapshot(context.Background(), e.cfg.Session, line, p)
				ended <- err
			}()
			if arrived != nil {
				<-arrived
				r.stepBy(tc.step, func() bool { return len(ended) > 0 })
			}
			err := r.answer(ended)
			require.ErrorIs(t, err, tc.want)
			if arrived == nil || tc.step == pauseLimit { // users do not wait for what hangs
				require.NoError(t, e.Backend().ReadAt(t.Context(), make([]byte, 512), 0))
			}
			for _, release := range r.releases {
				release()
			}
			require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(2, 512), 512, false), "after the attempt")
			_, again := e.Snapshot(t.Context(), e.cfg.Session, line, p)
			require.ErrorIs(t, again, tc.want, "an attempt is made once")
			if tc.left == nil {
				tc.left = []string{"a", "b", "c"}
			}
			r.await(e, changed, "members", inEpoch(tc.left...))
			r.disk("b").mu.Lock() // a request of the attempt may still be on its way
			r.disk("b").old = false
			r.disk("b").mu.Unlock()
			require.NoError(t, r.conclude(e, p, err))
			for _, name := range tc.left {
				flushed, other := r.disk(name).data.borders()
				assert.Empty(t, append(flushed, other...), "%s did not merge the border away", name)
			}
			r.sameBytes(tc.left...)
			require.NoError(t, e.Stop(t.Context()))
		})
	}
}

// A member that has switched gets later changes above the border, and a member that has not gets them below. After the
// border is given up, both show the same.
func TestAfterAnUnknownSwitchNoMemberIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	r.disk("b").setControlErr(points.OpSwitch, nbd.EINVAL)
	line, p := r.intend()
	_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
	require.ErrorIs(t, err, layers.ErrNotPrepared)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(5, 8192), 0, false))
	viewA, errA := r.disk("a").data.view(p)
	viewB, errB := r.disk("b").data.view(p)
	require.NoError(t, errors.Join(errA, errB))
	assert.NotEqual(t, viewA[:8192], viewB[:8192], "the test has no effect")
	r.sameBytes()
	require.NoError(t, r.conclude(e, p, err))
	r.sameBytes()
	assert.Equal(t, []string{"a", "b"}, e.State().Epoch.Members)
	r.disk("b").setControlErr(points.OpSwitch, nil)
	next, _ := r.snapshot(e)
	r.sameView(next, nil, "a", "b")
}

func TestAChangeWaitsOnlyWhileTheGateIsShut(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	arrived := r.holdOperation("b", points.OpSwitch)
	line, p := r.intend()
	ended, written := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := e.Snapshot(context.Background(), e.cfg.Session, line, p)
		ended <- err
	}()
	<-arrived
	go func() { written <- writeOnes(e.Backend()) }()
	r.expectUnanswered(written)
	require.NoError(t, e.Backend().ReadAt(t.Context(), make([]byte, 512), 0), "a read waits")
	require.NoError(t, flush(e.Backend()), "a flush waits")
	r.stepBy(pauseLimit, func() bool { return len(written) > 0 })
	require.NoError(t, <-written)
	require.ErrorIs(t, r.answer(ended), layers.ErrLate)
}

func TestAChangeThatWaitsAtTheGateEndsWithTheEngine(t *testing.T) {
	for name, want := range map[string]struct {
		end  func(*gate)
		want error
	}{
		"it failed": {func(g *gate) { g.fail() }, nbd.EIO},
		"it stops":  {func(g *gate) { g.shut(nbd.ESHUTDOWN) }, nbd.ESHUTDOWN},
		"it opens":  {func(g *gate) { g.resumeChanges() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			g.serve()
			require.NoError(t, g.enterChange())
			drained := g.pauseChanges()
			require.NoError(t, g.enter(), "another request")
			entered := make(chan error, 1)
			go func() { entered <- g.enterChange() }()
			assert.False(t, isClosed(drained))
			require.NoError(t, g.leaveChange())
			assert.True(t, isClosed(drained))
			want.end(g)
			require.ErrorIs(t, <-entered, want.want)
		})
	}
}

func TestASnapshotIsRefused(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	ctx, session := t.Context(), e.cfg.Session
	line, p := r.intend()
	_, err := e.Snapshot(ctx, "other", line, p)
	require.ErrorIs(t, err, ErrOtherSession)
	_, err = e.Snapshot(ctx, session, layers.Line{}, p)
	require.ErrorIs(t, err, layers.ErrNoPoint)
	first, err := e.Snapshot(ctx, session, line, p)
	require.NoError(t, err)
	again, err := e.Snapshot(ctx, session, line, p)
	require.NoError(t, err)
	assert.Equal(t, first, again, "a repeated call")
	assert.Equal(t, 1, r.disk("a").count(points.OpPrepare))
	require.NoError(t, r.conclude(e, p, nil))

	arrived := r.holdOperation("b", points.OpPrepare)
	line, second := r.intend()
	ended := make(chan error, 1)
	go func() {
		_, err := e.Snapshot(context.Background(), session, line, second)
		ended <- err
	}()
	<-arrived
	third := layers.Point{Number: second.Number + 1, Nonce: 5}
	both := line
	both.Counter++
	both.Points = append(both.Points[:len(both.Points):len(both.Points)], layers.Mark{Point: third, State: layers.Intended})
	_, err = e.Snapshot(ctx, session, both, third)
	require.ErrorIs(t, err, layers.ErrBusy, "another snapshot")
	require.ErrorIs(t, e.Expand(ctx, session, 2*testSize), ErrBusy)
	// The object gives the point up: the attempt ends, although a member hangs.
	given, err := line.GiveUp(second)
	require.NoError(t, err)
	set := make(chan error, 1)
	go func() { set <- e.SetLine(ctx, session, given) }()
	require.ErrorIs(t, r.answer(ended), layers.ErrNotPrepared)
	for _, release := range r.releases {
		release()
	}
	require.NoError(t, r.answer(set))
	require.ErrorIs(t, e.SetLine(ctx, session, layers.Line{}), ErrOldLine)
	require.NoError(t, e.Stop(ctx))
	_, err = e.Snapshot(ctx, session, both, third)
	require.ErrorIs(t, err, ErrNotRunning)
	require.ErrorIs(t, e.SetLine(ctx, session, both), ErrNotRunning)
}

func TestAMemberThatIsFencedDuringASnapshotEndsTheEngine(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1)
	r.disk("b").setControlErr(points.OpPrepare, ErrFenced)
	line, p := r.intend()
	_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
	require.Error(t, err)
	s := r.await(e, changed, "failure", broke)
	assert.Equal(t, ReasonFenced, s.Reason)
}

func TestAVolumeWithoutPointsIsAskedOnlyForItsLayers(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	require.NoError(t, errors.Join(writeOnes(e.Backend()), flush(e.Backend())))
	r.lose(e, changed, "c", "a", "b")
	r.add(e, "c")
	r.awaitMember(e, changed, "c")
	require.NoError(t, e.SetLine(t.Context(), e.cfg.Session, layers.Line{}))
	require.NoError(t, e.Stop(t.Context()))
	for _, d := range r.disks {
		assert.LessOrEqual(t, d.count(points.OpState), 4, d.name)
		for op := points.OpFollow; op <= points.OpEndRebuild; op++ {
			assert.Zero(t, d.count(op), "%s: operation %d", d.name, op)
		}
	}
	assert.Nil(t, e.State().ProposedLine)
}
