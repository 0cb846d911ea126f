// Package heartbeat releases the Lease by which a daemon of an earlier release reported that its node lives. It runs in
// the daemon of the node, once.
//
// In that release, the daemon of a node that serves shares renewed the Lease node-<node> every 2 s. Now the leader asks
// the shares (package liveness), so the daemon no longer renews the Lease. A leader of an earlier release may still
// lead. If a lease is held and not renewed, that leader would treat the node as silent, and ask it every 2 s. If the
// lease is released, that leader knows that only Kubernetes can say whether the node lives.
//
// If the node returns to an earlier release, that release's daemon holds the Lease again.
package heartbeat

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// LeaseStore holds Leases.
type LeaseStore interface {
	datastore.LiveReader[*coordinationv1.Lease]
	datastore.Updater[*coordinationv1.Lease]
}

// Deps are the dependencies of a Heartbeat.
type Deps struct {
	queue.Env

	Node   string
	Leases LeaseStore
}

// Heartbeat releases the Lease of a node. Create it with New, then call Run.
type Heartbeat struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the node's name
}

// New creates a Heartbeat. It does nothing before Run is called.
func New(d Deps) *Heartbeat {
	h := &Heartbeat{deps: d}
	h.queue = queue.New(queue.Options[string]{Name: "heartbeat", Env: d.Env, Sync: h.sync})
	h.queue.Add(d.Node)
	return h
}

// Run works until ctx is done.
func (h *Heartbeat) Run(ctx context.Context) error { return h.queue.Run(ctx) }

// sync may be repeated: it does not change a lease that is released.
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
