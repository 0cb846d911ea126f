package liveness

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// NodeStore holds the Nodes of the whole cluster.
type NodeStore interface {
	datastore.Reader[*longhorn.Node]
	datastore.Lister[*longhorn.Node]
}

// KubeNodeStore holds all Kubernetes nodes.
type KubeNodeStore interface {
	datastore.Reader[*corev1.Node]
	datastore.LiveReader[*corev1.Node]
}

// LeaseStore holds the Leases of nodes (types.NodeLeaseName).
type LeaseStore interface {
	datastore.Notifier
	datastore.LiveReader[*coordinationv1.Lease]
}

// Questions sends questions on connections that stay open. *healthprobe.Prober implements it.
type Questions interface {
	// Ask must return at once. It calls answered at most once, when the answer comes, however late.
	Ask(address string, answered func())
	// Keep closes the connections to all other addresses.
	Keep(addresses map[string]bool)
	// Renew makes the next question to an address open a new connection.
	Renew(address string)
	// Close must wait for questions that are still open.
	Close()
}

// Deps are the dependencies of a Detector; the stores are of the whole cluster.
type Deps struct {
	queue.Env

	Node        string // the leader's own node, which is not judged
	Nodes       NodeStore
	KubeNodes   KubeNodeStore
	Pods        datastore.WatchedIndexer[*corev1.Pod] // at least the pods of daemons and share managers
	Managers    datastore.Indexer[*longhorn.InstanceManager]
	Attachments datastore.Indexer[*longhorn.VolumeAttachment]
	Replicas    datastore.Indexer[*longhorn.Replica]
	// Leases are the Leases of nodes of an earlier release; nil: the leader may not watch them, so none counts.
	Leases    LeaseStore
	Setting   settings.Values
	Questions Questions
	// Answers reports whether any of these addresses (host:port) answers. A refusal counts as an answer. It must return
	// when ctx is done.
	Answers func(ctx context.Context, addresses []string) bool
	// Testify asks the daemon of the node witness, at an IP address, whether it reaches the other node. It returns
	// ErrEarlierRelease if that daemon cannot know.
	Testify func(ctx context.Context, witness, address, node string) (reaches bool, err error)
}

// Detector maintains the verdicts on nodes that serve shares. Create it with New, then call Run.
type Detector struct {
	deps     Deps
	renewals *renewals
	changed  []func(node string)
	silent   []func(volume string)
	work     sync.WaitGroup // judgements that are under way

	mu       sync.Mutex // guards the fields below
	looked   bool       // the verdicts of an earlier leader have been adopted
	shares   map[string]share
	asked    map[string]bool    // addresses
	heard    map[string]bool    // addresses that have answered this process
	fresh    map[string]bool    // addresses that have answered since the last tick
	silences map[string]silence // by address
	count    *count
	judging  map[string]bool
	down     map[string]*downNode
	doubts   map[string]doubt
	reasons  map[string]string // the logged reason for the lack of a verdict on a silent node
}

// share is a pod that the leader asks.
type share struct{ node, address, volume string }

// New registers the handlers. It asks nothing before Run.
func New(d Deps) (*Detector, error) {
	det := &Detector{
		deps: d, renewals: newRenewals(d.Clock), count: newCount(standard),
		shares: map[string]share{}, asked: map[string]bool{}, heard: map[string]bool{}, fresh: map[string]bool{},
		judging: map[string]bool{}, down: map[string]*downNode{}, doubts: map[string]doubt{}, reasons: map[string]string{},
	}
	watches := []queue.Watch{{Events: d.Pods, Handler: det.podHandler()}}
	if d.Leases != nil {
		watches = append(watches, queue.Watch{Events: d.Leases, Handler: det.renewals.handler()})
	}
	for _, w := range watches {
		if _, err := w.Events.AddHandler(w.Handler); err != nil {
			return nil, err
		}
	}
	return det, nil
}

// OnChange registers f, which is called with each node when its Silence changes. OnChange must be called before Run. f
// must return at once.
func (d *Detector) OnChange(f func(node string)) { d.changed = append(d.changed, f) }

// Silence is the verdict on a node; nil: the node is not known to be down. Until isKnown is true, the verdict of an
// earlier leader is valid.
func (d *Detector) Silence(node string) (s *longhorn.NodeSilence, isKnown bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.down[node]; f != nil {
		s = f.silence.DeepCopy()
	}
	return s, d.looked
}

// isSuspect reports whether a node is down or silent, so that it cannot be a witness.
func (d *Detector) isSuspect(node string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.down[node] != nil || d.count.isSilent(node)
}

// Run asks until ctx is done, and returns when no judgement is under way.
func (d *Detector) Run(ctx context.Context) error {
	defer d.deps.Questions.Close()
	defer d.work.Wait()
	if err := d.takeOver(); err != nil {
		return err
	}
	ticker := d.deps.Clock.NewTicker(standard.interval)
	defer ticker.Stop()
	for {
		d.tick(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// podHandler maintains the list of shares.
func (d *Detector) podHandler() cache.ResourceEventHandler {
	set := func(obj any, isGone bool) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Labels[types.LabelShareManager] == "" {
			return
		}
		address := types.ShareHealthAddress(pod)
		d.mu.Lock()
		defer d.mu.Unlock()
		if isGone || address == "" || pod.Spec.NodeName == "" {
			delete(d.shares, pod.Name)
			return
		}
		d.shares[pod.Name] = share{pod.Spec.NodeName, address, pod.Labels[types.LabelShareManager]}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { set(obj, false) },
		UpdateFunc: func(_, obj any) { set(obj, false) },
		DeleteFunc: func(obj any) { set(obj, true) },
	}
}

// tick counts answers, asks the next questions and starts the judgements that are due. It does not block.
func (d *Detector) tick(ctx context.Context) {
	now := d.deps.Clock.Now()
	isOn := d.deps.Setting.Bool(settings.RWXVolumeFastFailover)
	d.mu.Lock()
	rounds, silent := d.roundsLocked(now, isOn)
	for _, node := range d.count.tick(now, rounds) {
		if d.down[node] == nil && !d.judging[node] && !d.count.isBarred(node, d.bootOf(node), now) {
			d.judging[node] = true
			epoch := d.count.begin(node, now)
			d.work.Go(func() { d.judge(ctx, node, epoch) })
		}
	}
	back := d.againLocked(ctx, now)
	doubtful := d.doubtfulLocked(now)
	asked := d.asked
	d.mu.Unlock()

	for _, node := range back {
		d.isBack(node)
	}
	for node, b := range doubtful {
		d.tellBar(node, b)
	}
	for _, volume := range silent {
		for _, f := range d.silent {
			f(volume)
		}
	}
	d.deps.Questions.Keep(asked)
	for address := range asked {
		d.deps.Questions.Ask(address, func() { d.hear(address) })
	}
}

// roundsLocked records the answers since the last tick, and which addresses the leader asks from now on. It does not
// judge the leader's own node. silent are the volumes of shares for OnSilence. The caller holds mu.
func (d *Detector) roundsLocked(now time.Time, isOn bool) (rounds map[string][]round, silent []string) {
	rounds, asked := map[string][]round{}, map[string]bool{}
	if isOn {
		for _, s := range d.shares {
			asked[s.address] = true
			if s.node == d.deps.Node {
				continue
			}
			rounds[s.node] = append(rounds[s.node], round{heard: d.heard[s.address], answered: d.fresh[s.address]})
			if f := d.down[s.node]; f != nil && d.fresh[s.address] {
				f.answered = true
			}
		}
	}
	for address := range d.heard {
		if !asked[address] {
			delete(d.heard, address)
		}
	}
	silent = d.silencesLocked(now, asked)
	clear(d.fresh)
	d.asked = asked
	return rounds, silent
}

func (d *Detector) hear(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked[address] {
		d.heard[address], d.fresh[address] = true, true
	}
}

// judge investigates a silent node, and decides.
func (d *Detector) judge(ctx context.Context, node string, epoch int) {
	f, bootID := d.investigate(ctx, node)
	out := verdict(f)
	if ctx.Err() != nil {
		return
	}
	now := d.deps.Clock.Now()
	d.mu.Lock()
	delete(d.judging, node)
	isDown := false
	switch {
	case out.lives || d.hasAnsweredLocked(node):
		d.count.lives(node)
		delete(d.reasons, node)
		defer d.renew(node)
	case out.down && d.count.mayFall(node, bootID, epoch, now):
		isDown = true
		d.down[node] = newDownNode(now, out.witness, bootID)
		d.down[node].next = now.Add(recheckSoon)
		delete(d.reasons, node)
	}
	isNews := out.why != "" && d.reasons[node] != out.why
	if out.why != "" {
		d.reasons[node] = out.why
	}
	d.mu.Unlock()
	log := d.deps.Log.WithField(logfields.Node, node)
	if isNews {
		log.WithField(logfields.Reason, out.why).Warn("Node is silent, but it is not known whether it is down")
	}
	if isDown {
		log.WithField("witness", out.witness).Warn("Node is down: it answers neither questions nor connections")
		d.tell(node)
	}
}

// hasAnsweredLocked reports whether an answer has come since the last tick. The caller holds mu.
func (d *Detector) hasAnsweredLocked(node string) bool {
	for _, s := range d.shares {
		if s.node == node && d.fresh[s.address] {
			return true
		}
	}
	return false
}

// renew makes the next questions to a node's shares use new connections. On a connection that was cut off, TCP waits
// longer and longer before it sends again.
func (d *Detector) renew(node string) {
	d.mu.Lock()
	var addresses []string
	for _, s := range d.shares {
		if s.node == node && !d.fresh[s.address] {
			addresses = append(addresses, s.address)
		}
	}
	d.mu.Unlock()
	for _, address := range addresses {
		d.deps.Questions.Renew(address)
	}
}

func (d *Detector) tell(node string) {
	for _, f := range d.changed {
		f(node)
	}
}

// bootOf is the boot of a node according to Kubernetes; "": not known.
func (d *Detector) bootOf(node string) string {
	n, err := d.deps.KubeNodes.GetRO(node)
	if err != nil {
		return ""
	}
	return n.Status.NodeInfo.BootID
}
