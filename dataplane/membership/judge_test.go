package membership

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestJudge(t *testing.T) {
	serves := func(r ...Result) (parts []Part) {
		for _, r := range r {
			parts = append(parts, Part{Serving, r})
		}
		return parts
	}
	with := func(parts []Part, s Role, r Result) []Part { return append(parts, Part{s, r}) }
	for _, tc := range []struct {
		name  string
		parts []Part
		want  Judgement
	}{
		{"all stored → acknowledged", serves(Stored, Stored, Stored), Judgement{Answer: Acknowledge}},
		{"the only one stored → acknowledged", serves(Stored), Judgement{Answer: Acknowledge}},
		{"one broken → expelled, the answer waits", serves(Stored, Broken, Stored), Judgement{Answer: WaitForEpoch, Expel: []int{1}}},
		{"one full while another stored → expelled, the answer waits", serves(NoSpace, Stored), Judgement{Answer: WaitForEpoch, Expel: []int{0}}},
		{"one refuses what another stored → expelled, the answer waits", serves(Stored, Unsupported), Judgement{Answer: WaitForEpoch, Expel: []int{1}}},
		{"a leaving one missed it → the answer waits", with(serves(Stored), Leaving, Missed), Judgement{Answer: WaitForEpoch}},
		{"a leaving one stored it before it failed → acknowledged", with(serves(Stored), Leaving, Stored), Judgement{Answer: Acknowledge}},
		{"one that has left missed it → acknowledged", with(serves(Stored), Left, Broken), Judgement{Answer: Acknowledge}},
		{"all full → no space, nobody is expelled", serves(NoSpace, NoSpace), Judgement{Answer: RefuseNoSpace, Unequal: true}},
		{"the only one full → no space, nothing is uneven", serves(NoSpace), Judgement{Answer: RefuseNoSpace}},
		{"all refuse the kind → refused", serves(Unsupported, Unsupported), Judgement{Answer: RefuseUnsupported}},
		{"full and refused → an error, nobody is expelled", serves(Unsupported, NoSpace), Judgement{Answer: RefuseBroken, Unequal: true}},
		{"full and broken → the broken one is expelled", serves(NoSpace, Broken), Judgement{Answer: RefuseBroken, Unequal: true, Expel: []int{1}}},
		{"all broken → the last stays", serves(Broken, Broken, Broken), Judgement{Answer: RefuseBroken, Unequal: true, Expel: []int{0, 1}}},
		{"the only one broken → an error, it stays", serves(Broken), Judgement{Answer: RefuseBroken}},
		{"stored only by one that is leaving → never acknowledged", with(serves(Broken), Leaving, Stored), Judgement{Answer: RefuseBroken}},
		{"stored only by one that is joining → never acknowledged", with(serves(NoSpace), Joining, Stored), Judgement{Answer: RefuseNoSpace, Expel: []int{1}}},
		{"a joining one failed → acknowledged, its rebuild ends", with(serves(Stored), Joining, Broken), Judgement{Answer: Acknowledge, Expel: []int{1}}},
		{"a joining one stored it too → acknowledged", with(serves(Stored), Joining, Stored), Judgement{Answer: Acknowledge}},
		{"all full, the joining one too → no space, its rebuild ends", with(serves(NoSpace), Joining, NoSpace), Judgement{Answer: RefuseNoSpace, Expel: []int{1}}},
		{"all full, the joining one refuses → no space, its rebuild ends", with(serves(NoSpace), Joining, Unsupported), Judgement{Answer: RefuseNoSpace, Expel: []int{1}}},
		{"all refuse the kind, the joining one too → refused, its rebuild goes on", with(serves(Unsupported), Joining, Unsupported), Judgement{Answer: RefuseUnsupported}},
		{"all refuse the kind, the joining one is full → refused, its rebuild ends", with(serves(Unsupported), Joining, NoSpace), Judgement{Answer: RefuseUnsupported, Expel: []int{1}}},
		{"all broken, the joining one too → an error, its rebuild ends", with(serves(Broken), Joining, Broken), Judgement{Answer: RefuseBroken, Expel: []int{1}}},
		{"nobody asked → an error, never acknowledged", nil, Judgement{Answer: RefuseBroken}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Judge(tc.parts)
			assert.Equal(t, tc.want.Answer, got.Answer)
			assert.Equal(t, tc.want.Unequal, got.Unequal)
			assert.Equal(t, tc.want.Expel, got.Expel)
		})
	}
}

// The test covers every combination of role and result for up to three replicas. A change is acknowledged at once
// only if every replica that an epoch may list has it, and one serves. The last serving replica is never expelled. A
// rebuild continues only if the joining replica has the whole change like the serving replicas, or nothing of it like
// them.
func TestJudgeOverAllCombinations(t *testing.T) {
	var try func(prefix []Part)
	try = func(prefix []Part) {
		j := Judge(prefix)
		serving, lacking, stored := 0, 0, 0
		for i, p := range prefix {
			listed := p.Role == Serving || p.Role == Leaving
			if listed && p.Result != Stored {
				lacking++
			}
			if p.Role == Serving && p.Result == Stored {
				stored++
			}
			if p.Role == Serving && !slices.Contains(j.Expel, i) {
				serving++
			}
			same := p.Result == Stored && (j.Answer == Acknowledge || j.Answer == WaitForEpoch) || p.Result == Unsupported && j.Answer == RefuseUnsupported
			if p.Role == Joining {
				assert.NotEqual(t, same, slices.Contains(j.Expel, i), "%v: the rebuild of %d: %+v", prefix, i, j)
			}
		}
		assert.Equal(t, lacking == 0 && stored > 0, j.Answer == Acknowledge, "%v: %+v", prefix, j)
		assert.Equal(t, lacking > 0 && stored > 0, j.Answer == WaitForEpoch)
		assert.False(t, serving == 0 && slices.ContainsFunc(prefix, func(p Part) bool { return p.Role == Serving }), "%v: the last is expelled", prefix)
		if len(prefix) == 3 {
			return
		}
		for s := Serving; s <= Left; s++ {
			for r := Missed; r <= Broken; r++ {
				try(append(slices.Clone(prefix), Part{s, r}))
			}
		}
	}
	try(nil)
}
