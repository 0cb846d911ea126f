// Package heartbeat gives back the Lease by which a daemon of an earlier release said that its node lives. It runs in the daemon of the node, once.
//
// A node that serves shares renewed the Lease node-<node> each 2 s in that release. Now the leader asks the shares (package liveness),
// so the Lease is renewed no longer. A leader of an earlier release may still lead: of a lease that is held and not renewed it would take the
// node for silent, and ask it each 2 s. Of one that is given back it knows that Kubernetes alone says whether the node lives.
//
// If the node goes back to an earlier release, that daemon holds the Lease again.
package heartbeat

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// LeaseStore holds Leases.
type LeaseStore interface {
	Live(ctx context.Context, name string) (*coordinationv1.Lease, error)
	Update(ctx context.Context, obj *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// Deps are what a Heartbeat works with.
type Deps struct {
	queue.Env

	Node   string
	Leases LeaseStore
}

// Heartbeat gives the Lease of a node back. Make it with New, then Run it.
type Heartbeat struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the node's name
}

// New does nothing before Run.
func New(d Deps) *Heartbeat {
	h := &Heartbeat{deps: d}
	h.queue = queue.New(queue.Options[string]{Name: "heartbeat", Env: d.Env, Sync: h.sync})
	h.queue.Add(d.Node)
	return h
}

// Run works until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) error { return h.queue.Run(ctx) }

// sync may be repeated: a lease that is given back stays as it is.
func (h *Heartbeat) sync(ctx context.Context, node string) (queue.Result, error) {
	lease, err := h.deps.Leases.Live(ctx, types.NodeLeaseName(node))
	if apierrors.IsNotFound(err) {
		return queue.Result{}, nil
	}
	if err != nil || !types.IsNodeLeaseHeld(lease) {
		return queue.Result{}, err
	}
	u := lease.DeepCopy()
	u.Spec.HolderIdentity = ptr.To("")
	u.Spec.RenewTime = &metav1.MicroTime{Time: h.deps.Clock.Now()}
	_, err = h.deps.Leases.Update(ctx, u)
	return queue.Result{}, err
}
