package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
)

// A daemon may lead more than once: what a term leaves behind would keep the next one from starting.
func TestADaemonLeadsTwice(t *testing.T) {
	registry, metrics, err := newRegistry()
	require.NoError(t, err)
	own := &clients{kube: fake.NewClientset(), longhorn: longhornfake.NewSimpleClientset()}
	never := func() bool { return false }
	d := &daemon{
		node: "node-1", namespace: "storage", clients: own, own: own, registry: registry, leads: newLeadership("node-1", "10.0.0.1"),
		env: queue.Env{Clock: clock.RealClock{}, Recorder: record.NewFakeRecorder(100), Log: quiet(), Metrics: metrics},
	}
	d.rest = newRESTAPI(d.leads, registry, func() error { return errors.New("not asked") }, restAccess{
		trusted: never, clock: d.env.Clock, identity: trust.NewIdentity(own.kube, "storage", never, d.env.Clock),
	}, nil, nil, d.env.Log)
	defer d.rest.peers.Close()
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
