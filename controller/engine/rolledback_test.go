package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Only a person can know that the cluster's state was rolled back: the message says what to do in that case.
func TestAnObjectOlderThanTheDataNamesTheWayOut(t *testing.T) {
	const command = `kubectl -n longhorn-system patch engines.longhorn.io vol-e-0 --subresource=status --type=merge -p '{"status":{"epoch":{"generation":7,"counter":2,"members":["r-1","r-2"]}}}'`
	shown := &longhorn.Epoch{Generation: 7, Counter: 2, Members: []string{"r-1", "r-2"}}
	for _, tc := range []struct {
		name  string
		shown *longhorn.Epoch
		want  bool
	}{
		{"a replica showed a newer epoch → the command that takes it over", shown, true},
		{"it failed for another reason → no command", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := engine(state{longhorn.DesireStateRunning, longhorn.InstanceStateStarting, "s", "p", false})
			e.Name, e.Namespace = "vol-e-0", types.Namespace
			p := plan(Input{Engine: e, Observed: Observed{Phase: types.PhaseError, Generation: 4, Session: "s", Reason: "RolledBack", Message: "older", Shown: tc.shown}})
			got := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation).Message
			assert.True(t, strings.HasPrefix(got, "older"), "message %q", got)
			assert.Equal(t, tc.want, strings.Contains(got, command))
			assert.Equal(t, e.Status.Epoch.Generation, p.Status.Epoch.Generation, "the epoch was taken over without being asked for")
		})
	}
}
