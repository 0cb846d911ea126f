package membership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
			assert.ErrorIs(t, err, tc.err)
			assert.True(t, got.Equal(tc.want))
		})
	}
}

func TestPlanJoin(t *testing.T) {
	current := NewEpoch(5, 3, []string{"a", "c"})
	got, want := PlanJoin(current, "b"), NewEpoch(5, 4, []string{"a", "b", "c"})
	assert.True(t, got.Equal(want), "got %s, want %s", got, want)
	got = PlanJoin(current, "c")
	assert.True(t, got.Equal(current), "a member joins: %s", got)
	assert.Len(t, current.Members, 2, "the old epoch was changed")
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
			assert.ErrorIs(t, CanRecord(tc.object, tc.session, tc.proposed), tc.want)
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
		looks    []float64 // when the engine checked; the first is before the answer
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
			assert.Equal(t, tc.want, waited)
			assert.Equal(t, tc.slow, rule.IsSlow(waited))
		})
	}
}

func TestTheTimesOfTheSlowRuleKeepTheirRelation(t *testing.T) {
	for _, tc := range []struct{ after, look, probe, most time.Duration }{
		{SlowAfter, time.Second, 2 * time.Second, 2 * time.Second},
		{80 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond},
	} {
		rule := SlowRule{After: tc.after}
		assert.Equal(t, tc.look, rule.CheckInterval(), tc.after)
		assert.Equal(t, tc.probe, rule.ProbeAfter(), tc.after)
		assert.Equal(t, tc.most, rule.maxCheck(), tc.after)
		assert.False(t, rule.IsSlow(tc.after-1), tc.after)
		assert.True(t, rule.IsSlow(tc.after), tc.after)
	}
}
