package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestAnEpochThatBreaksTheRulesIsShownAndToldOnce(t *testing.T) {
	plane := &fakePlane{}
	h, c := begin(t, plane, running())
	stored, err := c.Engines.GetRO("vol-e-0")
	require.NoError(t, err)
	propose := func(counter int64) {
		plane.observed = Observed{
			Phase: types.PhaseRunning, Generation: stored.Status.Generation, Session: stored.Status.Session, Process: "p",
			Proposed: &longhorn.Epoch{Generation: stored.Status.Generation, Counter: counter, Members: stored.Status.Epoch.Members},
		}
	}
	refusal := func() longhorn.Condition {
		t.Helper()
		h.CatchUp()
		e, err := c.Engines.GetRO("vol-e-0")
		require.NoError(t, err)
		return types.FindCondition(e.Status.Conditions, "EpochRefused")
	}
	propose(stored.Status.Epoch.Counter + 7)
	syncOf(t, c, nil)
	told := h.Recorder.Take()
	assert.Equal(t, longhorn.ConditionTrue, refusal().Status)
	assert.Equal(t, "RulesOfMembership", refusal().Reason)
	if assert.NotEmpty(t, told) {
		assert.Contains(t, told[0], "Warning EpochRefused vol-e-0: epoch ")
	}
	plane.expect(t)

	syncOf(t, c, nil)
	h.ExpectEvents()

	propose(stored.Status.Epoch.Counter + 1)
	syncOf(t, c, nil)
	assert.Equal(t, longhorn.ConditionFalse, refusal().Status)
}
