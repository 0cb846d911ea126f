package liveness

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// The leader asks a node that is down again every recheckSoon, and every recheckLater once it has been down for a
// minute.
const (
	recheckSoon  = 2 * time.Second
	recheckLater = 15 * time.Second
	soonFor      = time.Minute
)

// downNode is a node that is down.
type downNode struct {
	silence  longhorn.NodeSilence
	since    time.Time // by this clock, as this process knows it
	next     time.Time // the time of the next check
	asking   bool
	answered bool // to a question
}

func newDownNode(now time.Time, witness, bootID string) *downNode {
	return &downNode{since: now, silence: longhorn.NodeSilence{FoundAt: now.UTC().Format(time.RFC3339), Witness: witness, BootID: bootID}}
}

// doubt is a verdict that seems to be wrong: the node answers, and its kubelet may not have reported yet that it has
// booted.
type doubt struct {
	bar
	at time.Time // when a kubelet would have reported a new boot
}

// kubeletReports is how long a kubelet has to report the new boot after its node answers again.
const kubeletReports = 30 * time.Second

// takeOver adopts the verdicts of the previous leader: a node that is down stays down until something on it answers.
func (d *Detector) takeOver() error {
	nodes, err := d.deps.Nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	now := d.deps.Clock.Now()
	d.mu.Lock()
	for _, n := range nodes {
		ready := types.FindCondition(n.Status.Conditions, types.ConditionReady)
		switch {
		case n.Status.Silence != nil:
			d.down[n.Name] = &downNode{since: now, silence: *n.Status.Silence.DeepCopy()}
		case ready.Status == longhorn.ConditionFalse && ready.Reason == types.ReasonNodeNotAnswering: // by a leader of an earlier release
			d.down[n.Name] = newDownNode(now, "", d.bootOf(n.Name))
		}
	}
	d.looked = true
	d.mu.Unlock()
	for _, n := range nodes {
		d.tell(n.Name)
	}
	return nil
}

// againLocked starts to ask the nodes that are down and due, and returns those that have answered a question. The
// caller holds mu.
func (d *Detector) againLocked(ctx context.Context, now time.Time) (back []string) {
	for node, f := range d.down {
		switch {
		case f.answered:
			back = append(back, node)
		case !f.asking && !now.Before(f.next):
			f.asking = true
			d.work.Go(func() { d.recheck(ctx, node) })
		}
	}
	return back
}

// recheck checks whether a node that is down answers again.
func (d *Detector) recheck(ctx context.Context, node string) {
	f, _ := d.investigate(ctx, node)
	_, err := d.deps.KubeNodes.GetRO(node)
	isGone := apierrors.IsNotFound(err)
	if ctx.Err() != nil {
		return
	}
	if isGone || f.answers || f.said.reached || f.lease == leaseRenewed {
		d.isBack(node)
		return
	}
	now := d.deps.Clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.down[node]; known != nil {
		known.asking = false
		known.next = now.Add(recheckLater)
		if now.Sub(known.since) < soonFor {
			known.next = now.Add(recheckSoon)
		}
	}
}

// isBack removes the verdict on a node. If the node is in the boot in which it was reported as down, the verdict was
// wrong.
func (d *Detector) isBack(node string) {
	now, bootID := d.deps.Clock.Now(), d.bootOf(node)
	d.mu.Lock()
	f := d.down[node]
	if f == nil {
		d.mu.Unlock()
		return
	}
	delete(d.down, node)
	d.count.lives(node)
	if bootID != "" && bootID == f.silence.BootID {
		d.doubts[node] = doubt{d.count.wrong(node, bootID, now), now.Add(kubeletReports)}
	}
	d.mu.Unlock()
	d.deps.Log.WithField(logfields.Node, node).Info("Node answers again")
	d.renew(node)
	d.tell(node)
}

// doubtfulLocked returns the bars of nodes that turn out not to have booted. The caller holds mu.
func (d *Detector) doubtfulLocked(now time.Time) map[string]bar {
	wrong := map[string]bar{}
	for node, b := range d.doubts {
		if now.Before(b.at) {
			continue
		}
		delete(d.doubts, node)
		if d.bootOf(node) == b.bootID {
			wrong[node] = b.bar
		}
	}
	return wrong
}

func (d *Detector) tellBar(node string, b bar) {
	d.deps.Log.WithField(logfields.Node, node).WithField("until", b.until).
		Warn("Node was reported as down, but it was running: for a while, only Kubernetes decides whether it is down")
	// without the Node, there is no object for an Event
	if n, err := d.deps.Nodes.GetRO(node); err == nil {
		d.deps.Recorder.Eventf(n, corev1.EventTypeWarning, types.EventNodeWronglyDown,
			"node %s was reported as down, but it was running; check its network. For %v, its shares move only when Kubernetes says that the node is not ready", node, b.length)
	}
}
