package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestEngineExpands(t *testing.T) {
	const rw, wo = longhorn.ReplicaModeRW, longhorn.ReplicaModeWO
	both := addresses{"a": "1", "b": "2"}
	for _, tc := range []struct {
		name      string
		offers    int64
		cannot    bool // the process
		oldHolder bool
		noDevice  bool
		modes     modes
		proposed  *longhorn.Epoch
		failedAgo time.Duration

		want  Action
		after time.Duration
	}{
		{name: "offers what it shall → nothing, and no error is left", offers: 8, modes: modes{"a": rw, "b": rw}, failedAgo: time.Second},
		{name: "offers less → asked", offers: 4, modes: modes{"a": rw, "b": rw}, want: ActionExpand},
		{name: "a process of an earlier release → never asked", offers: 4, cannot: true, modes: modes{"a": rw, "b": rw}},
		{name: "a holder of an earlier release → never asked", offers: 4, oldHolder: true, modes: modes{"a": rw, "b": rw}},
		{name: "a holder of an earlier release, and no device → asked", offers: 4, oldHolder: true, noDevice: true, modes: modes{"a": rw, "b": rw}, want: ActionExpand},
		{name: "a rebuild is under way → waits for its end", offers: 4, modes: modes{"a": rw, "b": wo}},
		{name: "a rebuild shall begin → the expansion comes first", offers: 4, modes: modes{"a": rw}, want: ActionExpand},
		{name: "it failed just now → waits, and a rebuild may begin", offers: 4, modes: modes{"a": rw}, failedAgo: 5 * time.Second, want: ActionAdd, after: 10 * time.Second},
		{name: "it failed long ago → asked again", offers: 4, modes: modes{"a": rw, "b": rw}, failedAgo: time.Minute, want: ActionExpand},
		{name: "an epoch is proposed → recorded first", offers: 4, modes: modes{"a": rw}, proposed: &longhorn.Epoch{Generation: 4, Counter: 2, Members: []string{"r"}}, want: ActionRecord},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateRunning, "s", "p", false})
			e.Spec.VolumeSize, e.Spec.ReplicaAddressMap = 8, both
			e.Status.CurrentReplicaAddressMap = addresses{"a": "1"}
			if tc.modes["b"] != "" {
				e.Status.CurrentReplicaAddressMap = both
			}
			if tc.failedAgo > 0 {
				e.Status.LastExpansionError, e.Status.LastExpansionFailedAt = "x", types.Timestamp(now.Add(-tc.failedAgo))
			}
			o := Observed{Phase: types.PhaseRunning, Generation: 4, Session: "s", Endpoint: "/dev/longhorn/vol", Modes: tc.modes, Proposed: tc.proposed, SizeBytes: tc.offers, Grows: !tc.cannot, DevicesGrow: !tc.oldHolder}
			if tc.noDevice {
				o.Endpoint = ""
			}
			p := plan(Input{Engine: e, Observed: o, Owner: "n", Now: now})
			assert.Equal(t, tc.want, p.Action)
			assert.Equal(t, tc.after, p.After)
			assert.Equal(t, tc.offers < 8, p.Status.IsExpanding)
			if tc.offers == 8 {
				assert.Empty(t, p.Status.LastExpansionError)
			}
		})
	}
}

// The controller records the data plane's answer, and retries after a while.
func TestFailedExpansionIsShown(t *testing.T) {
	plane := &fakePlane{}
	_, c := begin(t, plane, wantedEngine(func(e *longhorn.Engine) {
		e.Spec.VolumeSize = 8
		e.Status.CurrentState, e.Status.Session, e.Status.Generation = longhorn.InstanceStateRunning, "s", 1
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"vol-r-1"}}
		e.Status.CurrentReplicaAddressMap = e.Spec.ReplicaAddressMap
	}))
	plane.observed = Observed{Phase: types.PhaseRunning, Generation: 1, Session: "s", Process: "p", SizeBytes: 4, Grows: true, Modes: modes{"vol-r-1": longhorn.ReplicaModeRW}}
	plane.err = errors.New("vol-r-1 has 4 bytes")
	syncOf(t, c, nil)
	plane.expect(t, "expand s 8")
	e, err := c.Engines.Live(t.Context(), "vol-e-0")
	require.NoError(t, err)
	assert.True(t, e.Status.IsExpanding)
	assert.Contains(t, e.Status.LastExpansionError, "vol-r-1 has 4 bytes")
	assert.NotEmpty(t, e.Status.LastExpansionFailedAt)
}
