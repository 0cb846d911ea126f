package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One block of a sealed layer on each of two or three members. A disk may spoil the block of one member at any time.
// Members compute checksums, merge the layer at different times, scrub, and repair each other.
//
//	C1  a checksum that counts belongs to the right content, as long as one member at a time was spoiled
//	C2  a repair, or a merge, never replaces right content by wrong content, and never hides wrong content behind a
//	    checksum that counts
//	C3  right content is not reported as wrong
//	C4  a member that counts as good reads the snapshot rightly

type scrubRules struct {
	members    int
	alone      bool // a member's first checksum counts without a comparison
	fresh      bool // a merge computes the checksum of its copy again
	unchecked  bool // a merge does not check the block before it copies it
	byLayer    bool // members compare layers, not views
	repairHead bool // a repair writes the volume's head
	blames     bool // of two members that differ, the one with a fault in its history is taken for the wrong one
}

type scrubMember struct {
	spoiled bool  // the content
	sum     uint8 // 0: none; 1: of the right content; 2: of spoiled content; computed, it does not count yet
	counts  uint8 // the same; it counts
	faulted bool  // it had an I/O error, a failed sync or a loss of power
	merged  bool  // the layer has the block: in the lower file before, in this layer since
	good    bool  // reported as repaired, or never reported
}

type scrubState struct {
	m       [3]scrubMember
	spoiled uint8
}

func (m *scrubMember) computed() uint8 {
	if m.spoiled {
		return 2
	}
	return 1
}

func (r scrubRules) model() model[scrubState, said] {
	start := scrubState{}
	for i := range r.members {
		start.m[i].good = true
	}
	return model[scrubState, said]{
		start: start, successors: r.successors,
		violation: func(s *scrubState) string {
			for i := range r.members {
				if s.m[i].counts == 2 {
					return fmt.Sprintf("C1: the checksum of spoiled content counts on %s", memberNames[i])
				}
			}
			return ""
		},
		show: func(s *scrubState) string { return fmt.Sprintf("%+v", s.m[:r.members]) },
	}
}

func (r scrubRules) successors(s *scrubState, emit func(said, scrubState, string)) {
	for i := range r.members {
		m := s.m[i]
		do := func(text string, why string, change func(*scrubState, *scrubMember)) {
			to := *s
			change(&to, &to.m[i])
			emit(said(memberNames[i]+" "+text), to, why)
		}
		if s.spoiled == 0 {
			do("has a block that the disk spoiled", "", func(s *scrubState, m *scrubMember) { m.spoiled = true; s.spoiled++ })
		}
		if r.blames && !m.faulted {
			do("has a failed sync, and is opened again", "", func(_ *scrubState, m *scrubMember) { m.faulted = true })
		}
		if m.sum == 0 {
			do("computes the checksum", "", func(_ *scrubState, m *scrubMember) {
				m.sum = m.computed()
				if r.alone {
					m.counts = m.sum
				}
			})
		}
		if !m.merged {
			r.merge(m, do)
		}
		if m.sum != 0 {
			r.judge(s, i, do)
		}
	}
}

// merge moves the block to another file.
func (r scrubRules) merge(m scrubMember, do func(string, string, func(*scrubState, *scrubMember))) {
	if m.counts != 0 && m.counts != m.computed() && !r.unchecked {
		return // the merge waits for the repair
	}
	why := ""
	if r.fresh && m.counts != 0 && m.counts != m.computed() {
		why = "C2: a merge makes a checksum that counts of spoiled content"
	}
	do("merges the layer", why, func(_ *scrubState, m *scrubMember) {
		m.merged = true
		if r.fresh && m.sum != 0 {
			m.sum = m.computed()
			if m.counts != 0 {
				m.counts = m.sum
			}
		}
	})
}

// judge compares the checksum of a member, computed now, with the checksums of the other members.
func (r scrubRules) judge(s *scrubState, i int, do func(string, string, func(*scrubState, *scrubMember))) {
	m := s.m[i]
	mine, counted := uint32(m.computed()), uint32(m.counts)
	var others []uint32
	source := -1
	for j := range r.members {
		if j == i || s.m[j].sum == 0 {
			continue
		}
		sum := uint32(s.m[j].computed())
		if r.byLayer && s.m[j].merged != m.merged {
			sum = 3 // the layer lacks the block, or has it in addition
		}
		others = append(others, sum)
		if m.counts != 0 && sum == counted || m.counts == 0 && !s.m[j].spoiled {
			source = j
		}
	}
	switch layers.JudgeSum(mine, counted, m.counts != 0, others, r.members) {
	case layers.Counts:
		do("compares: its checksum counts", "", func(_ *scrubState, m *scrubMember) { m.sum, m.counts = m.computed(), m.computed() })
	case layers.Repair:
		why := ""
		if !m.spoiled {
			why = "C3: right content is reported as wrong"
		}
		if source >= 0 && s.m[source].spoiled {
			why = "C2: a repair copies spoiled content"
		}
		if r.repairHead && m.spoiled {
			why = "C4: a repaired member reads the snapshot wrongly"
		}
		do("is repaired in place", why, func(_ *scrubState, m *scrubMember) { m.spoiled, m.sum = false, 1 })
	case layers.Unclear:
		if r.blames {
			r.blame(s, i, do)
		}
		if s.spoiled == 0 {
			do("reports that no content is right", "C3: right content is reported as wrong", func(*scrubState, *scrubMember) {})
		}
	}
}

// blame repairs one of two members because of its history.
func (r scrubRules) blame(s *scrubState, i int, do func(string, string, func(*scrubState, *scrubMember))) {
	other := s.m[1-i]
	if !s.m[i].faulted || other.faulted {
		return
	}
	why := ""
	if other.spoiled {
		why = "C2: a repair copies spoiled content"
	}
	do("is repaired, because of its fault", why, func(_ *scrubState, m *scrubMember) { m.spoiled, m.sum = other.spoiled, other.sum })
}

func TestAScrubRepairsAndNeverSpoils(t *testing.T) {
	for members := 2; members <= 3; members++ {
		holds(t, scrubRules{members: members}.model())
	}
	for name, tc := range map[string]struct {
		rules scrubRules
		want  string
	}{
		"S16: a member's own checksum counts at once":                     {scrubRules{members: 2, alone: true}, "C1"},
		"S16: a merge copies without a check, with a fresh checksum":      {scrubRules{members: 2, fresh: true, unchecked: true}, "C"},
		"S16: members compare layers":                                     {scrubRules{members: 3, byLayer: true}, "C3"},
		"of two members, the one with a fault in its history is repaired": {scrubRules{members: 2, blames: true}, "C2"},
		"S22: a bad block of a sealed layer is repaired in the head":      {scrubRules{members: 3, repairHead: true}, "C4"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, tc.rules.model(), tc.want) })
	}
}
