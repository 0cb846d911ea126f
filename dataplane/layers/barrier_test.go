package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMayIntend(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    Volume
		want error
	}{
		{"nothing in the way, a rebuild may run", Volume{Files: 10, Limit: MostFiles}, nil},
		{"an expansion → busy", Volume{Expanding: true, Limit: MostFiles}, ErrBusy},
		{"another snapshot → busy", Volume{Operation: true, Limit: MostFiles}, ErrBusy},
		{"the last part of a rebuild → busy", Volume{RebuildEnds: true, Limit: MostFiles}, ErrBusy},
		{"a disk below its reserve → no room", Volume{NoRoom: true, Limit: MostFiles}, ErrNoRoom},
		{"as many files as the setting allows → refused", Volume{Files: 5, Limit: 5}, ErrManyFiles},
		{"a setting above the limit does not raise it", Volume{Files: MostFiles, Limit: 1000}, ErrManyFiles},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.ErrorIs(t, MayIntend(tc.v), tc.want) })
	}
}

func TestMaySwitch(t *testing.T) {
	for _, tc := range []struct {
		name string
		g    Gate
		now  bool
		err  error
	}{
		{"all prepared, nothing under way → now", Gate{Prepared: true}, true, nil},
		{"nothing under way, though late → now", Gate{Prepared: true, Late: true}, true, nil},
		{"changes under way → waits", Gate{Prepared: true, UnderWay: 2}, false, nil},
		{"changes under way at the deadline → ends", Gate{Prepared: true, UnderWay: 2, Late: true}, false, ErrLate},
		{"a member did not prepare → ends", Gate{}, false, ErrNotPrepared},
		{"a member has failed → ends", Gate{Prepared: true, Leaving: true}, false, ErrBusy},
		{"an uneven region → ends", Gate{Prepared: true, Uneven: true}, false, ErrUneven},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, err := MaySwitch(tc.g)
			assert.Equal(t, tc.now, now)
			assert.ErrorIs(t, err, tc.err)
		})
	}
}

func TestNothingWaitsWhileTheGateIsShut(t *testing.T) {
	shut := false
	for _, s := range BarrierSteps() {
		switch {
		case s == ShutGate:
			shut = true
		case s == OpenGate:
			shut = false
		}
		assert.False(t, shut && s.Waits(), "step %d", s)
	}
	assert.False(t, shut)
}
