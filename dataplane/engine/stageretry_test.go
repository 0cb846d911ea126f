package engine

import (
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

// onRequest calls do, with the number of the request, before a disk carries out a request of an operation.
func (r *rig) onRequest(name string, op uint16, do func(n int)) {
	var mu sync.Mutex
	seen := 0
	r.disk(name).before = func(o uint16) {
		if o != op {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
		do(seen)
	}
}

// A range that a new replica got in an earlier stage can have zeroes in a later one.
func TestAStageThatStartsAgainWritesZeroesOverOldData(t *testing.T) {
	r, e, changed, taken := layeredRig(t, nil)
	r.replaceDisk("c")
	r.tick(e)
	r.tick(e)
	r.expectMarks(nil)
	r.onRequest("c", points.OpSealStage, func(n int) {
		if n == 2 {
			r.disk("c").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write, faulty.Zero), Times: 1, Err: nbd.ENOSPC})
		}
	})
	r.add(e, "c")
	r.awaitMember(e, changed, "c")
	r.sameBytes()
	for _, p := range taken {
		r.sameView(p, nil, "a", "b", "c")
	}
}

// The first stage fails after its copy. Then its point is merged away on the members, so the next attempt copies the view
// at a later point.
func TestTheFirstStageStartsAgainForALaterPoint(t *testing.T) {
	for name, gone := range map[string]int{"one point is gone": 2, "all points are gone": 3} {
		t.Run(name, func(t *testing.T) {
			r, e, changed, taken := layeredRig(t, nil)
			r.replaceDisk("c")
			r.tick(e)
			r.tick(e)
			r.expectMarks(nil)
			line := r.api.recordedLine()
			r.onRequest("c", points.OpSealStage, func(n int) {
				if n > 1 {
					r.disk("c").setControlErr(points.OpSealStage, nil)
					return
				}
				r.disk("c").setControlErr(points.OpSealStage, nbd.ENOSPC)
				for _, p := range taken[:gone] {
					line, _ = line.Delete(p)
				}
				r.api.mu.Lock()
				r.api.line = line
				r.api.mu.Unlock()
				require.NoError(t, e.SetLine(t.Context(), e.cfg.Session, line))
				for _, member := range []string{"a", "b"} { // as if it had not learned which points are needed
					r.disk(member).do(t, points.OpLine, points.Line{Line: line})
				}
			})
			r.add(e, "c")
			r.awaitMember(e, changed, "c")
			r.sameBytes()
			for _, p := range taken[gone:] {
				require.Equal(t, layers.Ready, line.State(p))
				r.sameView(p, nil, "a", "b", "c")
			}
		})
	}
}

func TestAStageThatStartsAgainTellsTheLineAgain(t *testing.T) {
	r, e, changed, taken := layeredRig(t, nil)
	r.disk("b").setControlErr(points.OpLine, nbd.EIO)
	told := map[string]int{}
	r.onRequest("c", points.OpSealStage, func(n int) {
		switch n {
		case 1:
			r.disk("b").setControlErr(points.OpLine, nil)
			r.disk("c").setControlErr(points.OpSealStage, nbd.EINVAL) // too many files
			told["b"], told["c"] = r.disk("b").count(points.OpLine), r.disk("c").count(points.OpLine)
		case 2:
			r.disk("c").setControlErr(points.OpSealStage, nil)
			for name, before := range told {
				assert.Greater(t, r.disk(name).count(points.OpLine), before, name)
			}
		}
	})
	r.add(e, "c")
	r.awaitMember(e, changed, "c")
	assert.Len(t, told, 2)
	r.sameBytes()
	for _, p := range taken {
		r.sameView(p, nil, "a", "b", "c")
	}
}

func TestAStageThatFailedTwiceWaitsBeforeItStartsAgain(t *testing.T) {
	r, e, _, _ := layeredRig(t, nil)
	r.disk("c").setControlErr(points.OpSealStage, nbd.EIO)
	third := make(chan error, 1)
	r.onRequest("c", points.OpSealStage, func(n int) {
		if n == maxStageFailures {
			third <- nil
		}
	})
	r.add(e, "c")
	require.Eventually(t, func() bool { return r.disk("c").count(points.OpSealStage) == 2 }, time.Minute, time.Millisecond)
	r.expectUnanswered(third)
	r.stepWhileIdle(e, func() bool { return failedWith("c")(e.State()) && e.idle() })
	require.Len(t, third, 1, e.State())
}
