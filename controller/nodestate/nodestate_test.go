package nodestate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/nodestate"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// answer is the API server's answer about node "n"; if obj is nil, the answer is "not found".
type answer[T any] struct {
	obj *T
	err error
}

func (a answer[T]) Live(_ context.Context, name string) (*T, error) {
	switch {
	case name != "n":
		return nil, errors.New("asked for " + name)
	case a.err != nil:
		return nil, a.err
	case a.obj == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	return a.obj, nil
}

func TestWhetherANodeIsDownOrGone(t *testing.T) {
	away := errors.New("the API server is away")
	stale := queue.ErrStale
	node := func(status longhorn.ConditionStatus, reason string) answer[longhorn.Node] {
		return answer[longhorn.Node]{obj: build.Node("n", func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
		})}
	}
	ready := node(longhorn.ConditionTrue, "")
	silent := node(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady)
	without := node(longhorn.ConditionFalse, types.ReasonManagerPodMissing)
	removed := node(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone)
	var none answer[longhorn.Node]
	there := answer[corev1.Node]{obj: build.KubeNode("n")}
	var noKubeNode answer[corev1.Node]
	for _, tc := range []struct {
		name     string
		node     answer[longhorn.Node]
		kubeNode answer[corev1.Node]
		down     error // nil: it is
		gone     error // nil: it is
	}{
		{"ready → neither", ready, there, stale, stale},
		{"only its daemon is missing → neither", without, there, stale, stale},
		{"its kubelet does not answer → down, and may come back", silent, there, nil, stale},
		{"removed, and the Node says so → gone", removed, noKubeNode, nil, nil},
		{"removed, and the Node went with it → gone", none, noKubeNode, nil, nil},
		{"the user deleted the Node of a Kubernetes node that is there → down, and will register again", none, there, nil, stale},
		{"the Kubernetes node is back, the Node's condition is old → down, not gone", removed, there, nil, stale},
		{"the Kubernetes node was removed, the Node says ready still → neither, until it says so", ready, noKubeNode, stale, stale},
		{"the Kubernetes node was removed, the Node says silent still → not gone, until it says so", silent, noKubeNode, nil, stale},
		{"the Node cannot be read → an error", answer[longhorn.Node]{err: away}, noKubeNode, away, away},
		{"the Kubernetes node cannot be read → an error", none, answer[corev1.Node]{err: away}, nil, away},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.ErrorIs(t, nodestate.MustBeDown(t.Context(), tc.node, "n"), tc.down)
			assert.ErrorIs(t, nodestate.MustBeGone(t.Context(), tc.kubeNode, tc.node, "n"), tc.gone)
		})
	}
}
