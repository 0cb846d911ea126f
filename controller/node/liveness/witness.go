package liveness

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ErrEarlierRelease: a daemon cannot be a witness.
var ErrEarlierRelease = errors.New("the daemon is of an earlier release")

const (
	// asksAtOnce is how many witnesses the leader asks at the same time: a slow or dead witness does not delay the
	// others.
	asksAtOnce = 4
	// witnessLimit is the time limit for one witness, which dials for 0.5 s. witnessesLimit is the limit for all
	// witnesses.
	witnessLimit   = time.Second
	witnessesLimit = 3 * time.Second
)

// testify asks daemons in the given order whether they reach a node, several at a time, until one has answered.
func (d *Detector) testify(ctx context.Context, daemons []daemon, node string) testimony {
	ctx, cancel := context.WithTimeout(ctx, witnessesLimit)
	defer cancel()
	earlier := 0
	for some := range slices.Chunk(daemons, asksAtOnce) {
		said := d.askSome(ctx, some, node)
		if said.reached || said.agrees != "" {
			return said.testimony
		}
		earlier += said.earlier
		if ctx.Err() != nil {
			break
		}
	}
	return testimony{earlier: len(daemons) > 0 && earlier == len(daemons)}
}

type answers struct {
	testimony
	earlier int
}

// askSome asks daemons at the same time. A daemon that reaches the node counts more than any that does not. Of those
// that do not, the first is the witness.
func (d *Detector) askSome(ctx context.Context, some []daemon, node string) answers {
	ctx, cancel := context.WithTimeout(ctx, witnessLimit)
	defer cancel()
	reached, errs := make([]bool, len(some)), make([]error, len(some))
	var asked sync.WaitGroup
	for i, w := range some {
		asked.Go(func() { reached[i], errs[i] = d.deps.Testify(ctx, w.node, w.address, node) })
	}
	asked.Wait()
	var said answers
	for i, w := range some {
		switch {
		case errors.Is(errs[i], ErrEarlierRelease):
			said.earlier++
		case errs[i] != nil:
			d.deps.Log.WithError(errs[i]).WithField("witness", w.node).Warn("A witness does not answer")
		case reached[i]:
			said.reached = true
		case said.agrees == "":
			said.agrees = w.node
		}
	}
	return said
}

// witnesses are the ready daemons of other nodes, the best first. nodes is the number of nodes in the cluster.
func (d *Detector) witnesses(silent string) (daemons []daemon, nodes int) {
	all, err := d.deps.Nodes.List(labels.Everything())
	if err != nil {
		return nil, 0
	}
	for _, n := range all {
		if types.IsNodeGone(n) {
			continue
		}
		nodes++
		if n.Name == silent || n.Name == d.deps.Node || d.isSuspect(n.Name) {
			continue
		}
		if address := d.daemonOf(n.Name); address != "" {
			daemons = append(daemons, daemon{n.Name, address})
		}
	}
	return byRelation(daemons, d.usersOf(silent)), nodes
}

// daemonOf is the address of a node's ready daemon; "" if it has none.
func (d *Detector) daemonOf(node string) string {
	pods, err := d.deps.Pods.ByIndex(datastore.IndexNode, node)
	if err != nil {
		return ""
	}
	for _, pod := range pods {
		if pod.Labels[types.LabelApp] == types.AppManager && pod.DeletionTimestamp == nil && isReady(pod) && pod.Status.PodIP != "" {
			return pod.Status.PodIP
		}
	}
	return ""
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// usersOf are the users of the shares on a node. Unreadable users are ignored: the order is only a preference.
func (d *Detector) usersOf(node string) (u users) {
	for _, pod := range d.sharePods(node) {
		volume := pod.Labels[types.LabelShareManager]
		attachments, _ := d.deps.Attachments.ByIndex(datastore.IndexVolume, volume)
		for _, a := range attachments {
			for _, ticket := range a.Spec.AttachmentTickets {
				u.mounts = append(u.mounts, ticket.NodeID)
			}
		}
		replicas, _ := d.deps.Replicas.ByIndex(datastore.IndexVolume, volume)
		for _, r := range replicas {
			u.replicas = append(u.replicas, r.Spec.NodeID)
		}
	}
	return u
}
