package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// notReady is node d, which has not been ready for a while.
func notReady(reason, since string) *longhorn.Node {
	return build.ReadyNode("d", "disk-d", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason, LastTransitionTime: since}}
	})
}

// The daemon of a node starts the engines there.
func TestAPodIsKeptOffNodesWithoutADaemon(t *testing.T) {
	long, short := "2030-01-01T00:00:00Z", func(c time.Time) string { return types.Timestamp(c.Add(-daemonGrace)) }
	for name, c := range map[string]struct {
		reason string
		long   bool
		barred bool
	}{
		"the daemon is missing since a day":           {types.ReasonManagerPodMissing, true, true},
		"the daemon is down since a day":              {types.ReasonManagerPodDown, true, true},
		"the reason is one of a later release":        {"OfALaterRelease", true, true},
		"the daemon is down since a minute, upgraded": {types.ReasonManagerPodDown, false, false},
		"the node lacks memory":                       {types.ReasonKubernetesNodePressure, true, false},
		"the node does not answer since a minute":     {types.ReasonNodeNotAnswering, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, controller := start(t, build.KubeNode("d"), build.ReadyNode("d", "disk-d"))
			since := long
			if !c.long {
				since = short(h.Clock.Now())
			}
			h.Overwrite(notReady(c.reason, since))
			h.CatchUp()
			syncs(t, h, controller, nil)
			h.CatchUp()
			pod, err := controller.Pods.GetRO("share-manager-vol")
			require.NoError(t, err)
			if c.barred {
				assert.Contains(t, barredBy(pod), "d")
			} else {
				assert.NotContains(t, barredBy(pod), "d")
			}
		})
	}
}

// All nodes lose their daemons, and then one daemon comes back. The pod that no node can have is replaced.
func TestAPodThatNoNodeMayHaveGoesWhereADaemonIsBack(t *testing.T) {
	h, c := start(t, build.KubeNode("d"), build.ReadyNode("d", "disk-d"))
	lost := notReady(types.ReasonManagerPodMissing, "2030-01-01T00:00:00Z")
	other := lost.DeepCopy()
	other.Name = "a"
	back := build.ReadyNode("d", "disk-d")
	h.Overwrite(lost, other)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c", "d"}, barredBy(pod))
	syncs(t, h, c, nil)
	h.CatchUp()
	h.Writes()
	assert.Equal(t, []string{"vol"}, c.whenNode(lost, back), "its pod has no node")
	assert.Empty(t, c.whenNode(back, lost), "its pod has no node")
	h.Overwrite(back)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites("delete pods/share-manager-vol")
}

func TestAPodLeavesANodeWhoseDaemonDoesNotWork(t *testing.T) {
	away := func(ago time.Duration, elsewhere bool) func(*Input) {
		return func(in *Input) { in.DaemonAway, in.Elsewhere = now.Add(-ago), elsewhere }
	}
	scheduled := func(ago time.Duration) *situation {
		return used().pod(corev1.PodRunning, runs, since("True", ago, "")).was("starting")
	}
	for name, c := range map[string]struct {
		in    *situation
		given bool
		after time.Duration
	}{
		"without a daemon for a day, the pod is there for half a minute → given up": {scheduled(30 * time.Second).with(away(24*time.Hour, true)), true, 30 * time.Second},
		"the pod is there for less → waits":                                         {scheduled(20 * time.Second).with(away(24*time.Hour, true)), false, 10 * time.Second},
		"the daemon went just now → waits":                                          {scheduled(2 * time.Minute).with(away(5*time.Second, true)), false, 25 * time.Second},
		"no other node can have the pod → waits as long as ever":                    {scheduled(40 * time.Second).with(away(24*time.Hour, false)), false, 20 * time.Second},
		"the volume is attached there → its file system is checked":                 {scheduled(40 * time.Second).with(away(24*time.Hour, true)).with(attachedTo("a")), false, 20 * time.Second},
		"the daemon works → waits as long as ever":                                  {scheduled(40 * time.Second), false, 20 * time.Second},
		"it serves → stays, the data plane goes on":                                 {used().pod(corev1.PodRunning, is("True", time.Hour)).was("running").with(away(24*time.Hour, true)), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(c.in.Input)
			assert.Equal(t, c.given, p.DeletePod != nil)
			assert.Equal(t, c.after, p.After)
			if c.given {
				assert.Equal(t, []string{"a"}, p.Status.FailedNodes, "the next one goes elsewhere")
				assert.Contains(t, types.FindCondition(p.Status.Conditions, types.ConditionReady).Message, "node a has no working longhorn-manager daemon")
			}
		})
	}
}

func TestWhetherAnotherNodeCanHaveThePod(t *testing.T) {
	for name, c := range map[string]struct {
		d         *longhorn.Node
		elsewhere bool
	}{
		"another node is ready":            {build.ReadyNode("d", "disk-d"), true},
		"the other one has no daemon":      {notReady(types.ReasonManagerPodMissing, "2030-01-01T00:00:00Z"), false},
		"the other one lacks memory alone": {notReady(types.ReasonKubernetesNodePressure, "2030-01-01T00:00:00Z"), true},
	} {
		t.Run(name, func(t *testing.T) {
			h, controller := start(t, build.KubeNode("d"), c.d)
			syncs(t, h, controller, nil)
			h.CatchUp()
			change(t, h, controller, func(p *corev1.Pod) { p.Spec.NodeName = "a" })
			share, err := controller.Shares.Get("vol")
			require.NoError(t, err)
			in, err := controller.gather(t.Context(), share)
			require.NoError(t, err)
			assert.Equal(t, c.elsewhere, in.Elsewhere)
			assert.Zero(t, in.DaemonAway)
		})
	}
}
