package replica

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestFenceIsWrittenDownOnlyWhenTheReplicaHoldsIt(t *testing.T) {
	stale := Observed{Phase: types.PhaseRunning, Generation: 6, Process: "p"}
	held := func(t *testing.T, c *Controller) int64 {
		t.Helper()
		r, err := c.Replicas.Live(t.Context(), "r")
		require.NoError(t, err)
		return r.Status.Generation
	}
	t.Run("the data plane confirms → written down", func(t *testing.T) {
		plane := &fakePlane{observed: stale}
		h, c := start(t, plane, placed(created, fence(7)))
		syncOnce(t, c, nil)
		plane.expect(t, "stop r behind 7")
		assert.Equal(t, int64(7), held(t, c))
		// The data plane's state may be late; the recorded fence stays.
		h.CatchUp()
		syncOnce(t, c, nil)
		assert.Equal(t, int64(7), held(t, c))
		plane.calls, plane.observed = nil, Observed{Phase: types.PhaseAbsent}
		h.CatchUp()
		syncOnce(t, c, nil)
		h.CatchUp()
		h.Writes()
		syncOnce(t, c, nil)
		h.ExpectWrites() // at rest, it writes nothing
		plane.expect(t)
	})
	t.Run("it cannot be opened and is deleted → closed without", func(t *testing.T) {
		plane := &fakePlane{observed: Observed{Phase: types.PhaseError, Reason: "MetadataTorn"}}
		_, c := start(t, plane, placed(created, gone, fence(7)))
		syncOnce(t, c, nil)
		plane.expect(t, "stop r")
	})
	t.Run("it holds the fence already → closed without", func(t *testing.T) {
		plane := &fakePlane{observed: Observed{Phase: types.PhaseRunning, Generation: 8, Process: "p"}}
		_, c := start(t, plane, placed(created, fence(7)))
		syncOnce(t, c, nil)
		plane.expect(t, "stop r")
	})
	t.Run("the data plane fails → not written down", func(t *testing.T) {
		plane := &fakePlane{observed: stale, err: errors.New("busy")}
		_, c := start(t, plane, placed(created, fence(7)))
		_, err := c.sync(t.Context(), "r")
		assert.Error(t, err, "the failure was swallowed")
		assert.Equal(t, int64(6), held(t, c))
	})
}

func TestReplicaThatIsNotThisNodes(t *testing.T) {
	open := Observed{Phase: types.PhaseRunning}
	elsewhere := func(r *longhorn.Replica) { r.Spec.NodeID = "another" }
	for _, tc := range []struct {
		name     string
		replica  *longhorn.Replica // nil: there is none
		late     bool              // the cache does not show it
		observed Observed
		fail     error
		want     []string
		wantErr  bool
	}{
		{name: "there is no such replica → closed, its data stays", observed: open, want: []string{"stop r"}},
		{name: "it is another node's → closed", replica: placed(elsewhere), observed: open, want: []string{"stop r"}},
		{name: "it moved to another node with its disk, and failed here → what is left of it is closed", replica: placed(elsewhere, wanted), observed: Observed{Phase: types.PhaseError, Reason: "DiskUnmounted"}, want: []string{"stop r"}},
		{name: "the server does not answer → left open", observed: open, fail: errors.New("away"), wantErr: true},
		{name: "it is this node's, the cache is late → left open", replica: placed(wanted), late: true, observed: open, wantErr: true},
		{name: "the instance manager is silent → nothing", observed: Observed{Phase: types.PhaseUnknown}},
		{name: "it is not hosted → nothing", observed: Observed{Phase: types.PhaseAbsent}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plane := &fakePlane{observed: tc.observed, hosted: []string{"r"}}
			h, c := start(t, plane)
			if tc.replica != nil {
				h.Seed(tc.replica)
			}
			if !tc.late {
				h.CatchUp()
			}
			if tc.fail != nil {
				h.Fail("get", "replicas", tc.fail)
			}
			_, err := c.sync(t.Context(), "r")
			assert.Equal(t, tc.wantErr, err != nil, err)
			plane.expect(t, tc.want...)
			h.ExpectWrites()
		})
	}
}
