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
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// layeredRig runs a volume of a, b and c with one snapshot, then loses c and takes two more. c has a block of its own
// that no other member has.
func layeredRig(t *testing.T, adjust func(r *rig)) (r *rig, e *Engine, changed chan struct{}, taken []layers.Point) {
	r = newRig(t, "a", "b", "c")
	if adjust != nil {
		adjust(r)
	}
	e, changed = r.run(1)
	write := func(b byte, off, length int64) {
		t.Helper()
		require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(b, length), off, false))
	}
	write(1, 0, 3*testRegion)
	first, _ := r.snapshot(e)
	write(2, 4096, 8192)
	r.lose(e, changed, "c", "a", "b")
	r.disk("c").data.reopen()
	write(3, 2*testRegion, 4096)
	second, _ := r.snapshot(e)
	write(4, 512, 512)
	require.NoError(t, e.Backend().Trim(t.Context(), testRegion, testRegion, false))
	third, _ := r.snapshot(e)
	write(5, 5*testRegion, 100_000)
	r.disk("c").fill(t, 9, 6*testRegion, 4096)
	return r, e, changed, []layers.Point{first, second, third}
}

// replaceDisk puts a new replica in the place of a disk.
func (r *rig) replaceDisk(name string) {
	for i, d := range r.disks {
		if d.name == name {
			r.disks[i] = newDisk(name)
		}
	}
}

func TestAReplicaIsRebuiltPointByPoint(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, r *rig)
		base  layers.Number
	}{
		{"it was away", func(*testing.T, *rig) {}, 1},
		{"it is new", func(_ *testing.T, r *rig) { r.replaceDisk("c") }, 0},
		{"it has format 1 and old data", func(t *testing.T, r *rig) {
			r.replaceDisk("c")
			r.disk("c").epoch = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
			r.disk("c").fill(t, 7, 0, testSize)
		}, 0},
		{"it has an attempt that was given up", func(t *testing.T, r *rig) {
			p := layers.Point{Number: 2, Nonce: 77}
			r.disk("c").do(t, points.OpPrepare, points.Prepare{Point: p, Limit: layers.MostFiles})
			r.disk("c").do(t, points.OpSwitch, p)
			r.disk("c").fill(t, 8, 3*testRegion, 4096)
			r.disk("c").do(t, points.OpSeal, p)
		}, 1},
		{"it has lost the newest changes", func(_ *testing.T, r *rig) { r.disk("c").mark(3) }, 1},
	} {
		for _, wire := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel() // the end of an engine that has crashed waits for seconds
				r, e, changed, taken := layeredRig(t, func(r *rig) {
					if wire {
						r.local, r.wrap = "a", r.overTheWire
					}
				})
				tc.spoil(t, r)
				r.add(e, "c")
				r.awaitMember(e, changed, "c")
				assert.Equal(t, []layers.Number{tc.base}, r.disk("c").data.bases)
				r.sameBytes()
				for _, p := range taken {
					r.sameView(p, nil, "a", "c")
				}
				require.NoError(t, shows(r.api.recordedLine(), r.disk("c").data.shown()))
				require.Eventually(t, func() bool { return r.disk("c").count(points.OpLine) > 0 }, time.Minute, time.Millisecond, "the line")
				require.NoError(t, writeOnes(e.Backend()))
				last, _ := r.snapshot(e)
				r.sameView(last, nil, "a", "b", "c")
				r.crash(e)
				r.recorded = r.api.epoch()
				next, _ := r.run(2)
				assert.Empty(t, next.State().Lost)
				assert.Len(t, next.State().Epoch.Members, 3)
				for _, p := range append(taken, last) {
					assert.Equal(t, layers.Ready, next.State().Line.State(p))
					r.sameView(p, nil, "a", "b", "c")
				}
				r.sameBytes()
			})
		}
	}
}

// at holds the n-th request of an operation until release is called.
func (r *rig) at(name string, op uint16, n int) (arrived <-chan struct{}, release func()) {
	came, free := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var once sync.Once
	seen := 0
	r.disk(name).before = func(o uint16) {
		if o != op {
			return
		}
		mu.Lock()
		seen++
		now := seen
		mu.Unlock()
		if now == n {
			close(came)
			<-free
		}
	}
	release = func() { once.Do(func() { close(free) }) }
	r.releases = append(r.releases, release)
	return came, release
}

func TestASnapshotDuringAnEarlierStage(t *testing.T) {
	r, e, changed, taken := layeredRig(t, nil)
	arrived, release := r.at("c", points.OpSealStage, 1)
	r.add(e, "c")
	<-arrived
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(6, 4096), 7*testRegion, false))
	p, result := r.snapshot(e)
	assert.Equal(t, []string{"a", "b"}, result.Sealed)
	release()
	r.awaitMember(e, changed, "c")
	r.sameBytes()
	for _, p := range append(taken, p) {
		r.sameView(p, nil, "a", "b", "c")
	}
}

func TestNoSnapshotInTheLastStage(t *testing.T) {
	r, e, changed, _ := layeredRig(t, nil)
	arrived, release := r.at("c", points.OpEndRebuild, 1)
	r.add(e, "c")
	<-arrived
	line, p := r.intend()
	_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
	require.ErrorIs(t, err, layers.ErrBusy)
	assert.ErrorContains(t, err, "replica c is being rebuilt")
	require.NoError(t, r.conclude(e, p, err))
	release()
	r.awaitMember(e, changed, "c")
	next, _ := r.snapshot(e)
	r.sameView(next, nil, "a", "b", "c")
}

func TestNoSnapshotDuringARebuildOfAVolumeWithoutLayers(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	e, changed := r.run(2)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Gate: g})
	r.add(e, "b")
	<-g.Arrived()
	line, p := r.intend()
	_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
	require.ErrorIs(t, err, layers.ErrBusy)
	g.Open()
	r.awaitMember(e, changed, "b")
	require.NoError(t, r.conclude(e, p, err))
	next, _ := r.snapshot(e)
	r.sameView(next, nil, "a", "b")
}

func TestAnInterruptedRebuildStartsAtTheNewestPoint(t *testing.T) {
	for name, end := range map[string]func(r *rig, e *Engine) *Engine{
		"it was removed": func(r *rig, e *Engine) *Engine {
			require.NoError(r.t, e.RemoveReplica(e.cfg.Session, "c"))
			return e
		},
		"the engine died": func(r *rig, e *Engine) *Engine {
			r.crash(e)
			r.recorded = r.api.epoch()
			next, _ := r.run(2)
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, e, _, taken := layeredRig(t, nil)
			arrived, release := r.at("c", points.OpSealStage, 2)
			r.add(e, "c")
			<-arrived
			r.disk("c").setControlErr(points.OpSealStage, nbd.EIO)
			release()
			e = end(r, e)
			require.Eventually(t, e.idle, time.Minute, time.Millisecond)
			r.disk("c").setControlErr(points.OpSealStage, nil)
			r.add(e, "c")
			require.Eventually(t, func() bool { return rebuilt("c")(e.State()) }, time.Minute, time.Millisecond)
			assert.Equal(t, []layers.Number{1, 2}, r.disk("c").data.bases)
			r.sameBytes()
			for _, p := range taken {
				r.sameView(p, nil, "a", "b", "c")
			}
		})
	}
}

func TestAStageContinuesWithAnotherSource(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, e *Engine){
		"a view cannot be read":   func(r *rig, _ *Engine) { r.disk("a").setControlErr(points.OpReadView, nbd.EIO) },
		"the ranges are unknown":  func(r *rig, _ *Engine) { r.disk("a").setControlErr(points.OpDiffers, nbd.EIO) },
		"the layers are not told": func(r *rig, _ *Engine) { r.disk("a").setControlErr(points.OpState, nbd.EIO) },
		"the source is lost": func(r *rig, e *Engine) {
			a := e.mirror.roster.Load().find("a")
			r.disk("a").before = func(op uint16) {
				if op == points.OpReadView {
					go e.memberFailed(a, errRemoved)
					<-a.dropped
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, e, changed, taken := layeredRig(t, nil)
			spoil(r, e)
			r.add(e, "c")
			r.awaitMember(e, changed, "c")
			r.sameBytes("b", "c")
			for _, p := range taken {
				r.sameView(p, nil, "b", "c")
			}
		})
	}
}

func TestARebuildOfLayersThatFailsLeavesTheMembersServing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(d *disk)
		text  string
	}{
		{"it has an older release", func(d *disk) { d.old = true }, "release without snapshots"},
		{"it cannot follow the line", func(d *disk) { d.setControlErr(points.OpFollow, nbd.EIO) }, "follow the line"},
		{"it cannot start", func(d *disk) { d.setControlErr(points.OpStartRebuild, nbd.ENOSPC) }, "operation 18"},
		{"a write fails", func(d *disk) { d.io.Inject(failing(nbd.EIO, faulty.Write)) }, "copy"},
		{"it cannot seal", func(d *disk) { d.setControlErr(points.OpSealStage, nbd.EIO) }, "operation 19"},
		{"it cannot end", func(d *disk) { d.setControlErr(points.OpEndRebuild, nbd.EIO) }, "operation 20"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, e, _, _ := layeredRig(t, nil)
			tc.spoil(r.disk("c"))
			r.add(e, "c")
			r.stepWhileIdle(e, func() bool { return failedWith("c")(e.State()) && e.idle() })
			s := e.State()
			assert.Contains(t, s.Members[2].Error, tc.text)
			assert.Equal(t, []string{"a", "b"}, s.Epoch.Members)
			assert.NoError(t, errors.Join(writeOnes(e.Backend()), flush(e.Backend())))
			next, _ := r.snapshot(e)
			r.sameView(next, nil, "a", "b")
		})
	}
}

func TestATargetThatHangsInAStageIsAbandoned(t *testing.T) {
	for _, local := range []string{"a", "c"} {
		t.Run(local+" is local", func(t *testing.T) {
			r, e, changed, taken := layeredRig(t, func(r *rig) { r.local = local })
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			undo := r.disk("c").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
			r.add(e, "c")
			<-g.Arrived()
			require.NoError(t, writeOnes(e.Backend()), "users wait for a stage")
			r.stepUntil(func() bool { return failedWith("c")(e.State()) && e.idle() })
			undo()
			g.Open()
			r.add(e, "c")
			r.awaitMember(e, changed, "c")
			r.sameBytes()
			for _, p := range taken {
				r.sameView(p, nil, "a", "b", "c")
			}
		})
	}
}

// Writers, snapshots and rebuilds at the same time: at the end, every snapshot is the same on all members.
func TestRebuildsWithSnapshotsUnderLoad(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local, r.wrap = "a", jittered
	e, changed := r.run(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop() // a failure must not leave the writers in the engine, which waits for them
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(8, uint64(w)))
			for n := 0; ctx.Err() == nil; n++ {
				off, length := rnd.Int64N(2<<20)&^511, 512*(1+rnd.Int64N(20))
				if err := e.Backend().WriteAt(context.Background(), pattern(byte(1+n), length), off, false); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	var taken []layers.Point
	for range 2 {
		p, _ := r.snapshot(e)
		r.lose(e, changed, "c", "a", "b")
		r.disk("c").data.reopen()
		during, _ := r.snapshot(e)
		r.add(e, "c")
		taken = append(taken, p, during)
		for !rebuilt("c")(e.State()) {
			line, p := r.intend()
			_, err := e.Snapshot(t.Context(), e.cfg.Session, line, p)
			if err == nil {
				taken = append(taken, p)
			} else {
				require.ErrorIs(t, err, layers.ErrBusy)
			}
			require.NoError(t, r.conclude(e, p, err))
			if len(taken) > 12 {
				r.awaitMember(e, changed, "c")
			}
		}
		require.Eventually(t, e.idle, patience, time.Millisecond)
	}
	stop()
	writers.Wait()
	r.sameBytes()
	for _, p := range taken {
		r.sameView(p, nil, "a", "b", "c")
	}
}
