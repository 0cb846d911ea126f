package app

import (
	"context"
	"errors"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
)

// newTermDaemon returns a daemon that can lead.
func newTermDaemon(t *testing.T, kube kubernetes.Interface) *daemon {
	t.Helper()
	registry, metrics, err := newRegistry()
	require.NoError(t, err)
	own := &clients{kube: kube, longhorn: longhornfake.NewSimpleClientset()}
	never := func() bool { return false }
	d := &daemon{
		node: "node-1", namespace: "storage", clients: own, own: own, registry: registry, leads: newLeadership("node-1", "10.0.0.1"),
		env: queue.Env{Clock: clock.RealClock{}, Recorder: record.NewFakeRecorder(100), Log: quiet(), Metrics: metrics},
	}
	d.rest = newRESTAPI(d.leads, registry, func() error { return errors.New("not asked") }, restAccess{
		trusted: never, clock: d.env.Clock, identity: trust.NewIdentity(own.kube, "storage", never, d.env.Clock),
	}, nil, nil, d.env.Log)
	t.Cleanup(d.rest.peers.Close)
	return d
}

// A daemon may lead more than once: remains of one term would prevent the next term from starting.
func TestADaemonLeadsTwice(t *testing.T) {
	d := newTermDaemon(t, fake.NewClientset())
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- d.leadCluster(ctx) }()
		require.Eventually(t, func() bool { return d.rest.server.Load() != nil }, time.Minute, 10*time.Millisecond, "the cluster's REST API is served")
		cancel()
		require.NoError(t, <-over)
		require.Nil(t, d.rest.server.Load())
	}
}

// TestATermWithUnfilledCachesReleasesItsResources: while the API server is unstable, a daemon may win and lose the
// lease hundreds of times.
func TestATermWithUnfilledCachesReleasesItsResources(t *testing.T) {
	kube := fake.NewClientset()
	kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	d := newTermDaemon(t, kube)
	term := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.Error(t, d.leadCluster(ctx))
		require.Nil(t, d.rest.server.Load())
	}
	term() // creates what is created only once
	const ofTest = 5
	before := goruntime.NumGoroutine()
	for range 4 {
		term()
	}
	assert.Eventually(t, func() bool { return goruntime.NumGoroutine() <= before+ofTest }, 10*time.Second, 50*time.Millisecond, "goroutines")
}
