package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One block of two files of one layer: the list has joined them. The block may be absent or present in each, with data
// that a crash left where it is absent. A merge goes up or down, by single steps, with kills and losses of power
// between any two of them. After a stop it starts again, in either direction. Users may write while it runs.
//
//	M1  the view never changes by a merge: while it runs, after a kill, and in the other files' views
//	M2  after a loss of power it is the last flushed change, or a later one

const (
	below   content = old    // what the file below both has, if there is one
	garbage content = 1 << 6 // left by a crash in a block without a bit
	inLower content = one    // in the lower file, flushed
	inUpper content = two    // in the upper file
	byUser  content = 1 << 7 // written during the merge
)

func init() {
	contentNames[garbage], contentNames[byUser] = "leftover", "a user's write"
}

// mergeRules are the rules of one search; rightMerge has the rules of package layers.
type mergeRules struct {
	before func(layers.Direction) []layers.MergeStep
	pieces func(layers.Direction) []layers.MergeStep
	after  func(d layers.Direction, lowest bool) []layers.MergeStep
	merged func(upper, lower layers.Presence, blocks int64, userWrites bool) (removeUpper, removeLower bool)
	failed func(headHas, copied bool) layers.Entry

	overHead      bool // a copy up does not look again at what the upper file has by then
	punchesEarly  bool // the lower block is punched when the upper bit is in memory
	downUserFile  bool // a file that users write to is merged down
	ownBitsOnly   bool // the syncs of a piece do not cover what users wrote; right, as long as punches look at the map
	bitsFirst     bool // the bits are written before the copy
	hidesInMemory bool // a block is punched below a bit that is in memory only, without a merge
	removesByCopy bool // a file leaves the list after its last step, without a look at the maps
}

func rightMerge() mergeRules {
	return mergeRules{
		before: layers.BeforePieces, pieces: layers.PieceSteps, after: layers.AfterPieces, merged: layers.Merged,
		failed: layers.OnFailedWrite,
	}
}

type mergeFile struct {
	data, onDisk content
	bit          bool
	bitOnDisk    uint8 // 1: clear, 2: set, 3: either
}

func (f *mergeFile) put(v content) { f.data, f.onDisk = v, f.onDisk|v }

func (f *mergeFile) set(bit bool) { f.bit, f.bitOnDisk = bit, f.bitOnDisk|bitSet(bit) }

// durable reports whether the bit is set whatever happens.
func (f *mergeFile) durable() bool { return f.bit && f.bitOnDisk == 2 }

type mergePhase uint8

const (
	setup mergePhase = iota
	idle
	running
	lowerRemoved
	upperRemoved
)

type mergeState struct {
	lower, upper    mergeFile
	present, recent bool // of the upper file
	bottom          bool // the lower file is the lowest: it has no map, and has every block
	users           bool // they write to the upper file
	phase           mergePhase
	direction       layers.Direction
	step            uint8
	noted, copied   bool
	read            content // what a copy has read, before it writes
	underWay        content
	last, allowed   content
	writes          uint8
	failedWrites    uint8
}

func (s *mergeState) lowerHas() bool { return s.bottom || s.lower.bit }

// copies reports whether a merge up finds something to copy. In the lowest file, extents show holes once it was
// flushed.
func (s *mergeState) copies() bool {
	if s.bottom {
		return s.lower.data != hole
	}
	return s.lower.bit
}

func (s *mergeState) view() content {
	switch {
	case s.phase == setup:
		return below
	case s.phase == lowerRemoved && s.bottom:
		return s.upper.data.read() // it is the lowest now, and has no map
	case s.phase != upperRemoved && s.present:
		return s.upper.data.read()
	case s.phase != lowerRemoved && s.lowerHas():
		return s.lower.data.read()
	}
	return below
}

func (r mergeRules) model() model[mergeState, said] {
	return model[mergeState, said]{
		start:      mergeState{last: below, allowed: below},
		successors: r.successors,
		violation: func(s *mergeState) string {
			if v := s.view(); v&(s.last|s.underWay) == 0 {
				return fmt.Sprintf("M1: reads %v, acknowledged %v", v, s.last)
			}
			return ""
		},
		show: func(s *mergeState) string {
			return fmt.Sprintf("lower %v (disk %v) bit %v (disk %d); upper %v (disk %v) bit %v (disk %d) present %v recent %v; read %v; acknowledged %v, flushed or later: %v",
				s.lower.data, s.lower.onDisk, s.lower.bit, s.lower.bitOnDisk, s.upper.data, s.upper.onDisk, s.upper.bit, s.upper.bitOnDisk,
				s.present, s.recent, s.read, s.last, s.allowed)
		},
	}
}

func (r mergeRules) successors(s *mergeState, emit func(said, mergeState, string)) {
	do := func(ev said, change func(*mergeState)) {
		to := *s
		change(&to)
		emit(ev, to, "")
	}
	if s.phase == setup {
		setups(emit)
		return
	}
	r.users(s, do)
	switch s.phase {
	case idle:
		do("a merge up starts", func(s *mergeState) { s.start(layers.Up) })
		if !s.users || r.downUserFile {
			do("a merge down starts", func(s *mergeState) { s.start(layers.Down) })
		}
		do("hidden blocks are punched", func(s *mergeState) {
			for _, step := range layers.HiddenSteps() {
				r.apply(s, step)
			}
		})
	case running:
		r.proceed(s, do)
	}
	r.stops(s, emit)
}

func (s *mergeState) start(d layers.Direction) {
	s.phase, s.direction, s.step, s.noted, s.copied, s.read = running, d, 0, false, false, 0
}

// setups emits all states in which a merge may find the block.
func setups(emit func(said, mergeState, string)) {
	file := func(has bool, data content) mergeFile {
		return mergeFile{data: data, onDisk: data, bit: has, bitOnDisk: bitSet(has)}
	}
	variants := []mergeFile{
		file(false, hole), file(false, garbage), file(true, hole), file(true, zero), file(true, inLower),
	}
	for _, lower := range variants {
		for _, upper := range variants {
			for i := range 8 {
				s := mergeState{phase: idle, bottom: i&1 != 0, users: i&2 != 0}
				s.lower, s.upper = lower, upper
				if s.bottom {
					if lower.data == garbage {
						continue // every block of the lowest file counts
					}
					s.lower.bit, s.lower.bitOnDisk = false, 1
				}
				if s.upper.data == inLower {
					s.upper.data, s.upper.onDisk = inUpper, inUpper
				}
				s.present = s.upper.bit
				text := "flushed"
				if i&4 != 0 {
					if !s.present {
						continue
					}
					// Written before the snapshot was deleted, not flushed yet.
					s.upper.bit, s.upper.bitOnDisk, s.recent = false, 1, true
					s.upper.onDisk |= unwritten
					text = "the upper block not flushed"
				}
				s.last = s.view()
				s.allowed = s.last
				if s.recent {
					s.present = false
					s.allowed |= s.view()
					s.present = true
				}
				ev := fmt.Sprintf("lower has it: %v (%v), upper has it: %v (%v), lowest %v, users write %v, %s",
					s.lowerHas(), s.lower.data, s.present, s.upper.data, s.bottom, s.users, text)
				emit(said(ev), s, "")
			}
		}
	}
}

// users covers a write, a write that fails for lack of space, a discard of the block, and a flush. A flush is one event:
// its steps are in the other model. After a write that failed, the block has the old content or the new one.
func (r mergeRules) users(s *mergeState, do func(said, func(*mergeState))) {
	if s.underWay != 0 {
		do("the user's change is entered and acknowledged", func(s *mergeState) {
			s.recent = s.recent || !s.present
			s.present = true
			s.last, s.underWay = s.underWay, 0
		})
		return
	}
	if s.users && s.phase != upperRemoved {
		lowest := s.phase == lowerRemoved && s.bottom // the upper file has every block
		if s.writes < 1 {
			do("a user writes: data in the upper file", func(s *mergeState) {
				s.upper.put(byUser)
				s.underWay, s.allowed = byUser, s.allowed|byUser
				s.writes++
			})
			if e := layers.OnDiscard(s.present || lowest, s.below()); e.Punch || e.Enter {
				do("a user discards: punched in the upper file", func(s *mergeState) {
					s.upper.put(hole)
					s.underWay, s.allowed = zero, s.allowed|zero
					s.writes++
				})
			} else {
				do("a user discards: no layer has the block", func(s *mergeState) {
					s.last, s.allowed = zero, s.allowed|zero
					s.writes++
				})
			}
		}
		if s.failedWrites < 1 {
			do("a user's write fails: data in the upper file, and no entry", func(s *mergeState) {
				s.upper.put(byUser)
				s.last, s.allowed = s.last|byUser, s.allowed|byUser
				if !lowest && r.failed(s.present, s.copied).Punch {
					s.upper.put(hole)
				}
				s.failedWrites++
			})
		}
	}
	do("a flush", func(s *mergeState) { s.flush() })
}

// below reports whether a layer below the upper file has the block. The lowest file of the chain counts where it has
// data.
func (s *mergeState) below() bool { return s.phase != lowerRemoved && s.copies() || !s.bottom }

func (s *mergeState) flush() {
	s.lower.onDisk, s.upper.onDisk = s.lower.data, s.upper.data
	if s.recent {
		s.upper.bit, s.upper.bitOnDisk, s.recent = true, 2, false
	}
	s.allowed = s.last | s.underWay
}

// proceed does the next step of the merge.
func (r mergeRules) proceed(s *mergeState, do func(said, func(*mergeState))) {
	steps := append(append(append([]layers.MergeStep{}, r.before(s.direction)...), r.pieces(s.direction)...), r.after(s.direction, s.bottom)...)
	if int(s.step) < len(steps) {
		st := steps[s.step]
		if st == layers.CopyUp && s.read == 0 {
			do("the piece is read", func(s *mergeState) {
				s.read = garbage // nothing to copy
				if s.copies() && !s.present {
					s.read = s.lower.data
				}
			})
			return
		}
		if st == layers.CopyUp && s.underWay != 0 && !r.overHead {
			return // the copy waits for the replica's lock
		}
		do(said(stepNames[st]), func(s *mergeState) {
			r.apply(s, st)
			s.step++
		})
		return
	}
	upper := onePresence{s.present || s.upper.bit, s.upper.durable()}
	lower := onePresence{has: s.copies()}
	removeUpper, removeLower := r.merged(upper, lower, 1, s.users)
	if r.removesByCopy {
		removeUpper, removeLower = s.direction == layers.Down, s.direction == layers.Up
	}
	switch {
	case removeLower && s.direction == layers.Up:
		do("the list without the lower file", func(s *mergeState) { s.phase = lowerRemoved })
	case removeUpper && s.direction == layers.Down:
		do("the list without the upper file", func(s *mergeState) { s.phase = upperRemoved })
	default:
		do("the merge is not complete and pauses", func(s *mergeState) { s.phase = idle })
	}
}

type onePresence struct{ has, durable bool }

func (p onePresence) Has(int64) bool     { return p.has }
func (p onePresence) Durable(int64) bool { return p.durable }

var stepNames = map[layers.MergeStep]string{
	layers.CopyUp: "copied to the upper file", layers.CopyDown: "copied to the lower file", layers.SyncUpperData: "upper data synced",
	layers.SyncLowerData: "lower data synced", layers.SetUpperBits: "upper bit set", layers.SetLowerBits: "lower bit set",
	layers.ClearUpperBits: "upper bit cleared", layers.SyncUpperMap: "upper map synced", layers.SyncLowerMap: "lower map synced",
	layers.ShowUpperBits: "the upper bit counts", layers.PunchUpper: "upper block punched", layers.PunchLower: "lower block punched", layers.FlushUpper: "upper file flushed",
	layers.RemoveRecent: "recent of the upper file removed", layers.PunchAbsent: "absent blocks of the upper file punched",
}

func (r mergeRules) apply(s *mergeState, st layers.MergeStep) {
	switch st {
	case layers.CopyUp:
		if s.read != garbage && (!s.present || r.overHead) {
			s.upper.put(s.read)
			s.copied = true
		}
		s.read = 0
	case layers.CopyDown:
		if s.upper.bit || s.downAnyway(r) {
			s.lower.put(s.upper.data)
			s.copied = true
		}
	case layers.SyncUpperData:
		s.noted = s.recent && !r.ownBitsOnly
		s.upper.onDisk = s.upper.data
	case layers.SyncLowerData:
		s.lower.onDisk = s.lower.data
	case layers.SetUpperBits:
		if s.copied || s.noted || r.bitsFirst && s.copies() {
			s.upper.set(true)
		}
	case layers.ShowUpperBits:
		s.present = s.present || s.copied
	case layers.SetLowerBits:
		if s.copied && !s.bottom {
			s.lower.set(true)
		}
	case layers.ClearUpperBits:
		if s.copied {
			s.upper.set(false)
			s.present = false
		}
	case layers.SyncUpperMap:
		s.upper.bitOnDisk = bitSet(s.upper.bit)
		s.recent = s.recent && !s.upper.bit
	case layers.SyncLowerMap:
		s.lower.bitOnDisk = bitSet(s.lower.bit)
	case layers.PunchUpper:
		if s.direction == layers.Down && !s.upper.bit {
			s.upper.put(hole)
		}
	case layers.PunchLower:
		if s.lowerHas() && (s.upper.durable() || (r.punchesEarly || r.hidesInMemory) && s.present) {
			s.lower.put(hole)
		}
	case layers.FlushUpper:
		s.flush()
	case layers.RemoveRecent:
		s.recent = false
	case layers.PunchAbsent:
		if !s.present && s.underWay == 0 {
			s.upper.put(hole)
		}
	}
}

func (s *mergeState) downAnyway(r mergeRules) bool { return r.downUserFile && s.present }

func (r mergeRules) stops(s *mergeState, emit func(said, mergeState, string)) {
	open := func(to *mergeState, sameBoot bool) {
		trust := layers.Believe(layers.Opening{SameBoot: sameBoot, SameSuperblock: true})
		to.upper.bitOnDisk, to.lower.bitOnDisk = bitSet(to.upper.bit), bitSet(to.lower.bit)
		to.recent = to.recent && trust.Recent
		to.present = to.upper.bit || to.recent
		to.step, to.noted, to.copied, to.read, to.underWay = 0, false, false, 0, 0
		if to.phase == running {
			to.phase = idle
		}
	}
	verdict := func(rule string, to *mergeState, allowed content) string {
		if v := to.view(); v&allowed == 0 {
			return fmt.Sprintf("%s: reads %v, allowed %v", rule, v, allowed)
		}
		to.last = to.view()
		return ""
	}
	killed := *s
	open(&killed, true)
	why := verdict("M1", &killed, s.last|s.underWay)
	emit("the process is killed", killed, why)

	s.lower.onDisk.each(func(low content) {
		s.upper.onDisk.each(func(up content) {
			for bitsSet := range uint8(4) {
				lowBit, upBit := bitsSet&1, bitsSet>>1
				if s.lower.bitOnDisk>>lowBit&1 == 0 || s.upper.bitOnDisk>>upBit&1 == 0 {
					continue
				}
				to := *s
				to.lower = mergeFile{low, low, lowBit == 1, 1 << lowBit}
				to.upper = mergeFile{up, up, upBit == 1, 1 << upBit}
				open(&to, false)
				why := verdict("M2", &to, s.allowed)
				to.allowed = to.last
				emit(said(fmt.Sprintf("power is lost: lower %v bit %d, upper %v bit %d", low, lowBit, up, upBit)), to, why)
			}
		})
	})
}

func TestAMergeChangesNoView(t *testing.T) {
	skipSlow(t)
	r := rightMerge()
	holds(t, r.model())
	r.ownBitsOnly = true
	holds(t, r.model())
}

func TestAWrongOrderOfAMergeIsFound(t *testing.T) {
	skipSlow(t)
	order := func(d layers.Direction, steps ...layers.MergeStep) func(*mergeRules) {
		return func(r *mergeRules) {
			r.pieces = func(asked layers.Direction) []layers.MergeStep {
				if asked == d {
					return steps
				}
				return layers.PieceSteps(asked)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*mergeRules)
		want   string
	}{
		{"S15: up, the map before the data", func(r *mergeRules) {
			r.bitsFirst = true
			order(layers.Up, layers.SetUpperBits, layers.SyncUpperMap, layers.CopyUp, layers.SyncUpperData, layers.ShowUpperBits, layers.PunchLower)(r)
		}, "M"},
		{"S15: up, data and map are synced together", order(layers.Up, layers.CopyUp, layers.SetUpperBits, layers.SyncUpperMap, layers.SyncUpperData, layers.ShowUpperBits, layers.PunchLower), "M2"},
		{"S15: up, the lower block is punched before the map is durable", func(r *mergeRules) {
			r.punchesEarly = true
			order(layers.Up, layers.CopyUp, layers.SyncUpperData, layers.SetUpperBits, layers.ShowUpperBits, layers.PunchLower, layers.SyncUpperMap)(r)
		}, "M2"},
		{"a block is punched below a bit that is not durable", func(r *mergeRules) { r.hidesInMemory = true }, "M2"},
		{"up, a copied block counts as present before its bit is durable", order(layers.Up, layers.CopyUp, layers.SyncUpperData, layers.SetUpperBits,
			layers.ShowUpperBits, layers.SyncUpperMap, layers.PunchLower), "M2"},
		{"S15: up, a user's block below which the merge punches is not durable", func(r *mergeRules) {
			r.ownBitsOnly, r.punchesEarly = true, true
		}, "M2"},
		{"S15: down, the upper bit is cleared before the map below is durable", order(layers.Down, layers.CopyDown, layers.SyncLowerData, layers.SetLowerBits,
			layers.ClearUpperBits, layers.SyncUpperMap, layers.SyncLowerMap, layers.PunchUpper), "M2"},
		{"S15: down, the upper block is punched before its map is durable", order(layers.Down, layers.CopyDown, layers.SyncLowerData, layers.SetLowerBits,
			layers.SyncLowerMap, layers.ClearUpperBits, layers.PunchUpper, layers.SyncUpperMap), "M2"},
		{"S15: down, the data below is not synced", order(layers.Down, layers.CopyDown, layers.SetLowerBits, layers.SyncLowerMap,
			layers.ClearUpperBits, layers.SyncUpperMap, layers.PunchUpper), "M2"},
		{"S4: a copy into the head does not look again at what the head has", func(r *mergeRules) { r.overHead = true }, "M1"},
		{"S14: a head that users write to is merged down", func(r *mergeRules) { r.downUserFile = true }, "M"},
		{"the lower file leaves the list before the upper bits are durable", func(r *mergeRules) {
			r.ownBitsOnly, r.removesByCopy = true, true
		}, "M2"},
		{"a file that is merged down keeps its recent", func(r *mergeRules) {
			r.before = func(d layers.Direction) []layers.MergeStep { return nil }
		}, "M"},
		{"a write that failed leaves its data in a block without a bit", func(r *mergeRules) {
			r.failed = func(headHas, copied bool) layers.Entry { return layers.Entry{} }
		}, "M1"},
		{"a write that failed is punched where a merge has copied the block", func(r *mergeRules) {
			r.failed = func(headHas, copied bool) layers.Entry { return layers.Entry{Punch: !headHas} }
		}, "M"},
		{"a file becomes the lowest one with what a crash left in it", func(r *mergeRules) {
			r.after = func(layers.Direction, bool) []layers.MergeStep { return nil }
		}, "M"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rightMerge()
			tc.change(&r)
			fails(t, r.model(), tc.want)
		})
	}
}
