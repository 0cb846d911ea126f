package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// withoutPod is a node n that lacks its daemon's pod. If since is positive, Removable has been False for that time.
func withoutPod(since time.Duration) *longhorn.Node {
	return build.Node("n", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonManagerPodMissing,
			LastTransitionTime: types.Timestamp(testutil.Now.Add(-24 * time.Hour)), // it was not ready for another reason before
		}}
		if since > 0 {
			n.Status.Conditions = append(n.Status.Conditions, longhorn.Condition{
				Type: types.ConditionRemovable, Status: longhorn.ConditionFalse, Reason: types.ReasonManagerPodMissing,
				LastTransitionTime: types.Timestamp(testutil.Now.Add(-since)),
			})
		}
	})
}

func copyOn(node string, changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.PlacedReplica("v-"+node, "v", node, "uuid-"+node, append([]func(*longhorn.Replica){func(r *longhorn.Replica) { r.Spec.HealthyAt = "2030-01-01T00:00:00Z" }}, changes...)...)
}

func stoppedEngine(members ...string) *longhorn.Engine {
	return build.Engine("v", func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = "", longhorn.DesireStateStopped, longhorn.InstanceStateStopped
		if len(members) > 0 {
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: members}
		}
	})
}

func TestRemovable(t *testing.T) {
	failed := func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }
	marked := func(r *longhorn.Replica) { r.Annotations = map[string]string{types.AnnotationLastGoodCopy: "true"} }
	const long = 10 * time.Minute
	for name, tc := range map[string]struct {
		in     removalInput
		want   longhorn.ConditionStatus
		reason string
	}{
		"its daemon is there → no condition":                        {removalInput{Node: build.ReadyNode("n", "u")}, longhorn.ConditionUnknown, ""},
		"its pod is missing since now → not yet":                    {removalInput{Node: withoutPod(0)}, longhorn.ConditionFalse, types.ReasonManagerPodMissing},
		"its pod is missing for a minute → not yet":                 {removalInput{Node: withoutPod(time.Minute)}, longhorn.ConditionFalse, types.ReasonManagerPodMissing},
		"missing for long, nothing is there → may be deleted":       {removalInput{Node: withoutPod(long)}, longhorn.ConditionTrue, types.ReasonManagerPodMissing},
		"an engine runs there → kept":                               {removalInput{Node: withoutPod(long), Engines: []*longhorn.Engine{build.Engine("v", func(e *longhorn.Engine) { e.Spec.NodeID, e.Status.CurrentState = "n", longhorn.InstanceStateRunning })}}, longhorn.ConditionFalse, types.ReasonNodeInUse},
		"an engine is to run there → kept":                          {removalInput{Node: withoutPod(long), Engines: []*longhorn.Engine{build.Engine("v", func(e *longhorn.Engine) { e.Spec.NodeID, e.Spec.DesireState = "n", longhorn.DesireStateRunning })}}, longhorn.ConditionFalse, types.ReasonNodeInUse},
		"a share is there → kept":                                   {removalInput{Node: withoutPod(long), Shares: []*corev1.Pod{build.Pod("share-manager-v", "n")}}, longhorn.ConditionFalse, types.ReasonNodeInUse},
		"the only copy → kept":                                      {withCopies(long, stoppedEngine("v-n"), copyOn("n")), longhorn.ConditionFalse, types.ReasonLastReplica},
		"the only recorded copy, another is not recorded → kept":    {withCopies(long, stoppedEngine("v-n"), copyOn("n"), copyOn("a")), longhorn.ConditionFalse, types.ReasonLastReplica},
		"another recorded copy has failed → kept":                   {withCopies(long, stoppedEngine("v-n", "v-a"), copyOn("n"), copyOn("a", failed)), longhorn.ConditionFalse, types.ReasonLastReplica},
		"another recorded copy is on a node that is down → kept":    {withCopies(long, stoppedEngine("v-n", "v-gone"), copyOn("n"), copyOn("gone")), longhorn.ConditionFalse, types.ReasonLastReplica},
		"it is marked as the last healthy replica → kept":           {withCopies(long, stoppedEngine("v-n", "v-a"), copyOn("n", marked), copyOn("a")), longhorn.ConditionFalse, types.ReasonLastReplica},
		"no engine, and it was good → kept":                         {withCopies(long, nil, copyOn("n")), longhorn.ConditionFalse, types.ReasonLastReplica},
		"another healthy replica can be reached → may be deleted":   {withCopies(long, stoppedEngine("v-n", "v-a"), copyOn("n"), copyOn("a")), longhorn.ConditionTrue, types.ReasonManagerPodMissing},
		"its copy is not recorded, another one is → may be deleted": {withCopies(long, stoppedEngine("v-a"), copyOn("n"), copyOn("a")), longhorn.ConditionTrue, types.ReasonManagerPodMissing},
		"nothing was ever written to its copy → may be deleted":     {withCopies(long, stoppedEngine(), copyOn("n", func(r *longhorn.Replica) { r.Spec.HealthyAt = "" })), longhorn.ConditionTrue, types.ReasonManagerPodMissing},
	} {
		t.Run(name, func(t *testing.T) {
			conditions, again := removable(tc.in, testutil.Now)
			c := types.FindCondition(conditions, types.ConditionRemovable)
			assert.Equal(t, tc.want, c.Status, c.Message)
			assert.Equal(t, tc.reason, c.Reason)
			assert.Equal(t, tc.want != longhorn.ConditionUnknown, again > 0, "nothing tells of a change")
		})
	}
}

func withCopies(since time.Duration, e *longhorn.Engine, copies ...*longhorn.Replica) removalInput {
	in := removalInput{Node: withoutPod(since), Replicas: copies, Nodes: map[string]*longhorn.Node{"a": build.ReadyNode("a", "uuid-a"), "n": withoutPod(since)}}
	if e != nil {
		in.Engines = []*longhorn.Engine{e}
	}
	return in
}

// If a daemon restarts in between, the time starts again.
func TestANodeIsRemovableOnlyAfterItsDaemonWasMissingAllTheTime(t *testing.T) {
	kubeNode, daemon := build.KubeNode("n"), build.Pod("longhorn-manager-1", "n", func(p *corev1.Pod) { p.Labels[types.LabelApp] = types.AppManager })
	h := testutil.New(t, kubeNode, build.ReadyNode("n", "u"))
	d := h.Datastore(datastore.Options{})
	m, err := NewMonitor(MonitorDeps{Liveness: &foundSilent{}, Nodes: d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(), Engines: d.Engines, Replicas: d.Replicas})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	look := func(after time.Duration) *longhorn.Node {
		t.Helper()
		h.Clock.Step(after)
		_, err := m.sync(t.Context(), "n")
		require.NoError(t, err)
		h.CatchUp()
		n, err := d.Nodes.Get("n")
		require.NoError(t, err)
		return n
	}
	assert.False(t, types.IsNodeRemovable(look(0)), "the pod is missing")
	assert.False(t, types.IsNodeRemovable(look(4*time.Minute)))
	h.Seed(daemon)
	h.CatchUp()
	assert.Equal(t, longhorn.ConditionUnknown, types.FindCondition(look(time.Second).Status.Conditions, types.ConditionRemovable).Status, "it is back")
	require.NoError(t, d.Pods.Delete(t.Context(), daemon.Name, datastore.Preconditions{}))
	h.CatchUp()
	assert.False(t, types.IsNodeRemovable(look(time.Second)), "it is missing again")
	assert.False(t, types.IsNodeRemovable(look(4*time.Minute)))
	n := look(2 * time.Minute)
	assert.True(t, types.IsNodeRemovable(n))
	for _, status := range n.Status.DiskStatus {
		assert.False(t, types.IsConditionTrue(status.Conditions, types.ConditionReady), "the policy keeps a node with a ready disk")
	}
}
