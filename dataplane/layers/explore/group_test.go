package explore

import (
	"fmt"
	"testing"
)

// A snapshot of a group of two volumes. A user writes to volume A, and after that write was acknowledged, to volume B.
// Engines die, holds end by their deadlines, messages arrive late or never.
//
//	G1  a complete group has its point in both lines; a group that failed has it in none
//	G2  there was one moment: a snapshot with the second write has the first one

type outcome uint8

const (
	undecided outcome = iota
	complete
	failed
)

type groupRules struct {
	noHold        bool // each engine switches as soon as it is asked, without waiting for the other one
	staleSwitch   bool // an engine whose hold has ended switches
	aloneGivesUp  bool // a start gives the point up without a look at the group object
	aloneKeeps    bool // a start keeps the point if its members have sealed, without a look at the group object
	completeEarly bool // the group is complete when all have switched
	undecidedOut  bool // a start takes the point out of the line before the group object says failed
}

type groupVolume struct {
	up               bool
	prepared, held   bool
	switched, sealed bool
	askedToSwitch    bool    // the message was sent
	point            outcome // of this volume's line: undecided is intended
	written, inSnap  bool
}

type groupState struct {
	volume [2]groupVolume
	group  outcome
	asked  bool // the coordinator saw all hold
	ended  [2]bool
	deaths uint8
}

func (r groupRules) model() model[groupState, said] {
	start := groupState{}
	for i := range start.volume {
		start.volume[i].up = true
	}
	return model[groupState, said]{
		start: start, successors: r.successors,
		violation: func(s *groupState) string {
			for i, v := range s.volume {
				if s.group == complete && v.point == failed || s.group == failed && v.point == complete {
					return fmt.Sprintf("G1: the group and volume %c disagree", 'A'+i)
				}
				if s.group == complete && !v.sealed {
					return fmt.Sprintf("G1: the group is complete and volume %c has not sealed", 'A'+i)
				}
			}
			if s.group == complete && s.volume[1].inSnap && !s.volume[0].inSnap {
				return "G2: the snapshot has the second write without the first"
			}
			return ""
		},
	}
}

func (r groupRules) successors(s *groupState, emit func(said, groupState, string)) {
	do := func(text string, i int, change func(*groupState, *groupVolume)) {
		to := *s
		change(&to, &to.volume[i])
		if i == 0 {
			text = "A: " + text
		} else {
			text = "B: " + text
		}
		emit(said(text), to, "")
	}
	for i := range s.volume {
		v := s.volume[i]
		if !v.up {
			r.start(s, i, do)
			continue
		}
		gate := !v.held
		if !v.written && gate && (i == 0 || s.volume[0].written) {
			do("a write is acknowledged", i, func(_ *groupState, v *groupVolume) { v.written = true })
		}
		if s.deaths < 2 {
			do("the engine dies", i, func(s *groupState, v *groupVolume) {
				v.up, v.held, v.askedToSwitch = false, false, false
				s.deaths++
			})
		}
		if v.point != undecided {
			continue
		}
		if !v.prepared {
			do("all members have prepared, the gate is shut", i, func(s *groupState, v *groupVolume) { v.prepared, v.held = true, true })
		}
		if v.held && !v.switched {
			do("the hold ends by its deadline, the gate opens", i, func(s *groupState, v *groupVolume) { v.held, s.ended[i] = false, true })
		}
		mayAsk := s.asked || r.noHold
		mayObey := v.held || r.staleSwitch
		if v.prepared && !v.switched && mayAsk && mayObey {
			do("switches, the gate opens", i, func(_ *groupState, v *groupVolume) { v.switched, v.held, v.inSnap = true, false, v.written })
		}
		if v.switched && !v.sealed {
			do("all members have flushed and sealed", i, func(_ *groupState, v *groupVolume) { v.sealed = true })
		}
		r.learn(s, i, do)
	}
	r.coordinator(s, emit)
}

// learn brings the group's decision to a volume.
func (r groupRules) learn(s *groupState, i int, do func(string, int, func(*groupState, *groupVolume))) {
	if s.group != undecided && s.volume[i].point == undecided {
		do("the line says what the group object says", i, func(s *groupState, v *groupVolume) { v.point = s.group })
	}
}

func (r groupRules) coordinator(s *groupState, emit func(said, groupState, string)) {
	a, b := s.volume[0], s.volume[1]
	if !s.asked && a.held && b.held {
		to := *s
		to.asked = true
		emit("the coordinator sees both hold and asks them to switch", to, "")
	}
	if s.group != undecided {
		return
	}
	to := *s
	to.group = complete
	if a.sealed && b.sealed || r.completeEarly && a.switched && b.switched {
		emit("the group object says complete", to, "")
	}
	to.group = failed
	emit("the group object says failed", to, "")
}

// start is the start of another engine of one volume.
func (r groupRules) start(s *groupState, i int, do func(string, int, func(*groupState, *groupVolume))) {
	v := s.volume[i]
	again := func(v *groupVolume) { v.up, v.held = true, false }
	switch {
	case v.point != undecided || !v.prepared:
		do("an engine starts", i, func(_ *groupState, v *groupVolume) { again(v) })
	case r.aloneGivesUp:
		do("an engine starts and gives the point up", i, func(_ *groupState, v *groupVolume) { again(v); v.point = failed })
	case r.aloneKeeps && v.sealed:
		do("an engine starts and keeps the point", i, func(_ *groupState, v *groupVolume) { again(v); v.point = complete })
	case r.undecidedOut && s.group == undecided:
		do("an engine starts and takes the point out before the group object says failed", i, func(_ *groupState, v *groupVolume) {
			again(v)
			v.point = failed
		})
	case s.group == undecided:
		do("a start writes into the group object: failed", i, func(s *groupState, v *groupVolume) { s.group = failed })
	default:
		do("an engine starts and follows the group object", i, func(s *groupState, v *groupVolume) { again(v); v.point = s.group })
	}
}

func TestAGroupIsAllOrNone(t *testing.T) {
	holds(t, groupRules{}.model())
	for name, tc := range map[string]struct {
		rules groupRules
		want  string
	}{
		"S21: each engine switches without waiting for the other": {groupRules{noHold: true}, "G2"},
		"S21: an engine whose hold has ended switches":            {groupRules{staleSwitch: true}, "G2"},
		"S21: each engine gives up alone at its start":            {groupRules{aloneGivesUp: true}, "G1"},
		"S21: each engine keeps alone at its start":               {groupRules{aloneKeeps: true}, "G1"},
		"the group is complete when all have switched":            {groupRules{completeEarly: true}, "G1"},
		"a start gives up before the group object says failed":    {groupRules{undecidedOut: true}, "G1"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, tc.rules.model(), tc.want) })
	}
}
