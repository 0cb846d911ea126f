package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// cache is a Lister and a Getter of the objects given.
type cache[T interface{ GetName() string }] []T

func (c cache[T]) List(labels.Selector) ([]T, error) { return c, nil }

func (c cache[T]) GetRO(name string) (T, error) {
	for _, obj := range c {
		if obj.GetName() == name {
			return obj, nil
		}
	}
	var none T
	return none, apierrors.NewNotFound(schema.GroupResource{}, name)
}

// broken is a Lister that cannot read.
type broken[T any] struct{}

func (broken[T]) List(labels.Selector) ([]T, error) { return nil, os.ErrInvalid }

// claims are the bound persistent volumes by volume.
type claims map[string][]*corev1.PersistentVolume

func (c claims) Claims(volume string) ([]*corev1.PersistentVolume, error) { return c[volume], nil }

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// emptyNode sees no objects, on a machine whose /proc is empty.
func emptyNode(t testing.TB) NodeDeps {
	return NodeDeps{
		Node: "node-1", Manager: "manager-1", Nodes: cache[*longhorn.Node]{}, KubeNodes: cache[*corev1.Node]{},
		Replicas: cache[*longhorn.Replica]{}, Engines: cache[*longhorn.Engine]{}, InstanceManagers: cache[*longhorn.InstanceManager]{},
		Pods: cache[*corev1.Pod]{}, Leads: func() bool { return false }, Proc: t.TempDir(), HostMounts: "/nowhere", HostCgroups: t.TempDir(),
		DeviceAt: func(string) (Device, bool) { return Device{}, false }, Clock: clocktesting.NewFakeClock(begin), Log: quiet(),
	}
}

func emptyCluster() ClusterDeps {
	return ClusterDeps{
		Volumes: cache[*longhorn.Volume]{}, Engines: cache[*longhorn.Engine]{}, Nodes: cache[*longhorn.Node]{},
		Settings: cache[*longhorn.Setting]{}, Shares: cache[*longhorn.ShareManager]{}, Claims: claims{}, Log: quiet(),
	}
}

// scrape returns what Prometheus would read from a Collector: one line for each series, sorted.
func scrape(t testing.TB, c prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// beginningWith returns the lines of families whose names have a prefix.
func beginningWith(lines []string, start string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, start) })
}

// name returns the family of a line.
func name(line string) string {
	end := strings.IndexAny(line, "{ ")
	return line[:end]
}

// writeProc writes the files of /proc that the package reads. cpu are the numbers after "cpu" in /proc/stat. utime
// and stime are the times of this process. All are in hundredths of a second.
func writeProc(t testing.TB, root, cpu, utime, stime string) {
	t.Helper()
	dir := filepath.Join(root, "4711")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if _, err := os.Lstat(filepath.Join(root, "self")); os.IsNotExist(err) {
		require.NoError(t, os.Symlink("4711", filepath.Join(root, "self")))
	}
	for path, text := range map[string]string{
		"stat":    "cpu  " + cpu + "\ncpu0 " + cpu + "\nbtime 1700000000\n",
		"meminfo": "MemTotal:       1000 kB\nMemFree:        100 kB\nMemAvailable:   400 kB\n",
		"4711/stat": "4711 (longhorn) S 1 1 1 0 -1 4194560 0 0 0 0 " + utime + " " + stime +
			" 0 0 20 0 9 0 5000 1000000 25 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}
}
