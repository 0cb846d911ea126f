package node

import (
	"context"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A node that serves shares is called down sooner than Kubernetes does it, when three ways of knowing agree:
//
//	its lease was renewed         it answers    its lease, read anew    the node
//	----------------------------  ------------  ----------------------  ------------------------------------------------
//	less than 4 s ago             (not asked)   (not read)              lives
//	longer ago                    yes           (not read)              lives: its daemon restarts, or the API server is slow
//	longer ago                    no            was renewed             lives: this leader was cut off from all nodes
//	longer ago                    no            cannot be read          may live: this leader is cut off itself
//	longer ago                    no            was not renewed         is down
//	given back, or never held     (not asked)   (not read)              serves no share: Kubernetes says whether it lives
//
// Time is counted here, from when a renewal was seen: neither the node's clock nor a leader that was not there counts. A node
// that is wrongly called down costs its shares a failover, and loses nothing: who comes back is fenced by generation.

// beats are the moments at which leases were seen renewed.
type beats struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  map[string]beat // by node
}

type beat struct {
	renewed time.Time // as the lease says
	at      time.Time // as this clock says
	late    bool      // the node was asked since
}

func newBeats(c clock.PassiveClock) *beats { return &beats{clock: c, seen: map[string]beat{}} }

// handler records renewals, and names to add the nodes whose lease is new, held anew, given back or renewed at last. The others
// are looked at when their next renewal is late.
func (b *beats) handler(add func(node string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.see(obj, add) },
		UpdateFunc: func(_, obj any) { b.see(obj, add) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if l, ok := obj.(*coordinationv1.Lease); ok {
				b.forget(types.NodeOfLease(l), add)
			}
		},
	}
}

func (b *beats) see(obj any, add func(node string)) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok || types.NodeOfLease(l) == "" {
		return
	}
	node := types.NodeOfLease(l)
	if !types.IsNodeLeaseHeld(l) {
		b.forget(node, add)
		return
	}
	b.mu.Lock()
	was, known := b.seen[node]
	if known && l.Spec.RenewTime.Time.Equal(was.renewed) {
		b.mu.Unlock()
		return // a watch that began anew shows it again
	}
	b.seen[node] = beat{renewed: l.Spec.RenewTime.Time, at: b.clock.Now()}
	b.mu.Unlock()
	if !known || was.late {
		add(node)
	}
}

func (b *beats) forget(node string, add func(node string)) {
	b.mu.Lock()
	_, known := b.seen[node]
	delete(b.seen, node)
	b.mu.Unlock()
	if known {
		add(node)
	}
}

// due returns in how long a node's lease is late if it is not renewed; 0: it is late, and marked so. held is false for a node
// without a lease.
func (b *beats) due(node string) (left time.Duration, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, held := b.seen[node]
	if !held {
		return 0, false
	}
	if left = last.at.Add(types.NodeLeaseSilence).Sub(b.clock.Now()); left > 0 {
		return left, true
	}
	last.late = true
	b.seen[node] = last
	return 0, true
}

// isSilent tells whether a node that serves shares is down. again, if positive, is when to ask again.
func (m *Monitor) isSilent(ctx context.Context, in readyInput) (silent bool, again time.Duration) {
	if in.KubeNode == nil {
		return false, 0
	}
	if kubelet, _ := kubeletReady(in.KubeNode, m.deps.Clock.Now()); kubelet != "" {
		return false, 0 // that says it all
	}
	left, held := m.beats.due(in.Node)
	if !held || left > 0 {
		return false, left
	}
	addresses := addressesOf(in)
	return len(addresses) > 0 && !m.deps.Answers(ctx, addresses) && m.isLate(ctx, in.Node), types.NodeLeaseRenewal
}

// serves tells whether a node lives, serves shares, and answers, though its kubelet reports for a while that it is not ready: a container runtime or a
// network plugin restarts, and what runs keeps running. A kubelet that does not report (Ready is Unknown) is believed to be dead, as Kubernetes does. again,
// if positive, is when to ask again.
func (m *Monitor) serves(ctx context.Context, in readyInput) (serves bool, again time.Duration) {
	if in.KubeNode == nil || len(in.Shares) == 0 || !saysNotReady(in.KubeNode) {
		return false, 0
	}
	if kubelet, _ := kubeletReady(in.KubeNode, m.deps.Clock.Now()); kubelet == "" {
		return false, 0
	}
	addresses := addressesOf(in)
	return len(addresses) > 0 && m.deps.Answers(ctx, addresses), types.NodeLeaseRenewal
}

func saysNotReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// isLate reads a node's lease from the API server, after the node has not answered, and tells whether it is late still. A leader that
// is cut off from nodes and API server sees no renewals and gets no answers; what it then wrote would arrive when it is not cut off any more.
func (m *Monitor) isLate(ctx context.Context, node string) bool {
	limited, cancel := context.WithTimeout(ctx, types.NodeLeaseRenewal)
	defer cancel()
	lease, err := m.deps.Leases.Live(limited, types.NodeLeaseName(node))
	if err != nil {
		queue.Log(ctx).WithError(err).Warn("Node does not answer, and its lease cannot be read: it may live")
		return false
	}
	m.beats.see(lease, m.queue.Add)
	left, held := m.beats.due(node)
	return held && left == 0
}

// addressesOf are where a node answers if it lives: its kubelet, and the health of its shares. What refuses a connection lives.
func addressesOf(in readyInput) []string {
	var addresses []string
	for _, pod := range in.Shares {
		if ip, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
			addresses = append(addresses, netip.AddrPortFrom(ip, types.ShareHealthPort).String())
		}
	}
	return append(addresses, types.KubeletAddresses(in.KubeNode)...)
}
