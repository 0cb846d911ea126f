package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// Two users write to the two halves of one block that the head does not have. Each write fills the rest of the block
// from the view below.
//
//	L1  an acknowledged write is read

type lockRules struct{ bytes bool } // the engine locks the bytes of a change, not its blocks

type writer struct {
	step uint8 // 0 idle, 1 has the lock, 2 has read the rest, 3 has written, 4 acknowledged
	fill bool
	rest uint8
}

type lockState struct {
	present bool
	half    [2]uint8 // of the head; 0 is what the layer below has, 1 a new value
	w       [2]writer
}

func (r lockRules) conflict() bool {
	const half = layers.BlockBytes / 2
	if r.bytes {
		return false // [0, half) and [half, 2*half)
	}
	_, end := layers.Covered(0, half)
	first, _ := layers.Covered(half, half)
	return first < end
}

func (r lockRules) model() model[lockState, said] {
	return model[lockState, said]{
		successors: func(s *lockState, emit func(said, lockState, string)) {
			for i := range s.w {
				to := *s
				w := &to.w[i]
				w.step++
				text := ""
				switch w.step {
				case 1:
					if other := s.w[1-i].step; r.conflict() && other > 0 && other < 4 {
						continue
					}
					text = "gets its lock"
				case 2:
					w.fill, w.rest = layers.OnWrite(s.present, false).Fill, s.half[1-i]
					text = "reads the rest of the block"
				case 3:
					to.present, to.half[i] = true, 1
					if w.fill {
						to.half[1-i] = w.rest
					}
					text = "writes"
				case 4:
					text = "is acknowledged"
				default:
					continue
				}
				emit(said(fmt.Sprintf("write %d %s", i+1, text)), to, "")
			}
		},
		violation: func(s *lockState) string {
			for i := range s.w {
				if s.w[i].step == 4 && s.half[i] == 0 {
					return fmt.Sprintf("L1: write %d was acknowledged and is lost", i+1)
				}
			}
			return ""
		},
	}
}

func TestWritesToOneBlockAreLockedAsAWhole(t *testing.T) {
	holds(t, lockRules{}.model())
	t.Run("S3: the engine locks bytes", func(t *testing.T) { fails(t, lockRules{bytes: true}.model(), "L1") })
}
