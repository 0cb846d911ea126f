// Package handover answers: must the leader let another daemon lead, because its own node serves shares? If the leader
// runs on such a node and the node dies, its shares wait for the election of the next leader (8 s). Only the next
// leader can detect that the node is down. If the leader runs elsewhere, the shares move after 2 to 3 s.
//
// Run returns ErrHandOver, at most once a minute. Its caller must then stop leading, so that another daemon leads. The
// package must not know how a leader is elected.
package handover

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ErrHandOver ends a term so that another daemon leads.
var ErrHandOver = errors.New("the leader stops leading because its node serves shares")

const (
	// shortestTerm is how long a leader leads at least.
	shortestTerm = time.Minute
	// lookEvery is the pause between checks after that time.
	lookEvery = 10 * time.Second
)

// Deps are the dependencies of a Handover; the stores are of the whole cluster, and their caches must be filled before
// Run.
type Deps struct {
	queue.Env

	Node    string // the leader's node
	Nodes   datastore.Lister[*longhorn.Node]
	Pods    datastore.Indexer[*corev1.Pod]
	Setting settings.Values
}

// Handover decides when the leader must leave its node.
type Handover struct{ deps Deps }

// New returns a Handover.
func New(d Deps) *Handover { return &Handover{d} }

// Run returns ErrHandOver when another daemon must lead, and nil when ctx is done.
func (h *Handover) Run(ctx context.Context) error {
	for wait := shortestTerm; ; wait = lookEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-h.deps.Clock.After(wait):
		}
		if h.isDue() {
			h.deps.Log.Info("Handing over the leadership: this node serves shares, and other nodes do not")
			return ErrHandOver
		}
	}
}

// isDue reads the caches. Failing to read something is no reason to leave.
func (h *Handover) isDue() bool {
	if !h.deps.Setting.Bool(settings.RWXVolumeFastFailover) {
		return false
	}
	nodes, err := h.deps.Nodes.List(labels.Everything())
	if err != nil {
		return false
	}
	candidates := make([]candidate, 0, len(nodes))
	for _, n := range nodes {
		pods, err := h.deps.Pods.ByIndex(datastore.IndexNode, n.Name)
		if err != nil {
			return false
		}
		c := candidate{name: n.Name, ready: types.IsConditionTrue(n.Status.Conditions, types.ConditionReady), silent: n.Status.Silence != nil}
		for _, pod := range pods {
			c.serves = c.serves || types.IsSharePod(pod)
		}
		candidates = append(candidates, c)
	}
	return shouldLeave(h.deps.Node, candidates)
}
