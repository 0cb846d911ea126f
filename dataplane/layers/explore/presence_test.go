package explore

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One block of a head, above a layer that has it (value old, flushed). All orders of changes, steps of flushes, kills,
// losses of power, failed syncs and unplugged disks.
//
//	P1  while the replica runs, the block reads as the last acknowledged change
//	P2  after a kill it reads as the last acknowledged change, or as one that was under way
//	P3  after anything that can lose unsynced data it reads as the last flushed change, or a later one

// content is the content of a block of a file, as a bit, so that a set of contents is a sum.
type content uint8

const (
	hole      content = 1 << iota
	unwritten         // allocated; reads as zeroes
	zero
	one
	two
	old
)

var contentNames = map[content]string{hole: "hole", unwritten: "unwritten", zero: "zeroes", one: "1", two: "2", old: "old"}

func (c content) String() string {
	out := ""
	for rest := c; rest != 0; rest &= rest - 1 {
		if out != "" {
			out += "|"
		}
		out += contentNames[content(1)<<bits.TrailingZeros8(uint8(rest))]
	}
	return out
}

// read is the value that a reader of the file gets.
func (c content) read() content {
	if c == hole || c == unwritten {
		return zero
	}
	return c
}

// each calls f for each element of a set.
func (c content) each(f func(content)) {
	for rest := c; rest != 0; rest &= rest - 1 {
		f(content(1) << bits.TrailingZeros8(uint8(rest)))
	}
}

// fileSystem is a way in which file systems report extents.
type fileSystem uint8

const (
	ext4       fileSystem = iota // an unwritten block is a hole, until it is read: then it is "data"
	compresses                   // written zeroes become a hole
	allData                      // knows no holes
)

var fileSystemNames = []string{"ext4", "compressing", "without holes"}

// presenceRules are the rules of one search; right is the zero value with the functions of package layers.
type presenceRules struct {
	flush     []layers.FlushStep
	believe   func(layers.Opening) layers.Trust
	onDiscard func(headHas, below bool) layers.Entry
	fs        fileSystem

	noRecent      bool // first writes are not entered
	extentsDecide bool // an opening takes the extents of a marked region for its map
	mapUnsynced   bool // an opening does not sync the map
	lateNote      bool // a flush writes the bits of the moment when it writes them
}

func rightPresence(fs fileSystem) presenceRules {
	return presenceRules{flush: layers.FlushSteps(), believe: layers.Believe, onDiscard: layers.OnDiscard, fs: fs}
}

type presenceState struct {
	data, onDisk content // what the cache has; what a loss of power may leave
	touched      bool    // an unwritten page was read since
	bit          bool    // in the map, as the cache has it
	bitOnDisk    uint8   // 1: clear, 2: set, 3: either
	recent       bool
	present      bool // in memory
	marked       bool
	stuck        bool // a sync failed: the page counts as clean, and no sync writes it

	last, underWay content
	enters         bool    // the change under way enters the block
	allowed        content // after a loss of unsynced data
	step           uint8   // of the flush under way, from 1
	noted          bool
	since          content // acknowledged or under way since the flush started
	flushed        bool    // no change since the last flush
}

func (s *presenceState) view() content {
	if s.present {
		return s.data.read()
	}
	return old
}

func bitSet(b bool) uint8 {
	if b {
		return 2
	}
	return 1
}

func (r presenceRules) model() model[presenceState, said] {
	return model[presenceState, said]{
		start:      presenceState{data: hole, onDisk: hole, bitOnDisk: 1, last: old, allowed: old, flushed: true},
		successors: r.successors,
		violation: func(s *presenceState) string {
			if v := s.view(); v&(s.last|s.underWay) == 0 {
				return fmt.Sprintf("P1: reads %v, acknowledged %v", v, s.last)
			}
			return ""
		},
		show: func(s *presenceState) string {
			return fmt.Sprintf("file %v (disk %v), bit %v (disk %d), recent %v, present %v, marked %v; acknowledged %v, flushed or later: %v",
				s.data, s.onDisk, s.bit, s.bitOnDisk, s.recent, s.present, s.marked, s.last, s.allowed)
		},
	}
}

func (r presenceRules) successors(s *presenceState, emit func(said, presenceState, string)) {
	do := func(ev said, change func(*presenceState)) {
		to := *s
		change(&to)
		emit(ev, to, "")
	}
	if s.underWay == 0 {
		for _, v := range []content{one, two, zero} {
			do(said(fmt.Sprintf("write of %v: data in the file", v)), func(s *presenceState) { r.write(s, v) })
		}
		do("discard: punched", r.discard)
	} else {
		do("the change is entered and acknowledged", r.acknowledge)
	}
	if s.data == unwritten && !s.touched {
		do("the unwritten block is read", func(s *presenceState) { s.touched = true })
	}
	r.flushes(s, do)
	if s.marked && s.flushed && s.step == 0 {
		do("the mark is cleared", func(s *presenceState) { s.marked = false })
	}
	r.stops(s, emit)
}

// put is a change of the file. On ext4 a loss of power may leave an unwritten block of a first write.
func (s *presenceState) put(v content) {
	s.data, s.onDisk, s.touched, s.stuck = v, s.onDisk|v, false, false
}

func (r presenceRules) write(s *presenceState, v content) {
	was := s.onDisk
	s.put(v)
	switch {
	case r.fs == compresses && v == zero:
		s.data, s.onDisk = hole, was|hole
	case r.fs != compresses && was&(hole|unwritten) != 0:
		s.onDisk |= unwritten
	}
	s.begin(v, layers.OnWrite(s.present, true).Enter)
}

func (r presenceRules) discard(s *presenceState) {
	e := r.onDiscard(s.present, true)
	if e.Punch {
		s.put(hole)
	}
	s.begin(zero, e.Enter)
}

func (s *presenceState) begin(v content, enters bool) {
	s.marked, s.flushed = true, false
	s.underWay, s.enters = v, enters
	s.allowed |= v
	if s.step > 0 {
		s.since |= v
	}
}

func (r presenceRules) acknowledge(s *presenceState) {
	if s.enters {
		s.present = true
		s.recent = !r.noRecent
	}
	s.last, s.underWay, s.enters = s.underWay, 0, false
}

// flushes are the steps of a flush. Changes may come between any two of them.
func (r presenceRules) flushes(s *presenceState, do func(said, func(*presenceState))) {
	if s.step == 0 {
		do("a flush starts", func(s *presenceState) { s.step, s.since = 1, s.last|s.underWay })
		return
	}
	i := int(s.step) - 1
	if i == len(r.flush) {
		do("the flush is acknowledged", func(s *presenceState) {
			s.flushed = s.since == s.last && s.underWay == 0
			s.allowed, s.step, s.since, s.noted = s.since, 0, 0, false
		})
		return
	}
	text := [...]said{"the flush notes the entries", "the flush syncs the data", "the flush writes the bits", "the flush syncs the map"}
	do(text[r.flush[i]], func(s *presenceState) {
		s.step++
		switch r.flush[i] {
		case layers.NoteEntries:
			s.noted = s.present && !s.bit
		case layers.SyncData:
			if !s.stuck {
				s.onDisk = s.data
			}
		case layers.WriteBits:
			if s.noted || r.lateNote && s.present {
				s.bit, s.bitOnDisk = true, s.bitOnDisk|2
			}
		case layers.SyncMaps:
			if s.noted || r.lateNote { // without entries, a flush syncs only the data
				s.bitOnDisk = bitSet(s.bit)
				s.recent = s.recent && !s.bit
			}
		}
	})
}

func (r presenceRules) stops(s *presenceState, emit func(said, presenceState, string)) {
	killed := *s
	r.open(&killed, layers.Opening{SameBoot: true, SameSuperblock: true})
	why := check("P2", killed.view(), s.last|s.underWay, &killed)
	emit("the process is killed", killed, why)

	s.onDisk.each(func(d content) {
		for bit := range 2 {
			if s.bitOnDisk>>bit&1 == 0 {
				continue
			}
			after := *s
			after.data, after.onDisk, after.bit, after.bitOnDisk, after.touched, after.stuck = d, d, bit == 1, 1<<bit, false, false
			off := after
			off.recent = false
			r.open(&off, layers.Opening{SameSuperblock: true})
			why := check("P3", off.view(), s.allowed, &off)
			emit(said(fmt.Sprintf("power is lost, the disk has %v, bit %d", d, bit)), off, why)
			pulled := after
			r.open(&pulled, layers.Opening{SameBoot: true})
			why = check("P3", pulled.view(), s.allowed, &pulled)
			emit(said(fmt.Sprintf("the disk is unplugged and comes back with %v, bit %d", d, bit)), pulled, why)
			failed := after
			o := layers.Opening{SameBoot: true, SameSuperblock: true, FailedSync: true}
			if !r.believe(o).DropCache {
				// The cache still shows what the disk does not have.
				failed.data, failed.onDisk, failed.stuck = s.data, d, d != s.data
			}
			r.open(&failed, o)
			why = check("P3", failed.view(), s.allowed, &failed)
			emit(said(fmt.Sprintf("a sync fails, the disk has %v, bit %d", d, bit)), failed, why)
		}
	})
}

// check returns the broken rule. A state after a stop counts what it shows as acknowledged.
func check(rule string, got, allowed content, s *presenceState) string {
	if got&allowed == 0 {
		return fmt.Sprintf("%s: reads %v, allowed %v", rule, got, allowed)
	}
	s.last = got
	return ""
}

func (r presenceRules) open(s *presenceState, o layers.Opening) {
	s.step, s.since, s.noted, s.underWay, s.enters, s.flushed = 0, 0, false, 0, false, false
	trust := r.believe(o)
	if !r.mapUnsynced {
		s.bitOnDisk = bitSet(s.bit)
	}
	s.present = s.bit || trust.Recent && s.recent
	s.recent = s.recent && trust.Recent
	if r.extentsDecide && s.marked {
		s.present = s.data != hole && (s.data != unwritten || s.touched) || r.fs == allData
	}
	if !s.present {
		s.recent = false
	}
}

func TestPresenceIsRightAfterEveryStop(t *testing.T) {
	skipSlow(t)
	for fs, name := range fileSystemNames {
		t.Run(name, func(t *testing.T) { holds(t, rightPresence(fileSystem(fs)).model()) })
	}
}

func TestAWrongRuleOfPresenceIsFound(t *testing.T) {
	skipSlow(t)
	believeAll := func(layers.Opening) layers.Trust { return layers.Trust{Recent: true} }
	for _, tc := range []struct {
		name   string
		fs     fileSystem
		change func(*presenceRules)
		want   string
	}{
		{"S1: the map is not written by a flush, and there is no recent", ext4, func(r *presenceRules) {
			r.flush, r.noRecent = []layers.FlushStep{layers.SyncData}, true
		}, "P2"},
		{"S1: there is no recent", ext4, func(r *presenceRules) { r.noRecent = true }, "P2"},
		{"S1: the map is written by no flush", ext4, func(r *presenceRules) { r.flush = []layers.FlushStep{layers.SyncData} }, "P3"},
		{"S2: extents decide in marked regions (ext4)", ext4, func(r *presenceRules) { r.extentsDecide = true }, "P"},
		{"S2: extents decide in marked regions (compression)", compresses, func(r *presenceRules) { r.extentsDecide = true }, "P2"},
		{"S2: extents decide in marked regions (no holes)", allData, func(r *presenceRules) { r.extentsDecide = true }, "P"},
		{"the bits are written before the data is durable", ext4, func(r *presenceRules) {
			r.flush = []layers.FlushStep{layers.NoteEntries, layers.WriteBits, layers.SyncMaps, layers.SyncData}
		}, "P3"},
		{"data and map are written, then both are synced", ext4, func(r *presenceRules) {
			r.flush = []layers.FlushStep{layers.NoteEntries, layers.WriteBits, layers.SyncData, layers.SyncMaps}
		}, "P3"},
		{"the entries are noted after the data was synced", ext4, func(r *presenceRules) {
			r.flush = []layers.FlushStep{layers.SyncData, layers.NoteEntries, layers.WriteBits, layers.SyncMaps}
		}, "P3"},
		{"the bits are those of the moment when they are written", ext4, func(r *presenceRules) { r.lateNote = true }, "P3"},
		{"S24: recent counts after a failed sync", ext4, func(r *presenceRules) {
			r.believe = func(o layers.Opening) layers.Trust {
				return layers.Trust{Recent: o.SameBoot && o.SameSuperblock, DropCache: o.FailedSync}
			}
		}, "P3"},
		{"S24: the cache is believed after a failed sync", ext4, func(r *presenceRules) {
			r.believe = func(o layers.Opening) layers.Trust {
				trust := layers.Believe(o)
				trust.DropCache = false
				return trust
			}
		}, "P3"},
		{"recent counts when the disk may have been unplugged", ext4, func(r *presenceRules) {
			r.believe = func(o layers.Opening) layers.Trust {
				o.SameSuperblock = true
				return layers.Believe(o)
			}
		}, "P3"},
		{"recent counts in another boot", ext4, func(r *presenceRules) { r.believe = believeAll }, "P3"},
		{"an opening does not sync the map", ext4, func(r *presenceRules) { r.mapUnsynced = true }, "P3"},
		{"a discard clears nothing and enters nothing", ext4, func(r *presenceRules) {
			r.onDiscard = func(headHas, _ bool) layers.Entry { return layers.Entry{Punch: headHas} }
		}, "P1"},
		{"a discard enters without a punch: what a crash left is back", ext4, func(r *presenceRules) {
			r.onDiscard = func(headHas, below bool) layers.Entry {
				return layers.Entry{Punch: headHas, Enter: !headHas && below}
			}
		}, "P1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rightPresence(tc.fs)
			tc.change(&r)
			fails(t, r.model(), tc.want)
		})
	}
}
