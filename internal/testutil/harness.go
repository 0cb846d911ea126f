package testutil

import (
	"context"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Now is the initial time of every Harness's clock.
var Now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// Harness is the cluster of one test.
type Harness struct {
	T        testing.TB
	Clock    *testclock.FakeClock
	Kube     *kubefake.Clientset
	Longhorn *longhornfake.Clientset
	Recorder *Recorder
	// Log discards its output.
	Log *logrus.Entry

	server     *server
	datastores []*datastore.Datastore
}

// New returns a cluster whose API server holds objs. The builders of namespaced objects set types.Namespace.
func New(t testing.TB, objs ...runtime.Object) *Harness {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(kubescheme.AddToScheme(scheme))
	utilruntime.Must(longhorn.AddToScheme(scheme))
	clock := testclock.NewFakeClock(Now)
	s := &server{
		scheme:   scheme,
		tracker:  clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()),
		clock:    clock,
		version:  100,
		failures: map[string][]error{},
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	h := &Harness{
		T: t, Clock: clock, Recorder: &Recorder{}, Log: logrus.NewEntry(log), server: s,
		Kube: &kubefake.Clientset{}, Longhorn: &longhornfake.Clientset{},
	}
	h.Kube.AddReactor("*", "*", s.react)
	h.Kube.AddWatchReactor("*", s.watch)
	h.Longhorn.AddReactor("*", "*", s.react)
	h.Longhorn.AddWatchReactor("*", s.watch)
	h.Seed(objs...)
	return h
}

// Env returns the environment that a controller under test gets from its process.
func (h *Harness) Env() queue.Env {
	return queue.Env{Clock: h.Clock, Recorder: h.Recorder, Log: h.Log}
}

// Seed puts objects into the API server without recording a write. The caches do not show them yet.
func (h *Harness) Seed(objs ...runtime.Object) {
	h.T.Helper()
	for _, obj := range objs {
		require.NoError(h.T, h.server.seed(obj), "seed %T %s", obj, objectName(obj))
	}
}

// Overwrite makes objs replace the objects of the same names in the API server, as if another client had written them.
// It records no write, and the caches do not show the change yet.
func (h *Harness) Overwrite(objs ...runtime.Object) {
	h.T.Helper()
	for _, obj := range objs {
		require.NoError(h.T, h.server.overwrite(obj), "overwrite %T %s", obj, objectName(obj))
	}
}

// Datastore returns a datastore of this cluster. Its caches show the current content. It sets the clients and the
// namespace. The datastore must not be started: its caches change only in CatchUp.
func (h *Harness) Datastore(o datastore.Options) *datastore.Datastore {
	h.T.Helper()
	o.Kube, o.Longhorn = h.Kube, h.Longhorn
	if o.Namespace == "" {
		o.Namespace = types.Namespace
	}
	d := datastore.New(o)
	h.datastores = append(h.datastores, d)
	h.catchUp(d)
	return d
}

// CatchUp makes all caches show the content of the API server.
func (h *Harness) CatchUp() {
	h.T.Helper()
	for _, d := range h.datastores {
		h.catchUp(d)
	}
}

func (h *Harness) catchUp(d *datastore.Datastore) {
	h.T.Helper()
	refill(h, d.Volumes)
	refill(h, d.VolumeAttachments)
	refill(h, d.Engines)
	refill(h, d.Replicas)
	refill(h, d.Nodes)
	refill(h, d.Settings)
	refill(h, d.InstanceManagers)
	refill(h, d.Pods)
	refill(h, d.KubeNodes)
	refill(h, d.Budgets)
	refill(h, d.DefaultSettings)
	refill(h, d.StorageClassConfig)
	refill(h, d.ShareClients)
	refill(h, d.StorageClasses)
	refill(h, d.ShareManagers)
	refill(h, d.Snapshots)
	refill(h, d.Services)
	refill(h, d.EndpointSlices)
}

func refill[T datastore.Object](h *Harness, s *datastore.Store[T]) {
	h.T.Helper()
	if !s.IsWatched() {
		return
	}
	objs, err := s.ListLive(h.T.Context(), metav1.ListOptions{})
	require.NoError(h.T, err, "list for the cache")
	h.server.mu.Lock()
	version := strconv.FormatInt(h.server.version, 10)
	h.server.mu.Unlock()
	require.NoError(h.T, s.Replace(objs, version), "fill the cache")
}

// Fail makes the next requests with that verb and resource fail with these errors, one each; later requests succeed
// again. Resources are plural ("nodes"); a status update is an update, and so is a patch.
func (h *Harness) Fail(verb, resource string, errs ...error) {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	h.server.failures[verb+" "+resource] = append(h.server.failures[verb+" "+resource], errs...)
}

// Writes returns the writes since the last call, in order, including refused writes: "create pods/a", "update
// nodes/b/status", "delete replicas/c".
func (h *Harness) Writes() []string {
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	writes := h.server.writes
	h.server.writes = nil
	return writes
}

// ExpectWrites fails the test unless exactly these writes happened, in this order, since the last call of Writes or
// ExpectWrites.
func (h *Harness) ExpectWrites(want ...string) {
	h.T.Helper()
	expectLines(h.T, want, h.Writes(), "writes")
}

// ExpectEvents is like ExpectWrites, for Events: "Warning Ready node-1: message".
func (h *Harness) ExpectEvents(want ...string) {
	h.T.Helper()
	expectLines(h.T, want, h.Recorder.Take(), "events")
}

// expectLines compares lines in order; nil and empty are the same.
func expectLines(t testing.TB, want, got []string, what string) {
	t.Helper()
	if len(want) == 0 {
		assert.Empty(t, got, what)
		return
	}
	assert.Equal(t, want, got, what)
}

// EndWithTest makes a controller that the test never runs release the content of its queue. It calls run at the end of
// the test, with a context that has ended.
func (h *Harness) EndWithTest(run func(context.Context) error) {
	h.T.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.NoError(h.T, run(ctx), "end the controller")
	})
}
