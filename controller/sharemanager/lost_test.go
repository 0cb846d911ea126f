package sharemanager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// silentNode is a node that its leader and a witness call down.
func silentNode(name, id string, change func(n *longhorn.Node)) *longhorn.Node {
	n := &longhorn.Node{}
	n.Name, n.Status.NFSClientID = name, id
	n.Status.Silence = &longhorn.NodeSilence{Witness: "b", BootID: "1"}
	c := longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonNodeNotAnswering}
	n.Status.Conditions, _ = types.SetCondition(nil, c, testutil.Now)
	if change != nil {
		change(n)
	}
	return n
}

func TestOnlyClientsThatAWitnessCannotReachAreLost(t *testing.T) {
	live := silentNode("live", "id-live", func(n *longhorn.Node) { n.Status.Conditions, n.Status.Silence = nil, nil })
	for name, tc := range map[string]struct {
		node  *longhorn.Node
		other *longhorn.Node
		want  []string
	}{
		"leader and witness cannot reach it":  {node: silentNode("x", "id-x", nil), want: []string{"id-x"}},
		"no witness":                          {node: silentNode("x", "id-x", func(n *longhorn.Node) { n.Status.Silence.Witness = "" })},
		"Kubernetes alone says it":            {node: silentNode("x", "id-x", func(n *longhorn.Node) { n.Status.Silence = nil })},
		"it answers again":                    {node: silentNode("x", "id-x", func(n *longhorn.Node) { n.Status.Conditions = nil })},
		"no identifier":                       {node: silentNode("x", "", nil)},
		"an identifier that cannot be parsed": {node: silentNode("x", "id/x", nil)},
		"another node has its identifier":     {node: silentNode("x", "id-x", nil), other: silentNode("y", "id-x", func(n *longhorn.Node) { n.Status.Silence = nil })},
		"two nodes are down":                  {node: silentNode("x", "id-x", nil), other: silentNode("y", "id-y", nil), want: []string{"id-x", "id-y"}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []*longhorn.Node{live, tc.node}
			if tc.other != nil {
				nodes = append(nodes, tc.other)
			}
			e := &longhorn.Engine{}
			e.Status.Epoch = &longhorn.Epoch{Generation: 7}
			assert.Equal(t, types.LostClients{After: 7, IDs: tc.want}, lostClients(e, nodes))
			e.Status.Epoch = nil
			assert.Empty(t, lostClients(e, nodes).String(), "the volume was never served")
		})
	}
}

func TestAPodIsToldOfLostClients(t *testing.T) {
	variables := func(lost types.LostClients) []corev1.EnvVar {
		in := Input{Share: &longhorn.ShareManager{}, Lost: lost}
		return newPod(in).Spec.Containers[0].Env
	}
	assert.Empty(t, variables(types.LostClients{}))
	assert.Equal(t, []corev1.EnvVar{{Name: types.LostClientsEnv, Value: "7/id-x"}}, variables(types.LostClients{After: 7, IDs: []string{"id-x"}}))
}
