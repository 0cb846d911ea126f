package handover

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhenALeaderLeavesItsNode(t *testing.T) {
	free, serving := candidate{name: "b", ready: true}, candidate{name: "c", ready: true, serves: true}
	own := candidate{name: "a", ready: true, serves: true}
	for name, c := range map[string]struct {
		nodes []candidate
		want  bool
	}{
		"it serves, another does not → leaves":          {[]candidate{own, free}, true},
		"it serves, half of the others do not → leaves": {[]candidate{own, free, serving}, true},
		"it serves, most of the others do too → stays":  {[]candidate{own, free, serving, serving}, false},
		"it serves none → stays":                        {[]candidate{{name: "a", ready: true}, free, serving}, false},
		"it is alone → stays":                           {[]candidate{own}, false},
		"the others are not ready → stays":              {[]candidate{own, {name: "b"}}, false},
		"its own node is not known → stays":             {[]candidate{free, serving}, false},
		"a node is being called down → stays":           {[]candidate{own, free, {name: "d", silent: true}}, false},
		"it is not ready itself, and serves → leaves":   {[]candidate{{name: "a", serves: true}, free}, true},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, shouldLeave("a", c.nodes)) })
	}
}

func share(node string, phase corev1.PodPhase) *corev1.Pod {
	return build.Pod(types.ShareManagerPodName("vol"), node, func(p *corev1.Pod) {
		p.Labels, p.Status.Phase = types.ShareManagerSelector("vol"), phase
	})
}

func TestALeaderLeavesAfterAMinuteAtTheEarliest(t *testing.T) {
	h := testutil.New(t, build.ReadyNode("a", "1"), build.ReadyNode("b", "2"))
	d := h.Datastore(datastore.Options{})
	over := make(chan error, 1)
	go func() {
		over <- New(Deps{Env: h.Env(), Node: "a", Nodes: d.Nodes, Pods: d.Pods, Setting: d.Setting}).Run(t.Context())
	}()
	waits := func() { require.Eventually(t, h.Clock.HasWaiters, time.Minute, time.Millisecond) }
	waits()
	h.Clock.Step(shortestTerm)
	waits() // it serves no share
	h.Seed(share("a", corev1.PodRunning))
	h.CatchUp()
	h.Clock.Step(lookEvery - 1)
	assert.Empty(t, over)
	h.Clock.Step(1)
	require.ErrorIs(t, <-over, ErrHandOver)
	h.ExpectWrites()
}

func TestWhatKeepsALeader(t *testing.T) {
	for name, change := range map[string]func(h *testutil.Harness){
		"nothing":            func(*testutil.Harness) {},
		"the share ended":    func(h *testutil.Harness) { h.Overwrite(share("a", corev1.PodFailed)) },
		"the setting is off": func(h *testutil.Harness) { h.Seed(build.Setting(settings.RWXVolumeFastFailover, "false")) },
		"a node is silent": func(h *testutil.Harness) {
			h.Overwrite(build.ReadyNode("c", "3", func(n *longhorn.Node) { n.Status.Silence = &longhorn.NodeSilence{FoundAt: "2030-01-02T03:04:08Z"} }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := testutil.New(t, build.ReadyNode("a", "1"), build.ReadyNode("b", "2"), build.ReadyNode("c", "3"), share("a", corev1.PodRunning))
			change(h)
			d := h.Datastore(datastore.Options{})
			assert.Equal(t, name == "nothing", New(Deps{Env: h.Env(), Node: "a", Nodes: d.Nodes, Pods: d.Pods, Setting: d.Setting}).isDue())
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	h := testutil.New(t)
	d := h.Datastore(datastore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, New(Deps{Env: h.Env(), Node: "a", Nodes: d.Nodes, Pods: d.Pods, Setting: d.Setting}).Run(ctx))
}
