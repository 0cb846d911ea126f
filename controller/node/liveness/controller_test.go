package liveness

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a cluster with the leader a, a node x that serves share vol, and nodes b and c that serve none.
type bench struct {
	t *testing.T
	*testutil.Harness
	*Detector
	store *datastore.Datastore

	mu        sync.Mutex
	answering map[string]bool // addresses that answer questions
	accepting map[string]bool // addresses that answer connections
	said      map[string]error
	reaches   map[string]bool // witnesses that reach x
	testified []string        // witnesses that were asked
	renewed   []string
	told      []string
	alone     bool // the leader may ask no witness
	closed    bool
	kept      map[string]bool // connections
	meanwhile func()          // called while the leader asks a witness
}

const (
	healthOfX, kubeletOfX, managerOfX = "10.1.0.7:9600", "10.0.0.24:10250", "10.1.0.9:9502"
)

func kubeNode(name, boot string) *corev1.Node {
	return build.KubeNode(name, func(n *corev1.Node) {
		n.Status.NodeInfo.BootID = boot
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0." + map[string]string{"a": "1", "b": "2", "c": "3", "x": "24", "y": "25"}[name]}}
	})
}

func daemonPod(node, ip string) *corev1.Pod {
	return build.Pod("longhorn-manager-"+node, node, func(p *corev1.Pod) {
		p.Labels = map[string]string{types.LabelApp: types.AppManager}
		p.Status.PodIP = ip
	})
}

func sharePod(volume, node, ip string) *corev1.Pod {
	return build.Pod(types.ShareManagerPodName(volume), node, func(p *corev1.Pod) {
		p.Labels = types.ShareManagerSelector(volume)
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
	})
}

func threeNodes() []runtime.Object {
	return []runtime.Object{
		build.ReadyNode("a", "1"), build.ReadyNode("b", "2"), build.ReadyNode("c", "3"), build.ReadyNode("x", "4"),
		kubeNode("a", "boot-a"), kubeNode("b", "boot-b"), kubeNode("c", "boot-c"), kubeNode("x", "boot-x"),
		daemonPod("a", "10.1.0.1"), daemonPod("b", "10.1.0.2"), daemonPod("c", "10.1.0.3"), daemonPod("x", "10.1.0.4"),
		sharePod("vol", "x", "10.1.0.7"), sharePod("own", "a", "10.1.0.8"),
		&longhorn.InstanceManager{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.InstanceManagerName("x")},
			Spec:       longhorn.InstanceManagerSpec{NodeID: "x"}, Status: longhorn.InstanceManagerStatus{IP: "10.1.0.9", Port: 9502},
		},
		build.VolumeAttachment("vol", func(a *longhorn.VolumeAttachment) {
			a.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"csi": {ID: "csi", NodeID: "c"}}
		}),
		build.PlacedReplica("r", "vol", "b", "2"),
	}
}

func newBench(t *testing.T, objs ...runtime.Object) *bench {
	h := testutil.New(t, objs...)
	b := &bench{
		t: t, Harness: h, store: h.Datastore(datastore.Options{}), answering: map[string]bool{healthOfX: true}, accepting: map[string]bool{},
		said: map[string]error{}, reaches: map[string]bool{},
	}
	det, err := New(Deps{
		Env: h.Env(), Node: "a", Nodes: b.store.Nodes, KubeNodes: b.store.KubeNodes, Pods: b.store.Pods, Managers: b.store.InstanceManagers,
		Attachments: b.store.VolumeAttachments, Replicas: b.store.Replicas, Leases: b.store.NodeLeases, Setting: b.store.Setting,
		Questions: b, Answers: b.accepts, Testify: b.testify,
	})
	require.NoError(t, err)
	det.OnChange(func(node string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.told = append(b.told, node)
	})
	b.Detector = det
	b.seePods()
	return b
}

// seePods shows the pods to the detector, because the harness's caches send no events.
func (b *bench) seePods() {
	b.CatchUp()
	clear(b.shares)
	for _, node := range []string{"a", "b", "c", "x", "y"} {
		pods, err := b.store.Pods.ByIndex(datastore.IndexNode, node)
		require.NoError(b.t, err)
		for _, pod := range pods {
			b.podHandler().OnAdd(pod, false)
		}
	}
}

func (b *bench) Ask(address string, answered func()) {
	if b.answering[address] {
		answered()
	}
}
func (b *bench) Keep(kept map[string]bool) { b.kept = kept }
func (b *bench) Renew(address string)      { b.renewed = append(b.renewed, address) }
func (b *bench) Close()                    { b.closed = true }
func (b *bench) accepts(_ context.Context, addresses []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(addresses, func(a string) bool { return b.accepting[a] })
}

func (b *bench) testify(ctx context.Context, witness, address, node string) (bool, error) {
	if b.meanwhile != nil {
		b.meanwhile()
	}
	deadline, _ := ctx.Deadline()
	assert.LessOrEqual(b.t, time.Until(deadline), witnessLimit, "a witness that hangs keeps a verdict waiting")
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(b.t, map[string]string{"b": "10.1.0.2", "c": "10.1.0.3", "y": "10.1.0.5"}[witness], address)
	assert.False(b.t, b.alone, "a witness was asked")
	b.testified = append(b.testified, witness)
	return b.reaches[node+" from "+witness], b.said[witness]
}

// ticks advances the clock. Each judgement ends before the next tick.
func (b *bench) ticks(n int) {
	for range n {
		b.Clock.Step(standard.interval)
		b.tick(b.t.Context())
		b.work.Wait()
	}
}

func (b *bench) silence(node string) *longhorn.NodeSilence {
	s, _ := b.Silence(node)
	return s
}

// xDies starts a leader that hears from x, and then no longer.
func (b *bench) xDies() {
	require.NoError(b.t, b.takeOver())
	b.ticks(3)
	b.told = nil
	delete(b.answering, healthOfX)
	b.ticks(1) // the question that was answered before it died is counted
}

func TestANodeThatAnswersNobodyIsDown(t *testing.T) {
	b := newBench(t, threeNodes()...)
	s, isKnown := b.Silence("x")
	assert.Nil(t, s)
	assert.False(t, isKnown, "this leader has not looked yet")
	b.xDies()
	_, isKnown = b.Silence("x")
	assert.True(t, isKnown)
	b.ticks(2)
	assert.Nil(t, b.silence("x"))
	assert.Empty(t, b.testified, "two unanswered questions: nobody is asked")
	b.ticks(1)
	want := &longhorn.NodeSilence{FoundAt: "2030-01-02T03:04:08Z", Witness: "c", BootID: "boot-x"}
	assert.Equal(t, want, b.silence("x"), "the node that mounts the share is the witness")
	assert.ElementsMatch(t, []string{"b", "c"}, b.testified)
	assert.Equal(t, []string{"x"}, b.told)
	b.ExpectWrites() // the detector itself writes nothing

	b.Overwrite(sharePod("vol", "b", "10.1.0.7"))
	b.seePods()
	b.ticks(10)
	assert.Equal(t, want, b.silence("x"), "its shares have moved, and it is still down")
}

func TestWhatKeepsASilentNodeFromBeingCalledDown(t *testing.T) {
	for name, c := range map[string]struct {
		without []string // kinds of objects, by node
		change  func(b *bench)
		down    bool
		witness string
	}{
		"nothing → down":                                                 {change: func(*bench) {}, down: true, witness: "c"},
		"its share accepts → lives":                                      {change: func(b *bench) { b.accepting[healthOfX] = true }},
		"it lives → no witness is asked":                                 {change: func(b *bench) { b.accepting[kubeletOfX], b.alone = true, true }},
		"its kubelet answers → lives":                                    {change: func(b *bench) { b.accepting[kubeletOfX] = true }},
		"its instance manager answers → lives":                           {change: func(b *bench) { b.accepting[managerOfX] = true }},
		"the best witness reaches it → lives":                            {change: func(b *bench) { b.reaches["x from c"] = true }},
		"another witness reaches it → lives":                             {change: func(b *bench) { b.reaches["x from b"] = true }},
		"the best witness does not answer, the next does":                {change: func(b *bench) { b.said["c"] = errors.New("timeout") }, down: true, witness: "b"},
		"the best witness is of an earlier release":                      {change: func(b *bench) { b.said["c"] = ErrEarlierRelease }, down: true, witness: "b"},
		"no witness answers → no verdict":                                {change: func(b *bench) { b.said["b"], b.said["c"] = errors.New("timeout"), errors.New("timeout") }},
		"one does not answer, one is of an earlier release → no verdict": {change: func(b *bench) { b.said["b"], b.said["c"] = errors.New("timeout"), ErrEarlierRelease }},
		"all are of an earlier release → down, alone":                    {change: func(b *bench) { b.said["b"], b.said["c"] = ErrEarlierRelease, ErrEarlierRelease }, down: true},
		"the API server does not answer → no verdict":                    {change: func(b *bench) { b.Fail("get", "nodes", errors.New("no route to host")) }},
		"no other node has a ready daemon → no verdict": {change: func(b *bench) {
			for _, node := range []string{"b", "c"} {
				pod := daemonPod(node, "10.1.0.2")
				pod.Status.Conditions[0].Status = corev1.ConditionFalse
				b.Overwrite(pod)
			}
			b.CatchUp()
		}},
		"its lease was renewed → no verdict": {change: func(b *bench) { b.renewals.see(nodeLease("x", "x", b.Clock.Now())) }},
		"the setting is off → not asked":     {change: func(b *bench) { b.Seed(build.Setting(settings.RWXVolumeFastFailover, "false")); b.CatchUp() }},
		"the leader's loop is late":          {change: func(b *bench) { b.Clock.Step(251 * time.Millisecond) }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			b.xDies()
			b.ticks(2)
			c.change(b)
			b.ticks(1)
			s := b.silence("x")
			require.Equal(t, c.down, s != nil)
			if c.down {
				assert.Equal(t, c.witness, s.Witness)
			} else {
				assert.Empty(t, b.told)
			}
		})
	}
}

// An answer that comes while the node is being judged is a sign of life.
func TestAnAnswerMeanwhileCounts(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.meanwhile = func() { b.hear(healthOfX) }
	b.ticks(3)
	assert.NotEmpty(t, b.testified)
	assert.Nil(t, b.silence("x"))
}

// A judgement that takes long is not started again, and does not count if the loop was late in that time.
func TestANodeIsJudgedOnceAtATime(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(2)
	asked, answer := make(chan struct{}, 99), make(chan struct{})
	b.meanwhile = func() { asked <- struct{}{}; <-answer }
	for range 9 {
		b.Clock.Step(standard.interval)
		b.tick(t.Context())
	}
	<-asked
	<-asked
	b.Clock.Step(time.Second)
	b.tick(t.Context())
	close(answer)
	b.work.Wait()
	assert.Empty(t, asked, "two witnesses were asked, once each")
	assert.Nil(t, b.silence("x"))
}

func TestWitnessesAreAskedFourAtATime(t *testing.T) {
	daemons := []daemon{{"b", "10.1.0.2"}, {"c", "10.1.0.3"}, {"b", "10.1.0.2"}, {"c", "10.1.0.3"}, {"y", "10.1.0.5"}}
	late, old := errors.New("timeout"), ErrEarlierRelease
	for name, c := range map[string]struct {
		b, y error
		want testimony
		asks int
	}{
		"the first answer is enough":                        {nil, late, testimony{agrees: "b"}, 4},
		"none of the first answers → the next":              {late, nil, testimony{agrees: "y"}, 5},
		"all are of an earlier release":                     {old, old, testimony{earlier: true}, 5},
		"the last does not answer → not all":                {old, late, testimony{}, 5},
		"the last alone is of an earlier release → not all": {late, old, testimony{}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.said = map[string]error{"b": c.b, "c": c.b, "y": c.y}
			assert.Equal(t, c.want, b.Detector.testify(t.Context(), daemons, "x"))
			assert.Len(t, b.testified, c.asks)
		})
	}
	assert.Equal(t, testimony{}, newBench(t).Detector.testify(t.Context(), nil, "x"))
}

func TestWhichDaemonIsAsked(t *testing.T) {
	leaving := daemonPod("b", "10.1.0.12")
	leaving.Name, leaving.DeletionTimestamp, leaving.Finalizers = "longhorn-manager-a", &metav1.Time{Time: testutil.Now}, []string{"x"}
	other := build.Pod("csi-plugin", "b", func(p *corev1.Pod) { p.Status.PodIP = "10.1.0.22" })
	b := newBench(t, leaving, other)
	assert.Empty(t, b.daemonOf("b"))
	b.Seed(daemonPod("b", "10.1.0.2"))
	b.CatchUp()
	assert.Equal(t, "10.1.0.2", b.daemonOf("b"))
}

func TestTwoNodesHaveNoWitnessAndOneNodeHasNoVerdict(t *testing.T) {
	two := []runtime.Object{
		build.ReadyNode("a", "1"), build.ReadyNode("x", "4"), kubeNode("a", "boot-a"), kubeNode("x", "boot-x"),
		daemonPod("a", "10.1.0.1"), daemonPod("x", "10.1.0.4"), sharePod("vol", "x", "10.1.0.7"),
	}
	b := newBench(t, two...)
	b.xDies()
	b.ticks(3)
	require.NotNil(t, b.silence("x"))
	assert.Empty(t, b.silence("x").Witness)

	b = newBench(t, two...)
	b.xDies()
	b.Fail("get", "nodes", errors.New("no route to host"))
	b.ticks(3)
	assert.Nil(t, b.silence("x"))
	b.ticks(2)
	assert.NotNil(t, b.silence("x"), "it is judged again after a second")

	gone := build.ReadyNode("a", "1", func(n *longhorn.Node) {
		n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeGone}, testutil.Now)
	})
	b = newBench(t, append([]runtime.Object{gone}, two[1:]...)...)
	b.xDies()
	b.ticks(5)
	assert.Nil(t, b.silence("x"))
}

func TestANodeThatHasNeverAnsweredIsNotJudged(t *testing.T) {
	b := newBench(t, threeNodes()...)
	delete(b.answering, healthOfX)
	b.xDies()
	b.ticks(20)
	assert.Nil(t, b.silence("x"))
	assert.Empty(t, b.testified)
}

// A sign of life starts the count again, on a new connection: on a connection that was cut off, TCP waits longer and
// longer before it sends again.
func TestANodeThatLivesIsAskedOnANewConnection(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.accepting[kubeletOfX] = true
	b.ticks(3)
	assert.Equal(t, []string{healthOfX}, b.renewed)
	delete(b.accepting, kubeletOfX)
	b.ticks(3)
	assert.Nil(t, b.silence("x"))
	b.ticks(1)
	assert.NotNil(t, b.silence("x"))
}

func TestTwoSilentNodesWaitForEightSeconds(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.ReadyNode("y", "5"), kubeNode("y", "boot-y"), daemonPod("y", "10.1.0.5"), sharePod("other", "y", "10.1.0.17"))...)
	b.answering["10.1.0.17:9600"] = true
	require.NoError(t, b.takeOver())
	b.ticks(3)
	clear(b.answering)
	b.said["y"] = errors.New("timeout")
	b.ticks(1 + 15)
	assert.Nil(t, b.silence("x"))
	assert.Nil(t, b.silence("y"))
	b.ticks(1)
	assert.NotNil(t, b.silence("x"))
	assert.NotNil(t, b.silence("y"))
	assert.Equal(t, "b", b.silence("y").Witness, "not x, which is silent itself")
}

// The leader asks a node that is down again at intervals, but not while a question is still open.
func TestANodeThatIsDownIsAskedOnceAtATime(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	require.NotNil(t, b.silence("x"))
	asked, answer := make(chan struct{}, 99), make(chan struct{})
	b.meanwhile = func() { asked <- struct{}{}; <-answer }
	for range 4 * int(recheckSoon/standard.interval) {
		b.Clock.Step(standard.interval)
		b.tick(t.Context())
	}
	<-asked
	<-asked
	close(answer)
	b.work.Wait()
	assert.Empty(t, asked, "two witnesses were asked, once each")
	require.NotNil(t, b.silence("x"))
	b.ticks(int(recheckSoon / standard.interval))
	assert.Len(t, asked, 2, "again when the time has come")
}

// Witnesses that hang must not delay a verdict for long, even if there are many.
func TestAllWitnessesTogetherHaveAFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		d := &Detector{deps: Deps{Testify: func(ctx context.Context, _, _, _ string) (bool, error) {
			asked.Add(1)
			<-ctx.Done()
			return false, ctx.Err()
		}}}
		d.deps.Log = logrus.NewEntry(logrus.New())
		d.deps.Log.Logger.SetOutput(io.Discard)
		began := time.Now()
		assert.Equal(t, testimony{}, d.testify(t.Context(), make([]daemon, 40), "x"))
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.LessOrEqual(t, asked.Load(), int64(3*asksAtOnce), "nobody is asked when the time is over")
	})
}

// A share of node y hangs, while y's kubelet accepts connections. Node x dies.
func TestAShareThatHangsDoesNotDelayTheVerdictOnAnotherNode(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.ReadyNode("y", "5"), kubeNode("y", "boot-y"), daemonPod("y", "10.1.0.5"), sharePod("other", "y", "10.1.0.17"))...)
	b.answering["10.1.0.17:9600"] = true
	require.NoError(t, b.takeOver())
	b.ticks(3)
	delete(b.answering, "10.1.0.17:9600")
	b.accepting["10.0.0.25:10250"] = true
	b.ticks(20)
	require.Nil(t, b.silence("y"))
	clear(b.answering)
	b.ticks(1)
	for range 9 { // 4.5 s
		b.ticks(1)
	}
	assert.NotNil(t, b.silence("x"))
	assert.Nil(t, b.silence("y"))
}

func TestANodeThatIsDownIsAskedAgain(t *testing.T) {
	for name, back := range map[string]func(b *bench){
		"its share answers a question": func(b *bench) { b.answering[healthOfX] = true },
		"its kubelet refuses":          func(b *bench) { b.accepting[kubeletOfX] = true },
		"a witness reaches it":         func(b *bench) { b.reaches["x from b"] = true },
		"its older daemon renews":      func(b *bench) { b.renewals.see(nodeLease("x", "x", b.Clock.Now())) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			b.xDies()
			b.ticks(3)
			require.NotNil(t, b.silence("x"))
			b.told = nil
			back(b)
			b.ticks(4)
			assert.Nil(t, b.silence("x"))
			assert.Equal(t, []string{"x"}, b.told)
		})
	}
}

func TestANodeThatIsDownForLongIsAskedSeldom(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	b.testified = nil
	b.ticks(20)
	assert.Len(t, b.testified, 2*5, "each 2 s, two witnesses")
	b.ticks(100)
	b.testified = nil
	b.ticks(60)
	assert.Len(t, b.testified, 2*2, "each 15 s")
}

func TestAVerdictThatProvedWrongIsToldAndBarsTheNext(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	require.NotNil(t, b.silence("x"))
	b.answering[healthOfX] = true
	b.ticks(2)
	require.Nil(t, b.silence("x"))
	b.ExpectEvents()
	b.ticks(60)
	b.ExpectEvents("Warning NodeWronglyDown x: node x was reported as down, but it was running; check its network. For 10m0s, its shares move only when Kubernetes says that the node is not ready")

	delete(b.answering, healthOfX)
	b.testified = nil
	b.ticks(20)
	assert.Nil(t, b.silence("x"))
	assert.Empty(t, b.testified, "a barred node is not judged")
	b.ticks(20 * 60)
	assert.NotNil(t, b.silence("x"))
}

func TestANodeThatHasBootedWasCalledDownRightly(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	b.accepting[kubeletOfX] = true // its kernel refuses, its kubelet has not started
	b.ticks(4)
	require.Nil(t, b.silence("x"))
	b.Overwrite(kubeNode("x", "boot-x2"))
	b.CatchUp()
	b.accepting, b.answering = map[string]bool{}, map[string]bool{healthOfX: true}
	b.ticks(70)
	b.ExpectEvents()
	delete(b.answering, healthOfX)
	b.ticks(4)
	assert.NotNil(t, b.silence("x"), "nothing bars the new boot")
}

func TestANewLeaderTakesOver(t *testing.T) {
	silence := &longhorn.NodeSilence{FoundAt: "2030-01-02T03:04:05Z", Witness: "b", BootID: "boot-x"}
	objs := threeNodes()
	objs[3] = build.ReadyNode("x", "4", func(n *longhorn.Node) { n.Status.Silence = silence })
	b := newBench(t, objs...)
	clear(b.answering)
	require.NoError(t, b.takeOver())
	assert.Equal(t, silence, b.silence("x"))
	assert.Contains(t, b.told, "x")
	assert.Contains(t, b.told, "b")
	b.ticks(3)
	assert.Equal(t, silence, b.silence("x"), "it does not answer this leader either")
	b.accepting[kubeletOfX] = true
	b.ticks(4)
	assert.Nil(t, b.silence("x"))

	objs[3] = build.ReadyNode("x", "4", func(n *longhorn.Node) {
		n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonNodeNotAnswering}, testutil.Now)
	})
	b = newBench(t, objs...)
	clear(b.answering)
	require.NoError(t, b.takeOver())
	require.NotNil(t, b.silence("x"), "an earlier release's leader called it down")
	assert.Empty(t, b.silence("x").Witness)
}

func TestARemovedNodeIsForgotten(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	require.NotNil(t, b.silence("x"))
	require.NoError(t, b.Kube.CoreV1().Nodes().Delete(t.Context(), "x", metav1.DeleteOptions{}))
	b.CatchUp()
	b.ticks(4)
	assert.Nil(t, b.silence("x"))
}

func TestWhichPodsAreAsked(t *testing.T) {
	b := newBench(t, threeNodes()...)
	asked := func() (addresses []string) {
		b.ticks(1)
		for a := range b.asked {
			addresses = append(addresses, a)
		}
		slices.Sort(addresses)
		assert.Equal(t, b.asked, b.kept, "other connections are closed")
		return addresses
	}
	const own = "10.1.0.8:9600"
	assert.Equal(t, []string{healthOfX, own}, asked())
	assert.NotContains(t, b.count.nodes, "a", "the leader's own node is not judged")
	on := b.podHandler()
	on.OnAdd(sharePod("second", "b", ""), false)
	on.OnAdd(build.Pod("another", "b"), false)
	assert.Equal(t, []string{healthOfX, own}, asked())
	on.OnUpdate(nil, sharePod("second", "b", "10.1.0.20"))
	assert.Equal(t, []string{"10.1.0.20:9600", healthOfX, own}, asked())
	ended := sharePod("second", "b", "10.1.0.20")
	ended.Status.Phase = corev1.PodFailed
	on.OnUpdate(nil, ended)
	assert.Equal(t, []string{healthOfX, own}, asked())
	on.OnDelete(sharePod("vol", "x", "10.1.0.7"))
	assert.Equal(t, []string{own}, asked())
	assert.Empty(t, b.heard, "what is not asked any more is forgotten")
	b.hear(healthOfX)
	assert.Empty(t, b.heard, "a late answer")
}

// Run asks at once and at each tick, and stops with its context.
func TestRun(t *testing.T) {
	b := newBench(t, threeNodes()...)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- b.Run(ctx) }()
	require.Eventually(t, func() bool {
		b.Detector.mu.Lock()
		defer b.Detector.mu.Unlock()
		return b.fresh[healthOfX]
	}, time.Minute, time.Millisecond)
	require.Eventually(t, b.Clock.HasWaiters, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-over)
	assert.True(t, b.closed)
}

func TestAConnectionIsTriedTwice(t *testing.T) {
	tries := 0
	once := func(ctx context.Context, _ []string) bool {
		deadline, limited := ctx.Deadline()
		assert.True(t, limited)
		assert.NotZero(t, deadline)
		tries++
		return tries == 2
	}
	assert.True(t, Answers(t.Context(), []string{"x"}, once))
	assert.Equal(t, 2, tries)
	tries = 2
	assert.False(t, Answers(t.Context(), []string{"x"}, once))
	assert.Equal(t, 4, tries)
}

// The kubelet has reported the new boot before any other part of the node answers.
func TestANodeThatAnswersFirstInItsNextBootIsNotBarred(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.xDies()
	b.ticks(3)
	require.NotNil(t, b.silence("x"))
	b.Overwrite(kubeNode("x", "boot-x2"))
	b.CatchUp()
	b.answering[healthOfX] = true
	b.ticks(70)
	assert.Nil(t, b.silence("x"))
	b.ExpectEvents()
	delete(b.answering, healthOfX)
	b.ticks(4)
	assert.NotNil(t, b.silence("x"))
}
