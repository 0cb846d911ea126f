// Package nodestate answers: does the API server itself say that a node is down or gone? Controllers ask just before an
// action that a node that comes back could not undo. They treat the node's engine as stopped, report its replica as
// failed, or remove a finalizer that normally only the node removes.
//
//	           Node                       Kubernetes node      otherwise
//	is down    none, or it says so        (not asked)          queue.ErrStale
//	is gone    none, or it says so        none                 queue.ErrStale
//
// A controller first sees in its cache that a node is down or gone, and plans with the cache. But the cache may be
// late, and the node may be back. A user may also delete the Node of a Kubernetes node that exists: that node will
// register again, and is not gone.
//
// The package must not know engines, replicas, or the actions of its callers.
package nodestate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Nodes reads nodes from the API server.
type Nodes interface {
	Live(ctx context.Context, name string) (*longhorn.Node, error)
}

// KubeNodes reads Kubernetes nodes from the API server.
type KubeNodes interface {
	Live(ctx context.Context, name string) (*corev1.Node, error)
}

// MustBeDown returns nil only if everything on the node counts as unreachable (types.IsNodeDown).
func MustBeDown(ctx context.Context, nodes Nodes, node string) error {
	return must(ctx, nodes, node, types.IsNodeDown)
}

// MustBeGone returns nil only if the node will not come back. Its Kubernetes node must not exist, and its Node must not
// exist either or say that it is gone (types.IsNodeGone).
func MustBeGone(ctx context.Context, kubeNodes KubeNodes, nodes Nodes, node string) error {
	if err := MustHaveLeft(ctx, kubeNodes, node); err != nil {
		return err
	}
	return must(ctx, nodes, node, types.IsNodeGone)
}

// MustHaveLeft returns nil only if the Kubernetes node does not exist. The Node may still exist: the controller that
// removes it calls this function.
func MustHaveLeft(ctx context.Context, kubeNodes KubeNodes, node string) error {
	switch _, err := kubeNodes.Live(ctx, node); {
	case err == nil:
		return queue.ErrStale
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Kubernetes node %s: %w", node, err)
	}
	return nil
}

func must(ctx context.Context, nodes Nodes, node string, be func(*longhorn.Node) bool) error {
	n, err := nodes.Live(ctx, node)
	switch {
	case apierrors.IsNotFound(err):
		n = nil
	case err != nil:
		return fmt.Errorf("read node %s: %w", node, err)
	}
	if !be(n) {
		return queue.ErrStale
	}
	return nil
}
