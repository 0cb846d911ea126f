package unreachable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func nodeThat(status longhorn.ConditionStatus, reason string) *longhorn.Node {
	return build.Node("n", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
	})
}

var (
	ready       = nodeThat(longhorn.ConditionTrue, "")
	down        = nodeThat(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)
	gone        = nodeThat(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone)
	withoutPod  = nodeThat(longhorn.ConditionFalse, types.ReasonManagerPodMissing)
	now, before = "2026-01-02T03:04:05Z", "2026-01-02T03:00:00Z"
)

func TestWhichStateIsWritten(t *testing.T) {
	at, err := time.Parse(time.RFC3339, now)
	require.NoError(t, err)
	type state struct {
		state longhorn.InstanceState
		since string
	}
	for _, tc := range []struct {
		name string
		node *longhorn.Node
		was  state
		want state
	}{
		{"down, runs → unknown", down, state{"running", ""}, state{"unknown", now}},
		{"down, starts → unknown", down, state{"starting", ""}, state{"unknown", now}},
		{"down, stops → unknown", down, state{"stopping", ""}, state{"unknown", now}},
		{"down, unknown already → stays", down, state{"unknown", before}, state{"unknown", before}},
		{"down, and its daemon has said otherwise since → not said again", down, state{"running", before}, state{"running", before}},
		{"down, stopped → stays", down, state{"stopped", ""}, state{"stopped", ""}},
		{"down, failed → stays", down, state{"error", ""}, state{"error", ""}},
		{"down, never was anything → stays", down, state{"", ""}, state{"", ""}},
		{"back, its daemon has not said anything yet → stays unknown", ready, state{"unknown", before}, state{"unknown", before}},
		{"back, and its daemon says so → the time goes", ready, state{"running", before}, state{"running", ""}},
		{"back, and its daemon found it stopped → the time goes", ready, state{"stopped", before}, state{"stopped", ""}},
		{"never was down → stays", ready, state{"running", ""}, state{"running", ""}},
		{"the daemon alone is away, as in an update → stays", withoutPod, state{"running", ""}, state{"running", ""}},
		{"gone → left to package strandedreplica", gone, state{"running", ""}, state{"running", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build.PlacedReplica("r", "vol", "n", "disk", func(r *longhorn.Replica) {
				r.Status.CurrentState, r.Status.UnknownSince, r.Status.IP = tc.was.state, tc.was.since, "10.0.0.1"
			})
			m := build.RunningInstanceManager("n", "10.0.0.1", "process", func(m *longhorn.InstanceManager) {
				m.Status.CurrentState, m.Status.UnknownSince = longhorn.InstanceManagerState(tc.was.state), tc.was.since
			})
			p := plan(Input{Node: tc.node, Replicas: []*longhorn.Replica{r}, Manager: m, Now: at})
			if tc.was == tc.want {
				assert.Equal(t, Plan{}, p)
				return
			}
			require.Len(t, p.Replicas, 1)
			assert.Equal(t, tc.want, state{p.Replicas[0].Status.CurrentState, p.Replicas[0].Status.UnknownSince})
			assert.Equal(t, "10.0.0.1", p.Replicas[0].Status.IP)
			require.NotNil(t, p.Manager)
			assert.Equal(t, tc.want, state{longhorn.InstanceState(p.Manager.Status.CurrentState), p.Manager.Status.UnknownSince})
			assert.Equal(t, "process", p.Manager.Status.UUID)
			assert.Equal(t, tc.was.state, r.Status.CurrentState, "the input was modified")
		})
	}
	t.Run("the instance manager says why", func(t *testing.T) {
		p := plan(Input{Node: down, Manager: build.RunningInstanceManager("n", "10.0.0.1", "process"), Now: testutil.Now})
		c := types.FindCondition(p.Manager.Status.Conditions, types.ConditionPodReady)
		assert.Equal(t, []string{"Unknown", "NodeDown", "node n does not answer"}, []string{string(c.Status), c.Reason, c.Message})
	})
}
