package liveness

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// renewals are the moments at which this process saw the Leases of nodes renewed. They are by this process's clock:
// neither the node's clock counts, nor a time in which there was no leader.
//
//	daemon of the node   its Lease                        what it proves here
//	-------------------  -------------------------------  ----------------------------------------------------
//	this release         none, or released at its start   nothing
//	earlier release      renewed less than 4 s ago        the node lives
//	earlier release      renewed earlier                  nothing: questions and a witness decide
//	either               held, and cannot be read         the leader may be cut off: no verdict
//
// A leader of an earlier release asks no questions. It sees that a node of this release holds no lease. So only
// Kubernetes decides whether that node lives, after 40 s and more, as for a node without shares.
type renewals struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  map[string]renewal // by node; guarded by mu
}

type renewal struct {
	renewed time.Time // by the lease's clock
	at      time.Time // by this process's clock
}

func newRenewals(c clock.PassiveClock) *renewals {
	return &renewals{clock: c, seen: map[string]renewal{}}
}

func (r *renewals) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.see(obj) },
		UpdateFunc: func(_, obj any) { r.see(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if l, ok := obj.(*coordinationv1.Lease); ok {
				r.forget(types.NodeOfLease(l))
			}
		},
	}
}

func (r *renewals) see(obj any) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok || types.NodeOfLease(l) == "" {
		return
	}
	node := types.NodeOfLease(l)
	if !types.IsNodeLeaseHeld(l) {
		r.forget(node)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was, known := r.seen[node]; known && l.Spec.RenewTime.Time.Equal(was.renewed) {
		return // a restarted watch shows the same renewal again
	}
	r.seen[node] = renewal{renewed: l.Spec.RenewTime.Time, at: r.clock.Now()}
}

func (r *renewals) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, node)
}

func (r *renewals) state(node string) leaseState {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, held := r.seen[node]
	switch {
	case !held:
		return leaseNotHeld
	case r.clock.Since(last.at) < types.NodeLeaseSilence:
		return leaseRenewed
	}
	return leaseLate
}

// read reads a lease that is late, because the watch may be late, too. Otherwise a leader that is cut off could write a
// verdict that arrives when it is connected again.
func (r *renewals) read(ctx context.Context, leases LeaseStore, node string) leaseState {
	if state := r.state(node); state != leaseLate {
		return state
	}
	lease, err := leases.Live(ctx, types.NodeLeaseName(node))
	switch {
	case apierrors.IsNotFound(err):
		r.forget(node)
	case err != nil:
		return leaseUnread
	default:
		r.see(lease)
	}
	return r.state(node)
}
