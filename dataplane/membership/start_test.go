package membership

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlanStart(t *testing.T) {
	e := func(generation int64, members ...string) Epoch { return NewEpoch(generation, 1, members) }
	at := func(epoch Epoch) Shown { return Shown{Epoch: epoch} }
	for _, tc := range []struct {
		name     string
		recorded Epoch
		wanted   []string
		shown    map[string]Shown
		want     Epoch
		wantErr  error
	}{
		{
			name:   "first start with all replicas new → all are members, sorted",
			wanted: []string{"b", "a"},
			shown:  map[string]Shown{"a": {}, "b": {}},
			want:   e(7, "a", "b"),
		},
		{
			name:   "first start with one replica away → the other alone",
			wanted: []string{"a", "b"}, shown: map[string]Shown{"a": {}}, want: e(7, "a"),
		},
		{
			name:   "first start, a replica to which a copy was begun → it is left out",
			wanted: []string{"a", "b"}, shown: map[string]Shown{"a": {Rebuilding: true}, "b": {}}, want: e(7, "b"),
		},
		{
			name:   "first start with every replica away → refused",
			wanted: []string{"a", "b"}, shown: map[string]Shown{}, wantErr: ErrMemberMissing,
		},
		{
			name:   "first start but a replica shows an epoch → refused, it is not new",
			wanted: []string{"a", "b"}, shown: map[string]Shown{"a": {}, "b": at(e(1, "b"))}, wantErr: ErrNotEmpty,
		},
		{name: "no replica at all → refused", wantErr: ErrNoMembers},
		{
			name:     "later start, every member there → the same members under the new generation",
			recorded: e(4, "a", "b"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(4, "a", "b")), "b": at(e(4, "a", "b"))},
			want:  e(7, "a", "b"),
		},
		{
			name:     "a member that missed the record of its own epoch → still a member, the object is the truth",
			recorded: e(4, "a", "b"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(3, "a", "b")), "b": {}},
			want:  e(7, "a", "b"),
		},
		{
			name:     "a replica outside the epoch → left out",
			recorded: e(4, "a"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(4, "a")), "b": at(e(3, "a", "b"))},
			want:  e(7, "a"),
		},
		{
			name:     "a member away → the others, for each holds every acknowledged write",
			recorded: e(4, "a", "b", "c"), wanted: []string{"a", "b", "c"},
			shown: map[string]Shown{"a": at(e(4, "a", "b", "c")), "c": at(e(4, "a", "b", "c"))},
			want:  e(7, "a", "c"),
		},
		{
			name:     "only replicas outside the epoch are there → refused",
			recorded: e(4, "a"), wanted: []string{"a", "b"}, shown: map[string]Shown{"b": at(e(3, "a", "b"))}, wantErr: ErrMemberMissing,
		},
		{
			name:     "a replica that is being rebuilt shows the recorded epoch but is not in it → left out",
			recorded: e(4, "a"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(4, "a")), "b": {Epoch: e(4, "a"), Rebuilding: true}}, want: e(7, "a"),
		},
		{
			name:     "the record lists a replica that has not heard that its copy was complete → it is a member",
			recorded: e(4, "a", "b"), wanted: []string{"a", "b"}, shown: map[string]Shown{"b": {Epoch: e(3, "a"), Rebuilding: true}}, want: e(7, "b"),
		},
		{
			name:     "a member shows a newer epoch than the object → refused, the object was rolled back",
			recorded: e(4, "a", "b"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(5, "a", "b")), "b": at(e(4, "a", "b"))}, wantErr: ErrRolledBack,
		},
		{
			name:     "a replica outside the epoch shows a newer one → refused too",
			recorded: e(4, "a"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(4, "a")), "b": at(e(6, "b"))}, wantErr: ErrRolledBack,
		},
		{
			name:     "a replica shows the recorded number with other members → refused, the number was given twice",
			recorded: e(4, "a"), wanted: []string{"a", "b"},
			shown: map[string]Shown{"a": at(e(4, "a")), "b": at(e(4, "b"))}, wantErr: ErrRolledBack,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := PlanStart(tc.recorded, 7, tc.wanted, tc.shown)
			require.ErrorIs(t, err, tc.wantErr)
			assert.True(t, got.Equal(tc.want), "epoch %s, want %s", got, tc.want)
		})
	}
}

func TestEpochCompareOrdersByGenerationThenCounter(t *testing.T) {
	for _, tc := range []struct {
		a, b Epoch
		want int
	}{
		{Epoch{}, Epoch{}, 0},
		{Epoch{Generation: 1, Counter: 9}, Epoch{Generation: 2, Counter: 1}, -1},
		{Epoch{Generation: 2, Counter: 2}, Epoch{Generation: 2, Counter: 1}, 1},
	} {
		assert.Equal(t, tc.want, tc.a.Compare(tc.b), "%s %s", tc.a, tc.b)
	}
}
