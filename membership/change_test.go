package membership

import (
	"errors"
	"testing"
	"time"
)

func TestPlanExpel(t *testing.T) {
	current := NewEpoch(5, 3, []string{"a", "b", "c"})
	for _, tc := range []struct {
		name   string
		failed []string
		want   Epoch
		err    error
	}{
		{"nobody failed → the same epoch", nil, current, nil},
		{"somebody else failed → the same epoch", []string{"x"}, current, nil},
		{"one failed → the others, counter raised", []string{"b"}, NewEpoch(5, 4, []string{"a", "c"}), nil},
		{"two failed at once → one epoch", []string{"a", "c"}, NewEpoch(5, 4, []string{"b"}), nil},
		{"all failed → refused, one must stay", []string{"a", "b", "c"}, Epoch{}, ErrLastMember},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := PlanExpel(current, tc.failed)
			if !errors.Is(err, tc.err) || !got.Equal(tc.want) {
				t.Errorf("got %s, %v; want %s, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestPlanJoin(t *testing.T) {
	current := NewEpoch(5, 3, []string{"a", "c"})
	if got, want := PlanJoin(current, "b"), NewEpoch(5, 4, []string{"a", "b", "c"}); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := PlanJoin(current, "c"); !got.Equal(current) {
		t.Errorf("a member joins: %s", got)
	}
	if len(current.Members) != 2 {
		t.Errorf("the old epoch was changed: %s", current)
	}
}

func TestCanRecord(t *testing.T) {
	at := func(generation, counter int64, members ...string) Epoch {
		return NewEpoch(generation, counter, members)
	}
	object := Object{Generation: 5, Session: "s", Epoch: at(5, 3, "a", "b")}
	started := Object{Generation: 5, Session: "s", Epoch: at(4, 9, "a", "b")}
	for _, tc := range []struct {
		name     string
		object   Object
		session  string
		proposed Epoch
		want     error
	}{
		{"the first epoch of all → recorded", Object{Generation: 1, Session: "s"}, "s", at(1, 1, "a"), nil},
		{"the first of a generation → recorded", started, "s", at(5, 1, "b"), nil},
		{"the next → recorded", object, "s", at(5, 4, "a"), nil},
		{"one more member → recorded", object, "s", at(5, 4, "a", "b", "c"), nil},
		{"the same again → recorded", object, "s", at(5, 3, "a", "b"), nil},
		{"of an older generation → overtaken", object, "s", at(4, 4, "a"), ErrOvertaken},
		{"of a generation that the object was not raised to → overtaken", object, "s", at(6, 1, "a"), ErrOvertaken},
		{"of another session → overtaken", object, "t", at(5, 4, "a"), ErrOvertaken},
		{"an older counter → out of order", object, "s", at(5, 2, "a"), ErrOutOfOrder},
		{"the same counter with other members → out of order", object, "s", at(5, 3, "a"), ErrOutOfOrder},
		{"a counter was left out → out of order", object, "s", at(5, 5, "a"), ErrOutOfOrder},
		{"a generation that begins with a later counter → out of order", started, "s", at(5, 2, "a"), ErrOutOfOrder},
		{"a generation that begins anew → out of order", object, "s", at(5, 1, "a"), ErrOutOfOrder},
		{"nobody left → out of order", object, "s", at(5, 4), ErrOutOfOrder},
		{"nobody of those before → out of order", object, "s", at(5, 4, "c"), ErrOutOfOrder},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := CanRecord(tc.object, tc.session, tc.proposed); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestSlowRule(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	for _, tc := range []struct {
		name     string
		answered float64   // when another member answered
		looks    []float64 // when the engine looked; the first is before the answer
		want     time.Duration
		slow     bool
	}{
		{"looked just before the limit → not slow", 0.5, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8}, 7500 * time.Millisecond, false},
		{"a look later → slow", 0.5, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 8500 * time.Millisecond, true},
		{"the engine stood still for an hour → two seconds", 0.5, []float64{0, 3600}, 2 * time.Second, false},
		{"it stood still again and again → only what it saw counts", 0.5, []float64{0, 100, 200, 300}, 6 * time.Second, false},
		{"the clock went back → nothing", 0.5, []float64{0, -100}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rule, waited := SlowRule{After: SlowAfter}, time.Duration(0)
			for i := 1; i < len(tc.looks); i++ {
				waited = rule.Waited(waited, at(tc.answered), at(tc.looks[i-1]), at(tc.looks[i]))
			}
			if waited != tc.want || rule.IsSlow(waited) != tc.slow {
				t.Errorf("waited %s, slow %t; want %s, %t", waited, rule.IsSlow(waited), tc.want, tc.slow)
			}
		})
	}
}

func TestTheTimesOfTheSlowRuleKeepTheirRelation(t *testing.T) {
	for _, tc := range []struct{ after, look, probe, most time.Duration }{
		{SlowAfter, time.Second, 2 * time.Second, 2 * time.Second},
		{80 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond},
	} {
		rule := SlowRule{After: tc.after}
		if rule.LookEvery() != tc.look || rule.ProbeAfter() != tc.probe || rule.maxLook() != tc.most {
			t.Errorf("%s: looks every %s, probes after %s, a look counts for %s", tc.after, rule.LookEvery(), rule.ProbeAfter(), rule.maxLook())
		}
		if rule.IsSlow(tc.after-1) || !rule.IsSlow(tc.after) {
			t.Errorf("%s: is not where a member counts as slow", tc.after)
		}
	}
}
