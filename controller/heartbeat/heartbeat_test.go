package heartbeat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const writes = "leases/node-n"

func begin(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Heartbeat) {
	h := testutil.New(t, append(objs, build.Node("n"))...)
	d := h.Datastore(datastore.Options{Node: "n"})
	beat, err := New(Deps{Env: h.Env(), Node: "n", Pods: d.Pods, Leases: d.Leases, Nodes: d.Nodes, Settings: d.Settings, Setting: d.Setting})
	require.NoError(t, err)
	h.EndWithTest(beat.Run)
	return h, beat
}

func sync(t *testing.T, beat *Heartbeat, want time.Duration) {
	t.Helper()
	result, err := beat.sync(t.Context(), "n")
	require.NoError(t, err)
	assert.Equal(t, want, result.RequeueAfter)
}

func sharePod(node string, with ...func(*corev1.Pod)) *corev1.Pod {
	pod := build.Pod(types.ShareManagerPodName("vol"), node, with...)
	pod.Labels = types.ShareManagerSelector("vol")
	return pod
}

func TestALeaseIsKeptWhileANodeServesShares(t *testing.T) {
	h, beat := begin(t, build.Pod("longhorn-manager-x", "n"))
	sync(t, beat, 0)
	h.ExpectWrites() // no share, no lease

	h.Seed(sharePod("n"))
	h.CatchUp()
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("create " + writes)
	made, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.Equal(t, "n", types.NodeOfLease(made))
	assert.True(t, types.IsNodeLeaseHeld(made))
	assert.Equal(t, "Node", made.OwnerReferences[0].Kind, "what removes a Node removes its lease")
	assert.Nil(t, made.OwnerReferences[0].BlockOwnerDeletion)

	h.Clock.Step(types.NodeLeaseRenewal)
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("update " + writes)
	renewed, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.Equal(t, types.NodeLeaseRenewal, renewed.Spec.RenewTime.Sub(made.Spec.RenewTime.Time))

	h.Overwrite(sharePod("n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	h.CatchUp()
	sync(t, beat, 0)
	h.ExpectWrites("update " + writes)
	given, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(given))
	sync(t, beat, 0)
	h.ExpectWrites()
}

// The node was dead, its shares are elsewhere: nobody may wait for its lease any more.
func TestADaemonThatComesBackGivesAnOldLeaseBack(t *testing.T) {
	h, first := begin(t, sharePod("n"))
	sync(t, first, types.NodeLeaseRenewal)
	lease, err := first.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	h2, second := begin(t, lease)
	sync(t, second, 0)
	h2.ExpectWrites("update " + writes)
	lease, err = second.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(lease))
	h.ExpectWrites("create " + writes)
}

// The patience of a queue would be taken for the node's death.
func TestWhatFailsIsTriedAgainAtTheNextRenewal(t *testing.T) {
	h, beat := begin(t, sharePod("n"))
	sync(t, beat, types.NodeLeaseRenewal)
	failures := make([]error, 6)
	for i := range failures {
		failures[i] = errors.New("the API server is away")
	}
	h.Fail("*", "leases", failures...)
	for range failures {
		sync(t, beat, types.NodeLeaseRenewal)
	}
	h.Writes()
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("update " + writes)
}

// Someone edited the lease: what this process remembers of it can never be written again.
func TestALeaseThatSomeoneChangedIsReadAnew(t *testing.T) {
	h, beat := begin(t, sharePod("n"))
	sync(t, beat, types.NodeLeaseRenewal)
	lease, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	edited := lease.DeepCopy()
	edited.Labels["edited"] = "yes"
	h.Overwrite(edited)
	h.Clock.Step(types.NodeLeaseRenewal)
	sync(t, beat, types.NodeLeaseRenewal) // a conflict
	sync(t, beat, types.NodeLeaseRenewal)
	renewed, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.Equal(t, types.NodeLeaseRenewal, renewed.Spec.RenewTime.Sub(lease.Spec.RenewTime.Time))
	assert.Equal(t, "yes", renewed.Labels["edited"])
}

func TestARenewalReadsNothing(t *testing.T) {
	h, beat := begin(t, sharePod("n"))
	sync(t, beat, types.NodeLeaseRenewal)
	h.Kube.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		t.Error("the lease is read")
		return false, nil, nil
	})
	for range 2 {
		sync(t, beat, types.NodeLeaseRenewal)
	}
}

func TestALeaseWaitsForItsNode(t *testing.T) {
	h := testutil.New(t, sharePod("n"))
	d := h.Datastore(datastore.Options{Node: "n"})
	beat, err := New(Deps{Env: h.Env(), Node: "n", Pods: d.Pods, Leases: d.Leases, Nodes: d.Nodes, Settings: d.Settings, Setting: d.Setting})
	require.NoError(t, err)
	h.EndWithTest(beat.Run)
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites()
}

// A lease that stays held, and is renewed no more, is that of a dead node.
func TestALeaseThatIsNotGivenBackIsTriedAgain(t *testing.T) {
	h, beat := begin(t, sharePod("n"))
	sync(t, beat, types.NodeLeaseRenewal)
	h.Overwrite(sharePod("n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	h.CatchUp()
	h.Fail("update", "leases", errors.New("the API server is away"))
	sync(t, beat, types.NodeLeaseRenewal)
	sync(t, beat, 0)
	given, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(given))
}

// The renewals come each 2 s, however long a write takes.
func TestASlowWriteDoesNotPutTheNextOneOff(t *testing.T) {
	_, beat := begin(t, sharePod("n"))
	beat.deps.Leases = slowLeases{beat.deps.Leases, func() { beat.deps.Clock.(*testclock.FakeClock).Step(1500 * time.Millisecond) }}
	sync(t, beat, types.NodeLeaseRenewal-1500*time.Millisecond)
	beat.deps.Leases = slowLeases{beat.deps.Leases, func() { beat.deps.Clock.(*testclock.FakeClock).Step(time.Minute) }}
	sync(t, beat, time.Millisecond)
}

// slowLeases takes its time for each write.
type slowLeases struct {
	LeaseStore
	wait func()
}

func (s slowLeases) Create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.wait()
	return s.LeaseStore.Create(ctx, l)
}

func (s slowLeases) Update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.wait()
	return s.LeaseStore.Update(ctx, l)
}

func TestWithoutFastFailoverNoLeaseIsKept(t *testing.T) {
	h, beat := begin(t, sharePod("n"), build.Setting(types.SettingRWXVolumeFastFailover, "false"))
	sync(t, beat, 0)
	h.ExpectWrites()

	h.Overwrite(build.Setting(types.SettingRWXVolumeFastFailover, "true"))
	h.CatchUp()
	sync(t, beat, types.NodeLeaseRenewal)
	h.ExpectWrites("create " + writes)

	h.Overwrite(build.Setting(types.SettingRWXVolumeFastFailover, "false"))
	h.CatchUp()
	sync(t, beat, 0)
	h.ExpectWrites("update " + writes)
	lease, err := beat.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	assert.False(t, types.IsNodeLeaseHeld(lease), "the leader would call the node down")
}

// handled hands out the handler that is registered with it.
type handled struct {
	PodStore
	handler cache.ResourceEventHandler
}

func (w *handled) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	w.handler = h
	return nil, nil
}

// told says when the lease is read, and when it was written.
type told struct {
	LeaseStore
	read    chan struct{}
	written chan *coordinationv1.Lease
}

func (w *told) Live(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	w.read <- struct{}{}
	return w.LeaseStore.Live(ctx, name)
}

func (w *told) Create(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l, err := w.LeaseStore.Create(ctx, l)
	w.written <- l
	return l, err
}

func (w *told) Update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l, err := w.LeaseStore.Update(ctx, l)
	w.written <- l
	return l, err
}

// run runs a heartbeat until the test ends, and returns what wakes it and what it does.
func run(t *testing.T, objs ...runtime.Object) (h *testutil.Harness, pods, settings cache.ResourceEventHandler, leases *told) {
	h = testutil.New(t, append(objs, build.Node("n"))...)
	d := h.Datastore(datastore.Options{Node: "n"})
	leases = &told{LeaseStore: d.Leases, read: make(chan struct{}, 9), written: make(chan *coordinationv1.Lease, 9)}
	p, s := &handled{PodStore: d.Pods}, &handled{}
	beat, err := New(Deps{Env: h.Env(), Node: "n", Pods: p, Leases: leases, Nodes: d.Nodes, Settings: s, Setting: d.Setting})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- beat.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-over)
	})
	return h, p.handler, s.handler, leases
}

func await[T any](t *testing.T, c <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
	return got
}

// No event tells of a share that left while no daemon was there.
func TestTheStartGivesAnOldLeaseBack(t *testing.T) {
	_, before := begin(t, sharePod("n"))
	sync(t, before, types.NodeLeaseRenewal)
	lease, err := before.deps.Leases.Live(t.Context(), "node-n")
	require.NoError(t, err)
	for _, objs := range [][]runtime.Object{
		{lease},
		{lease, sharePod("n"), build.Setting(types.SettingRWXVolumeFastFailover, "false")},
	} {
		_, _, _, leases := run(t, objs...)
		assert.False(t, types.IsNodeLeaseHeld(await(t, leases.written, "the lease is not given back")))
	}
}

func TestAPodOfAShareWakesTheHeartbeat(t *testing.T) {
	h, pods, _, leases := run(t)
	await(t, leases.read, "the lease is not read at the start")
	pod := sharePod("n")
	h.Seed(pod)
	h.CatchUp()
	pods.OnAdd(build.Pod("another", "n"), false)
	pods.OnAdd(pod, false)
	assert.True(t, types.IsNodeLeaseHeld(await(t, leases.written, "no lease is made")))
	assert.Len(t, leases.read, 1, "a pod that serves no share woke it")
}

func TestTheSettingWakesTheHeartbeat(t *testing.T) {
	off, on := build.Setting(types.SettingRWXVolumeFastFailover, "false"), build.Setting(types.SettingRWXVolumeFastFailover, "true")
	h, _, settings, leases := run(t, sharePod("n"), off)
	await(t, leases.read, "the lease is not read at the start")
	h.Overwrite(on)
	h.CatchUp()
	other := build.Setting(types.SettingLogLevel, "Info")
	settings.OnUpdate(other, build.Setting(types.SettingLogLevel, "Debug"))
	settings.OnUpdate(off, on)
	assert.True(t, types.IsNodeLeaseHeld(await(t, leases.written, "no lease is made")))

	h.Overwrite(off)
	h.CatchUp()
	settings.OnUpdate(on, off)
	assert.False(t, types.IsNodeLeaseHeld(await(t, leases.written, "the lease is not given back")))
}
