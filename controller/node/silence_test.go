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

// foundSilent is the report of package liveness.
type foundSilent struct {
	silence map[string]*longhorn.NodeSilence
	unknown bool
	changed func(string)
}

func (f *foundSilent) Silence(node string) (*longhorn.NodeSilence, bool) {
	if f.unknown {
		return nil, false
	}
	return f.silence[node], true
}

func (f *foundSilent) OnChange(changed func(string)) { f.changed = changed }

func TestASilentNodeIsDown(t *testing.T) {
	silence := &longhorn.NodeSilence{FoundAt: "2030-01-02T03:04:05Z", Witness: "node-2", BootID: "boot"}
	alone := &longhorn.NodeSilence{FoundAt: "2030-01-02T03:04:05Z", BootID: "boot"}
	for name, c := range map[string]struct {
		kubelet *corev1.Node // nil: it was removed
		found   *longhorn.NodeSilence
		unknown bool
		written *longhorn.NodeSilence // by an earlier leader, with the reason NodeNotAnswering
		earlier bool                  // by a leader of an earlier release
		reason  string
		message string
		status  *longhorn.NodeSilence
	}{
		"it is not silent → ready":                                {kubelet: kubelet("True", 0), message: "Node node-1 is ready"},
		"it is silent → down, with the witness":                   {kubelet: kubelet("True", 0), found: silence, reason: "NodeNotAnswering", message: "node node-1 answers neither the leader nor node node-2", status: silence},
		"no witness → down, and that is said":                     {kubelet: kubelet("True", 0), found: alone, reason: "NodeNotAnswering", message: "node node-1 does not answer the leader; no other node could confirm this: there is none, or its release is too old", status: alone},
		"its kubelet has called itself not ready a moment ago":    {kubelet: kubelet("False", time.Second), found: silence, reason: "NodeNotAnswering", message: "node node-1 answers neither the leader nor node node-2", status: silence},
		"Kubernetes says it, too → Kubernetes' word, and silence": {kubelet: kubelet("Unknown", 0), found: silence, reason: "KubernetesNodeNotReady", message: "Kubernetes node node-1 is not ready: m (R)", status: silence},
		"Kubernetes alone says it → no silence":                   {kubelet: kubelet("Unknown", 0), reason: "KubernetesNodeNotReady", message: "Kubernetes node node-1 is not ready: m (R)"},
		"it was removed → gone":                                   {found: silence, reason: "KubernetesNodeGone", message: "Kubernetes node node-1 was removed"},
		"it answers again → ready":                                {kubelet: kubelet("True", 0), written: silence, message: "Node node-1 is ready"},
		"a new leader has not looked yet → as it was":             {kubelet: kubelet("True", 0), unknown: true, written: silence, reason: "NodeNotAnswering", message: "node node-1 answers neither the leader nor node node-2", status: silence},
		"the same after an earlier release's leader → as it was":  {kubelet: kubelet("True", 0), unknown: true, earlier: true, reason: "NodeNotAnswering", message: "node node-1 does not answer"},
		"it was ready, a new leader has not looked yet → ready":   {kubelet: kubelet("True", 0), unknown: true, message: "Node node-1 is ready"},
	} {
		t.Run(name, func(t *testing.T) {
			n := build.ReadyNode("node-1", uuid1)
			if c.written != nil || c.earlier {
				n.Status.Silence = c.written
				n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, notReady(types.ReasonNodeNotAnswering, "m"), testutil.Now)
			}
			h := testutil.New(t, n, daemon())
			if c.kubelet != nil {
				h.Seed(c.kubelet)
			}
			d := h.Datastore(datastore.Options{})
			m, err := NewMonitor(MonitorDeps{
				Nodes: d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(),
				Liveness: &foundSilent{silence: map[string]*longhorn.NodeSilence{"node-1": c.found}, unknown: c.unknown},
			})
			require.NoError(t, err)
			h.EndWithTest(m.Run)
			_, err = m.sync(t.Context(), "node-1")
			require.NoError(t, err)
			h.CatchUp()
			got, err := d.Nodes.Get("node-1")
			require.NoError(t, err)
			ready := types.FindCondition(got.Status.Conditions, types.ConditionReady)
			assert.Equal(t, c.reason, ready.Reason)
			assert.Equal(t, c.message, ready.Message)
			assert.Equal(t, c.reason != "", types.IsNodeDown(got))
			assert.Equal(t, c.status, got.Status.Silence)
		})
	}
}

// An unchanged verdict is not written again: a verdict may last long.
func TestAStandingSilenceIsWrittenOnce(t *testing.T) {
	h := testutil.New(t, kubelet("True", 0), daemon(), build.ReadyNode("node-1", uuid1))
	d := h.Datastore(datastore.Options{})
	live := &foundSilent{silence: map[string]*longhorn.NodeSilence{"node-1": {FoundAt: "2030-01-02T03:04:05Z", Witness: "node-2"}}}
	m, err := NewMonitor(MonitorDeps{Nodes: d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(), Liveness: live})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	require.NotNil(t, live.changed, "a verdict would not be written")
	_, err = m.sync(t.Context(), "node-1")
	require.NoError(t, err)
	h.ExpectWrites("update nodes/node-1/status")
	h.CatchUp()
	_, err = m.sync(t.Context(), "node-1")
	require.NoError(t, err)
	h.ExpectWrites()
}
