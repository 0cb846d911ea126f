package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// faulted returns a volume whose engine cannot start, with replicas r-1 and r-2, which have all data.
func faulted(changes ...func(*longhorn.Engine, []*longhorn.Replica)) []runtime.Object {
	stopped := func(e *longhorn.Engine, _ []*longhorn.Replica) {
		e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateStopped, nil
	}
	return having(served(2, append([]func(*longhorn.Engine, []*longhorn.Replica){stopped}, changes...)...), func(v *longhorn.Volume) {
		v.Status.State, v.Status.Robustness = longhorn.VolumeStateDetached, longhorn.VolumeRobustnessFaulted
	})
}

func TestSalvage(t *testing.T) {
	r1 := []string{"r-1"}
	cannotOpen := func(_ *longhorn.Engine, r []*longhorn.Replica) {
		r[0].Status.CurrentState = longhorn.InstanceStateError
		r[0].Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaMissing, Message: "its directory is not there",
		}}
	}
	for name, c := range map[string]struct {
		objs    []runtime.Object
		names   []string
		problem string // the reason of the refusal; empty: they can serve the volume
	}{
		"one that holds all data → accepted":               {objs: faulted(), names: r1},
		"the second one can be opened → accepted":          {objs: faulted(cannotOpen), names: []string{"r-1", "r-2"}},
		"failed once, and can be opened → accepted":        {objs: faulted(func(_ *longhorn.Engine, r []*longhorn.Replica) { r[0].Spec.FailedAt = "2030-01-01T00:00:00Z" }), names: r1},
		"the volume serves → refused":                      {objs: served(2), names: r1, problem: `volume "vol" is not faulted: there is nothing to salvage`},
		"it cannot be opened → refused with what is wrong": {objs: faulted(cannotOpen), names: r1, problem: `volume "vol" cannot be salvaged: replica r-1 cannot be opened on node node-1: ReplicaMissing: its directory is not there`},
		"it lacks acknowledged writes → refused, never forced": {
			objs:  faulted(func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.Epoch.Members = []string{"r-2"} }),
			names: r1, problem: `volume "vol" cannot be salvaged: replica r-1 lacks acknowledged writes that replicas r-2 have`,
		},
		"never used → refused": {
			objs: faulted(func(e *longhorn.Engine, _ []*longhorn.Replica) { e.Status.Epoch = nil }), names: r1,
			problem: `volume "vol" cannot be salvaged: replica r-1 has no data: the volume was never used`,
		},
		"its node does not answer → refused": {
			objs: having(faulted(), node2(func(n *longhorn.Node) {
				n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
			})), names: []string{"r-2"}, problem: `volume "vol" cannot be salvaged: replica r-2 is on node node-2, which does not answer`,
		},
		"its disk is not there → refused": {
			objs: having(faulted(), node2(func(n *longhorn.Node) { n.Status.DiskStatus = nil })), names: []string{"r-2"},
			problem: `volume "vol" cannot be salvaged: replica r-2 is on disk uuid-2, which is not ready on node node-2`,
		},
		"it is being deleted, and the other one cannot be opened → both are told": {
			objs: faulted(cannotOpen, func(_ *longhorn.Engine, r []*longhorn.Replica) {
				r[1].DeletionTimestamp = &metav1.Time{Time: metav1.Now().Time}
			}), names: []string{"r-1", "r-2"},
			problem: `volume "vol" cannot be salvaged: replica r-1 cannot be opened on node node-1: ReplicaMissing: its directory is not there; replica r-2 is being deleted`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.objs...)
			view, err := b.SalvageVolume(t.Context(), "vol", c.names)
			b.ExpectWrites()
			if c.problem != "" {
				wantProblem(t, err, ErrConflict, c.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "vol", view.Volume.Name)
		})
	}
	for name, names := range map[string][]string{"": nil, "none": {"r-1", "none"}} {
		_, err := newBench(t, faulted()...).SalvageVolume(t.Context(), "vol", names)
		var invalid *Invalid
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, "names", invalid.Field)
		assert.Equal(t, name, invalid.Value)
	}
	_, err := newBench(t).SalvageVolume(t.Context(), "vol", r1)
	wantProblem(t, err, ErrNotFound, `volume "vol" does not exist`)
}
