package liveness

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// dialLimit is the time limit for a new connection, and dials the number of tries. Within a cluster an answer takes
	// a millisecond. The second try covers a lost packet, and a leader that was paused during the first.
	dialLimit = 250 * time.Millisecond
	dials     = 2
	// readLimit is the time limit for one read from the API server.
	readLimit = time.Second
)

// Answers reports whether any of these addresses answers within half a second. anyOf is reach.Any or an equivalent. A
// witness asks in the same way as the leader.
func Answers(ctx context.Context, addresses []string, anyOf func(context.Context, []string) bool) bool {
	for range dials {
		limited, cancel := context.WithTimeout(ctx, dialLimit)
		answers := anyOf(limited, addresses)
		cancel()
		if answers {
			return true
		}
	}
	return false
}

// headStart is how long the leader tries without a witness: a node that lives answers within a millisecond, so usually
// the leader needs no witness.
const headStart = 50 * time.Millisecond

// investigate collects all findings about a silent node, concurrently, and the node's boot.
func (d *Detector) investigate(ctx context.Context, node string) (f finding, bootID string) {
	addresses := d.addressesOf(node)
	f.asked, bootID = len(addresses) > 0, d.bootOf(node)
	dialed := make(chan bool, 1)
	d.work.Go(func() { dialed <- f.asked && Answers(ctx, addresses, d.deps.Answers) })
	select {
	case f.answers = <-dialed:
		if f.answers {
			return f, bootID
		}
		dialed <- false
	case <-d.deps.Clock.After(headStart):
	}
	daemons, nodes := d.witnesses(node)
	f.nodes = nodes

	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var asking sync.WaitGroup
	asking.Go(func() { f.said = d.testify(ctx, daemons, node) })
	asking.Go(func() {
		_, err := d.deps.KubeNodes.Live(limited, node)
		f.apiRead = err == nil
	})
	if d.deps.Leases != nil {
		asking.Go(func() { f.lease = d.renewals.read(limited, d.deps.Leases, node) })
	}
	asking.Wait()
	f.answers = <-dialed
	return f, bootID
}

// addressesOf are the addresses where a node answers if it lives.
func (d *Detector) addressesOf(node string) []string {
	n, err := d.deps.KubeNodes.GetRO(node)
	if err != nil {
		return nil
	}
	managers, err := d.deps.Managers.ByIndex(datastore.IndexNode, node)
	if err != nil {
		return nil
	}
	return types.LifeAddresses(n, d.sharePods(node), managers)
}

func (d *Detector) sharePods(node string) []*corev1.Pod {
	pods, err := d.deps.Pods.ByIndex(datastore.IndexNode, node)
	if err != nil {
		return nil
	}
	var shares []*corev1.Pod
	for _, pod := range pods {
		if types.IsSharePod(pod) {
			shares = append(shares, pod)
		}
	}
	return shares
}
