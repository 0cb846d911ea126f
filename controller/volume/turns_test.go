package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhatABegunRebuildIsWorthUntilTheCacheShowsIt(t *testing.T) {
	const stale, fresh = true, false
	mine := Claim{Volume: "v", Since: "s", Wants: []string{"b"}}
	begun := Claim{Volume: "v", Since: "s", Runs: "b"}
	for _, tc := range []struct {
		name   string
		before func(*turns)
		engine *longhorn.Engine
		stale  bool
		want   Claim
	}{
		{"nothing was begun → the cache is right", func(*turns) {}, &longhorn.Engine{}, stale, mine},
		{"begun, and not written yet → it runs", func(s *turns) { s.take("v", "b") }, &longhorn.Engine{}, fresh, begun},
		{"written, and the cache is late → it runs", func(s *turns) { s.take("v", "b"); s.wrote("v") }, &longhorn.Engine{}, stale, begun},
		{"written, and the cache has it → the cache is right", func(s *turns) { s.take("v", "b"); s.wrote("v") }, &longhorn.Engine{}, fresh, mine},
		{"written, and the next has begun → it runs", func(s *turns) { s.take("v", "a"); s.wrote("v"); s.take("v", "b") }, &longhorn.Engine{}, fresh, begun},
		{"the engine is gone → the cache is right", func(s *turns) { s.take("v", "b") }, nil, fresh, mine},
		{"another volume has begun → the cache is right", func(s *turns) { s.take("other", "b") }, &longhorn.Engine{}, stale, mine},
		{"the volume was gone meanwhile → the cache is right", func(s *turns) { s.take("v", "b"); s.forget("v") }, &longhorn.Engine{}, stale, mine},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s turns
			tc.before(&s)
			assert.Equal(t, tc.want, s.correct(mine, tc.engine, func(*longhorn.Engine) bool { return tc.stale }))
		})
	}
}

// The volume that was degraded first may only later be able to start its rebuild. A rebuild that another volume
// started in this time counts, although the cache does not show it.
func TestATurnThatWasJustTakenCounts(t *testing.T) {
	const late = "v000" // by i*7%6 the order is the order of the numbers
	objs := returned(6)
	for _, o := range objs {
		if r, ok := o.(*longhorn.Replica); ok && r.Spec.FailedAt != "" && r.Spec.VolumeName == late {
			r.Spec.FailedAt = types.Timestamp(testutil.Now)
		}
	}
	h, c := begin(t, objs...)
	sync := func(names ...string) {
		for _, name := range names {
			_, err := c.sync(t.Context(), name)
			require.NoError(t, err)
		}
	}
	others := []string{"v001", "v002", "v003", "v004", "v005"}
	sync(others...)
	require.Equal(t, others, asking(t, c))
	h.Clock.Step(types.RebuildSettle + time.Second)
	sync(late) // the cache does not show the writes of the others
	assert.Equal(t, others, asking(t, c))
	h.CatchUp()
	sync(late)
	assert.Equal(t, others, asking(t, c))
}

// The cache catches up between the read of an engine and the check of its turn: the claim of the old engine is wrong.
func TestAnEngineThatTheCacheHasPassedIsOutdated(t *testing.T) {
	h, c := begin(t, returned(1)...)
	read := func() *longhorn.Engine {
		e, err := c.deps.Engines.GetRO(types.EngineName("v000"))
		require.NoError(t, err)
		return e
	}
	first := read()
	assert.False(t, c.isOutdated(first))
	e := first.DeepCopy()
	e.Spec.DisableFrontend = !e.Spec.DisableFrontend
	_, err := c.deps.Engines.Update(t.Context(), e)
	require.NoError(t, err)
	assert.True(t, c.isOutdated(first), "the cache does not show the write")
	h.CatchUp()
	second := read()
	assert.False(t, c.isOutdated(second))
	h.Overwrite(second.DeepCopy()) // no write is remembered for it, as after a write that the cache has shown
	h.CatchUp()
	assert.True(t, c.isOutdated(second), "the cache shows a later version")
	assert.False(t, c.isOutdated(read()))
}
