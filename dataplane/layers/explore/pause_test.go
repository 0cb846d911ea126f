package explore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// The barrier on two members, with one write that reaches each member at its own time. The model of the volume takes
// from here that all members switch in one moment.
//
//	B1  nothing waits for a disk or the API server while users wait at the gate
//	B2  the snapshot has a write on all members or on none
//	B3  a write that was acknowledged before the snapshot was requested is in it

type pauseMember struct {
	switched bool
	wrote    uint8 // 1: below the border, 2: above
}

type pauseState struct {
	step   uint8
	shut   bool
	member [2]pauseMember
	write  uint8 // 1: under way, 2: acknowledged
	early  bool  // it was acknowledged before the snapshot was requested
}

type pauseRules struct{ steps []layers.BarrierStep }

var barrierStepNames = map[layers.BarrierStep]string{
	layers.RecordIntended: "the object intends the snapshot", layers.PrepareHeads: "all members prepare", layers.ShutGate: "the gate is shut",
	layers.Drain: "changes under way are answered", layers.SwitchHeads: "all members have switched", layers.OpenGate: "the gate opens",
	layers.FlushAll: "all members flush", layers.StoreFlushed: "all members store 'flushed'", layers.RecordReady: "the object says ready",
}

func (r pauseRules) model() model[pauseState, said] {
	return model[pauseState, said]{
		successors: r.successors,
		violation: func(s *pauseState) string {
			a, b := s.member[0], s.member[1]
			switch {
			case s.write == 2 && (a.wrote == 1) != (b.wrote == 1):
				return "B2: one member has the write in the snapshot, the other one above it"
			case s.early && a.wrote == 2:
				return "B3: the snapshot lacks a write from before"
			}
			return ""
		},
	}
}

func (r pauseRules) successors(s *pauseState, emit func(said, pauseState, string)) {
	to := *s
	if s.write == 0 && !s.shut {
		to.write = 1
		emit("a write starts", to, "")
	}
	if s.write == 1 {
		for i := range s.member {
			if s.member[i].wrote == 0 {
				to = *s
				to.member[i].wrote = 1
				if s.member[i].switched {
					to.member[i].wrote = 2
				}
				emit(said(fmt.Sprintf("%s has the write", memberNames[i])), to, "")
			}
		}
		if s.member[0].wrote != 0 && s.member[1].wrote != 0 {
			to = *s
			to.write, to.early = 2, s.step == 0
			emit("the write is acknowledged", to, "")
		}
	}
	if int(s.step) == len(r.steps) {
		return
	}
	st, why := r.steps[s.step], ""
	to = *s
	to.step++
	switch {
	case st == layers.Drain && s.write == 1:
		return
	case st == layers.SwitchHeads && !(s.member[0].switched && s.member[1].switched):
		for i := range s.member {
			if !s.member[i].switched {
				to = *s
				to.member[i].switched = true
				emit(said(memberNames[i]+" switches"), to, "")
			}
		}
		return
	case st == layers.ShutGate:
		to.shut = true
	case st == layers.OpenGate:
		to.shut = false
	case s.shut && st.Waits():
		why = "B1: users wait for a disk or for the API server"
	}
	emit(said(barrierStepNames[st]), to, why)
}

func TestTheBarrierIsOneMomentAndShort(t *testing.T) {
	holds(t, pauseRules{layers.BarrierSteps()}.model())
	without := func(gone layers.BarrierStep) []layers.BarrierStep {
		return slices.DeleteFunc(layers.BarrierSteps(), func(s layers.BarrierStep) bool { return s == gone })
	}
	for name, tc := range map[string]struct {
		steps []layers.BarrierStep
		want  string
	}{
		"S10: members flush while the gate is shut": {[]layers.BarrierStep{
			layers.RecordIntended, layers.PrepareHeads, layers.ShutGate, layers.Drain, layers.FlushAll, layers.SwitchHeads, layers.OpenGate,
		}, "B1"},
		"S10: members prepare while the gate is shut": {[]layers.BarrierStep{
			layers.RecordIntended, layers.ShutGate, layers.Drain, layers.PrepareHeads, layers.SwitchHeads, layers.OpenGate,
		}, "B1"},
		"changes under way are not answered first": {without(layers.Drain), "B2"},
		"the gate is not shut":                     {without(layers.ShutGate), "B2"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, pauseRules{tc.steps}.model(), tc.want) })
	}
}
