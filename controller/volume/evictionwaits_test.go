package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var cordonedNode = nodeCondition(types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned)

func TestADetachedVolumeSaysThatAnEvictionWaits(t *testing.T) {
	both := map[string]bool{"vol-r-1": true, "vol-r-2": true}
	const message = "eviction waits until the volume is attached: replica vol-r-2 on node b"
	waiting := []longhorn.Condition{{Type: types.ConditionEvictionWaits, Status: longhorn.ConditionTrue, Reason: "VolumeDetached", Message: message}}
	waits := func(p Plan) longhorn.Condition {
		return types.FindCondition(p.Status.Conditions, types.ConditionEvictionWaits)
	}
	events := func(p Plan) (messages []string) {
		for _, e := range p.Events {
			if e.Reason == types.ConditionEvictionWaits {
				messages = append(messages, e.Type+" "+e.Message)
			}
		}
		return messages
	}
	for _, tc := range []struct {
		name    string
		world   world
		evicted map[string]bool
		change  func(*Input)
		message string
		status  longhorn.ConditionStatus
		events  []string
	}{
		{name: "no replica is to leave → nothing is said", status: longhorn.ConditionUnknown},
		{
			name: "one is to leave → that is said", evicted: map[string]bool{"vol-r-2": true}, message: message, status: longhorn.ConditionTrue,
			events: []string{"Normal volume vol is detached: " + message},
		},
		{
			name: "it was said → no second Event", evicted: map[string]bool{"vol-r-2": true}, message: message, status: longhorn.ConditionTrue,
			change: func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "another one as well → that is said, too", evicted: both, status: longhorn.ConditionTrue,
			message: "eviction waits until the volume is attached: replica vol-r-1 on node a, replica vol-r-2 on node b",
			events:  []string{"Normal volume vol is detached: eviction waits until the volume is attached: replica vol-r-1 on node a, replica vol-r-2 on node b"},
			change:  func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "it is being deleted → it waits for nothing", evicted: map[string]bool{"vol-r-2": true}, status: longhorn.ConditionUnknown,
			change: func(in *Input) { in.Replicas[1].DeletionTimestamp = &metav1.Time{Time: now} },
		},
		{name: "the eviction is taken back → it ends", status: longhorn.ConditionFalse, change: func(in *Input) { in.Volume.Status.Conditions = waiting }},
		{
			name: "the volume is to be attached → it ends", world: world{want: "a"}, evicted: both, status: longhorn.ConditionFalse,
			change: func(in *Input) { in.Volume.Status.Conditions = waiting },
		},
		{
			name: "the volume is attached → nothing is said, for they move", evicted: both, status: longhorn.ConditionUnknown,
			world: world{want: "a", engineNode: "a", engineDesire: longhorn.DesireStateRunning, engineState: longhorn.InstanceStateRunning},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.world == (world{}) {
				tc.world.replicaDesire = longhorn.DesireStateStopped // it is detached
			}
			in := tc.world.input()
			in.Evicted = tc.evicted
			if tc.change != nil {
				tc.change(&in)
			}
			p := plan(in)
			assert.Equal(t, tc.status, waits(p).Status)
			assert.Equal(t, tc.message, waits(p).Message)
			assert.Equal(t, tc.events, events(p))
		})
	}
}

// TestADrainMovesCopies: the setting and the cordon reach the plan.
func TestADrainMovesCopies(t *testing.T) {
	foreign := func(_ *longhorn.Engine, r *longhorn.Replica) {
		r.OwnerReferences, r.Spec.VolumeName, r.Labels[types.LabelVolume] = nil, "other", "other"
	}
	for policy, want := range map[settings.DrainPolicy]int{settings.DrainBlockForEviction: 2, settings.DrainBlockIfLastReplica: 1, settings.DrainBlockForEvictionIfLastReplica: 1} {
		t.Run(string(policy), func(t *testing.T) {
			h, c := begin(t, append(cluster(2, foreign), build.Setting(settings.NodeDrainPolicy, string(policy)))...)
			h.Overwrite(build.ReadyNode("b", "disk-b", cordonedNode))
			h.CatchUp()
			syncOf(t, h, c, nil)
			h.CatchUp()
			replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, "c")
			require.NoError(t, err)
			assert.Len(t, replicas, want)
		})
	}
}
