package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/controller/node/liveness"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A witness tries only the addresses that the API server has for the named node.
func TestAWitnessTriesTheNodeAndItsShares(t *testing.T) {
	share := func(volume, node, ip string) *corev1.Pod {
		return build.Pod(types.ShareManagerPodName(volume), node, func(p *corev1.Pod) {
			p.Labels, p.Status.PodIP = types.ShareManagerSelector(volume), ip
		})
	}
	h := testutil.New(t,
		build.KubeNode("x", func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.24"}}
		}),
		build.KubeNode("bare", func(n *corev1.Node) { n.Status.Addresses = nil }),
		share("vol", "x", "10.1.0.7"), share("other", "y", "10.1.0.8"),
		&longhorn.InstanceManager{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.InstanceManagerName("x")},
			Spec:       longhorn.InstanceManagerSpec{NodeID: "x"}, Status: longhorn.InstanceManagerStatus{IP: "10.1.0.9", Port: 9502},
		},
	)
	store := h.Datastore(datastore.Options{Node: "witness"})
	answers, tried := true, 0
	w := witness{kubeNodes: store.KubeNodes, pods: store.Pods, managers: store.InstanceManagers, answers: func(_ context.Context, addresses []string) bool {
		tried++
		assert.Equal(t, []string{"10.1.0.7:9600", "10.0.0.24:10250", "10.1.0.9:9502"}, addresses)
		return answers
	}}
	reaches, err := w.Reaches(t.Context(), "x")
	require.NoError(t, err)
	assert.True(t, reaches)
	answers = false
	reaches, err = w.Reaches(t.Context(), "x")
	require.NoError(t, err)
	assert.False(t, reaches)
	assert.Equal(t, 3, tried)

	_, err = w.Reaches(t.Context(), "stranger")
	require.ErrorIs(t, err, manager.ErrNotFound)
	_, err = w.Reaches(t.Context(), "bare")
	require.ErrorIs(t, err, manager.ErrUnavailable)
	for _, kind := range []string{"nodes", "instancemanagers"} {
		h.Fail("get", kind, errors.New("no route to host"))
		_, err = w.Reaches(t.Context(), "x")
		require.Error(t, err, kind)
	}
	h.Fail("list", "pods", errors.New("no route to host"))
	_, err = w.Reaches(t.Context(), "x")
	require.Error(t, err)
	assert.Equal(t, 3, tried, "what it cannot read it does not guess")
}

// answering is a daemon that answers as the test sets it up.
type answering struct {
	t   *testing.T
	err error
}

func (a answering) Reaches(_ context.Context, witness, address, token, node string) (bool, error) {
	assert.Equal(a.t, []string{"b", "10.1.0.2", "token", "x"}, []string{witness, address, token, node})
	return a.err == nil, a.err
}

// The leader sends a token of its account that is valid only for the REST API.
func TestAskWitness(t *testing.T) {
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		request := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		assert.Equal(t, []string{"longhorn-backend"}, request.Spec.Audiences)
		assert.Equal(t, types.LeaderAccount, a.(clienttesting.CreateActionImpl).Name)
		request.Status.Token = "token"
		return true, request, nil
	})
	d := &daemon{namespace: "storage", audience: "longhorn-backend", own: &clients{kube: kube}, env: testutil.New(t).Env()}
	for answer, want := range map[error]error{nil: nil, api.ErrEarlierRelease: liveness.ErrEarlierRelease, context.DeadlineExceeded: context.DeadlineExceeded} {
		reaches, err := d.askWitness(answering{t, answer})(t.Context(), "b", "10.1.0.2", "x")
		assert.Equal(t, want == nil, reaches)
		require.ErrorIs(t, err, want)
	}
	kube.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no right") })
	_, err := d.askWitness(nil)(t.Context(), "b", "10.1.0.2", "x")
	require.ErrorContains(t, err, "no right")
}
