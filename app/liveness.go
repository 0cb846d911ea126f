package app

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/controller/node/liveness"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/healthprobe"
	"github.com/longhorn-lep/longhorn-manager/util/reach"
)

// newDetector returns the detector of nodes that are down, for the leader.
func (d *daemon) newDetector(store *datastore.Datastore) (*liveness.Detector, error) {
	deps := liveness.Deps{
		Env: d.env, Node: d.node, Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Managers: store.InstanceManagers,
		Attachments: store.VolumeAttachments, Replicas: store.Replicas, Setting: store.Setting,
		Questions: healthprobe.New(), Answers: reach.Any,
		Testify: d.askWitness(d.rest.peers),
	}
	if !d.oldManifests {
		deps.Leases = store.NodeLeases
	}
	return liveness.New(deps)
}

// witnesses are the daemons of other nodes. *api.Peers implements it.
type witnesses interface {
	Reaches(ctx context.Context, witness, address, token, node string) (bool, error)
}

// askWitness returns a function that sends the question of the leader to the daemon of another node. It uses the
// leader's account, as a client of the REST API. The daemon checks the token, and the right to update the Node.
func (d *daemon) askWitness(peers witnesses) func(ctx context.Context, witness, address, node string) (bool, error) {
	tokens := &accountTokens{kube: d.own.kube, namespace: d.namespace, account: types.LeaderAccount, audience: d.audience, clock: d.env.Clock}
	return func(ctx context.Context, witness, address, node string) (bool, error) {
		token, err := tokens.get(ctx)
		if err != nil {
			return false, err
		}
		reaches, err := peers.Reaches(ctx, witness, address, token, node)
		if errors.Is(err, api.ErrEarlierRelease) {
			err = liveness.ErrEarlierRelease
		}
		return reaches, err
	}
}

// witness reports to the leader whether this node reaches another node (api.Reacher). The daemon's caches hold only
// objects of its own node, so it reads objects of the other node from the API server.
type witness struct {
	kubeNodes datastore.LiveReader[*corev1.Node]
	pods      datastore.LiveLister[*corev1.Pod]
	managers  datastore.LiveReader[*longhorn.InstanceManager]
	answers   func(ctx context.Context, addresses []string) bool
}

// Reaches implements api.Reacher.
func (w witness) Reaches(ctx context.Context, node string) (bool, error) {
	n, err := w.kubeNodes.Live(ctx, node)
	if apierrors.IsNotFound(err) {
		return false, &manager.Problem{Class: manager.ErrNotFound, Text: fmt.Sprintf("node %q does not exist", node)}
	}
	if err != nil {
		return false, err
	}
	pods, err := w.pods.ListLive(ctx, metav1.ListOptions{
		LabelSelector: types.LabelShareManager, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return false, err
	}
	var managers []*longhorn.InstanceManager
	im, err := w.managers.Live(ctx, types.InstanceManagerName(node))
	switch {
	case err == nil:
		managers = append(managers, im)
	case !apierrors.IsNotFound(err):
		return false, err
	}
	addresses := types.LifeAddresses(n, pods, managers)
	if len(addresses) == 0 {
		return false, &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf("node %q has no known address, so this daemon cannot check whether it answers", node)}
	}
	return liveness.Answers(ctx, addresses, w.answers), nil
}
