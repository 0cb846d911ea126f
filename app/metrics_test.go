package app

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestMetricsAreDocumented: a leading daemon registers exactly the metrics in docs/METRICS.md. The leader's metrics are
// removed when it no longer leads, and can be added again.
func TestMetricsAreDocumented(t *testing.T) {
	registry, queues, err := newRegistry()
	require.NoError(t, err)
	kube := kubefake.NewClientset()
	store := datastore.New(datastore.Options{Kube: kube, Longhorn: fake.NewSimpleClientset(), Namespace: types.Namespace})
	d := &daemon{
		node: "node-1", leads: newLeadership("node-1", "10.0.0.1"), registry: registry,
		env: queue.Env{Clock: clock.RealClock{}, Log: logrus.NewEntry(logrus.New()), Metrics: queues},
	}
	require.NoError(t, d.registerNodeMetrics(store))
	ofNode := describedBy(registry)
	for range 2 {
		hide := d.registerClusterMetrics(store, datastore.NewWorkloads(kube))
		assert.Equal(t, documented(t), describedBy(registry))
		_, err := registry.Gather()
		require.NoError(t, err)
		hide()
		assert.Equal(t, ofNode, describedBy(registry))
	}
	assert.NotContains(t, ofNode, "longhorn_volume_state")
}

// describedBy returns the names of Longhorn's registered metrics.
func describedBy(registry *prometheus.Registry) []string {
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	named := regexp.MustCompile(`fqName: "(longhorn_[a-z_]+)"`)
	var names []string
	for desc := range descs {
		if match := named.FindStringSubmatch(desc.String()); match != nil {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return names
}

// documented returns the names in the first columns of the tables.
func documented(t *testing.T) []string {
	text, err := os.ReadFile("../docs/METRICS.md")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile("(?m)^\\| `(longhorn_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return names
}
