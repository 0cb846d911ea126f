// Package heartbeat says that a node lives, sooner than Kubernetes would notice that it does not, for as long as the node
// serves shares. It runs in the daemon of the node.
//
//	a share manager's pod is on the node ──► Lease node-<node>, renewed each 2 s ──► the leader asks a node that falls silent,
//	none is any more, or the setting     ──► given back, renewed no more              and calls it down if it does not answer
//	rwx-volume-fast-failover is off
//
// Workloads on other nodes stand still while the node of their share is dead, and Kubernetes takes 40 s or more to say so.
// One lease is enough for all shares of a node; a node without shares costs nothing.
//
// It owns that Lease. What follows from silence is package node's to decide; it must not know shares beyond their pods.
package heartbeat

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// LeaseStore holds Leases.
type LeaseStore interface {
	Live(ctx context.Context, name string) (*coordinationv1.Lease, error)
	Create(ctx context.Context, obj *coordinationv1.Lease) (*coordinationv1.Lease, error)
	Update(ctx context.Context, obj *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// PodStore holds at least the pods of share managers on this node.
type PodStore interface {
	ByIndex(index, value string) ([]*corev1.Pod, error)
	queue.Events
}

// Deps are what a Heartbeat works with.
type Deps struct {
	queue.Env

	Node   string
	Pods   PodStore
	Leases LeaseStore
	Nodes  interface {
		GetRO(name string) (*longhorn.Node, error)
	}
	Settings queue.Events
	Setting  types.SettingValues
}

// Heartbeat keeps the Lease of a node. Make it with New, then Run it.
type Heartbeat struct {
	deps  Deps
	queue *queue.Queue[string] // of one key, the node's name
	// lease is as it was written or read last; nil: not known. Only the one worker uses it.
	lease *coordinationv1.Lease
}

// New registers the handlers; nothing happens before Run.
func New(d Deps) (*Heartbeat, error) {
	h := &Heartbeat{deps: d}
	h.queue = queue.New(queue.Options[string]{Name: "heartbeat", Env: d.Env, Sync: h.sync})
	err := h.queue.Watch(
		queue.Watch{Events: d.Pods, Handler: queue.Handler(h.queue, func(pod *corev1.Pod) []string {
			if pod.Labels[types.LabelShareManager] == "" {
				return nil
			}
			return []string{d.Node}
		})},
		queue.Watch{Events: d.Settings, Handler: queue.Handler(h.queue, func(s *longhorn.Setting) []string {
			if s.Name != string(types.SettingRWXVolumeFastFailover) {
				return nil
			}
			return []string{d.Node}
		})})
	if err != nil {
		return nil, err
	}
	h.queue.Add(d.Node) // an earlier daemon of the node may have left the lease held
	return h, nil
}

// Run works until ctx ends. The lease stays held: a daemon that restarts goes on with it, and a node whose daemon is away
// answers all the same.
func (h *Heartbeat) Run(ctx context.Context) error { return h.queue.Run(ctx) }

// sync renews the lease, or gives it back. What fails is tried again at the next renewal, never later: a queue's patience
// would be taken for the node's death.
func (h *Heartbeat) sync(ctx context.Context, node string) (queue.Result, error) {
	promises, err := h.promises()
	if err != nil {
		return queue.Result{}, err
	}
	began := h.deps.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, types.NodeLeaseRenewal)
	defer cancel()
	err = h.keep(limited, promises)
	if err != nil {
		h.lease = nil
		if ctx.Err() != nil {
			return queue.Result{}, err
		}
		queue.Log(ctx).WithError(err).Warn("The lease of the node is not written; trying again")
	}
	if err == nil && !promises {
		return queue.Result{}, nil
	}
	return queue.Result{RequeueAfter: max(time.Millisecond, types.NodeLeaseRenewal-h.deps.Clock.Since(began))}, nil
}

// promises tells whether the node is to say that it lives.
func (h *Heartbeat) promises() (bool, error) {
	if !h.deps.Setting.Bool(types.SettingRWXVolumeFastFailover) {
		return false, nil
	}
	pods, err := h.deps.Pods.ByIndex(datastore.IndexNode, h.deps.Node)
	if err != nil {
		return false, err
	}
	for _, pod := range pods {
		if types.IsSharePod(pod) {
			return true, nil
		}
	}
	return false, nil
}

// keep makes the lease what it shall be.
func (h *Heartbeat) keep(ctx context.Context, promises bool) error {
	if h.lease == nil {
		lease, err := h.deps.Leases.Live(ctx, types.NodeLeaseName(h.deps.Node))
		switch {
		case apierrors.IsNotFound(err) && !promises:
			return nil
		case apierrors.IsNotFound(err):
			if lease, err = h.newLease(); err != nil {
				return err
			}
			// A refusal is for the log alone: without the lease the node's shares are served, and only move later when the node dies.
			h.lease, err = h.deps.Leases.Create(ctx, lease)
			return err
		case err != nil:
			return err
		}
		h.lease = lease
	}
	if !promises && !types.IsNodeLeaseHeld(h.lease) {
		return nil
	}
	u := h.lease.DeepCopy()
	holder := ""
	if promises {
		holder = h.deps.Node
	}
	u.Spec.HolderIdentity = &holder
	u.Spec.RenewTime = &metav1.MicroTime{Time: h.deps.Clock.Now()}
	written, err := h.deps.Leases.Update(ctx, u)
	if err == nil {
		h.lease = written
	}
	return err
}

// newLease goes with the Node.
func (h *Heartbeat) newLease() (*coordinationv1.Lease, error) {
	node, err := h.deps.Nodes.GetRO(h.deps.Node)
	if err != nil {
		return nil, fmt.Errorf("the owner of the lease: %w", err)
	}
	seconds := int32(types.NodeLeaseSilence / time.Second)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: types.NodeLeaseName(h.deps.Node), Namespace: node.Namespace,
			Labels:          map[string]string{types.LabelManagedBy: types.ManagedByManager, types.LabelNodeLease: h.deps.Node},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &h.deps.Node, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: h.deps.Clock.Now()},
		},
	}, nil
}
