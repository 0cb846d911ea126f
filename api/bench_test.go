package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// bench is a server with a fake cluster.
type bench struct {
	*testutil.Harness
	server    *Server
	workloads *datastore.Workloads
}

// hastyClock makes every timer fire as soon as it is set: the caches of a bench change only in CatchUp, so it is
// useless to wait for them.
type hastyClock struct{ *testclock.FakeClock }

func (c hastyClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

func newBench(t *testing.T, objs ...runtime.Object) *bench {
	t.Helper()
	h := testutil.New(t, objs...)
	workloads := datastore.NewWorkloads(h.Kube)
	m := manager.New(manager.DepsOf(h.Datastore(datastore.Options{}), workloads, hastyClock{h.Clock}, h.Log))
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "longhorn_up 1\n") })
	return &bench{Harness: h, workloads: workloads, server: NewServer(Deps{Manager: m, Metrics: metrics, Log: h.Log})}
}

// isPlaced does what the volume controller does for a new volume.
func (b *bench) isPlaced(t *testing.T, volume string) {
	t.Helper()
	volumes := b.Longhorn.LonghornV1beta2().Volumes(types.Namespace)
	v, err := volumes.Get(t.Context(), volume, metav1.GetOptions{})
	require.NoError(t, err)
	v.Status.State = longhorn.VolumeStateDetached
	v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue}}
	_, err = volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// threeNodes returns ready nodes, with a disk of 100 GiB each.
func threeNodes() []runtime.Object {
	return []runtime.Object{
		build.ReadyNode("node-1", "uuid-1"), build.ReadyNode("node-2", "uuid-2"), build.ReadyNode("node-3", "uuid-3"),
		build.RunningInstanceManager("node-1", "10.0.0.1", "im-1"),
		build.RunningInstanceManager("node-2", "10.0.0.2", "im-2"),
		build.RunningInstanceManager("node-3", "10.0.0.3", "im-3"),
	}
}

func detached(name string) *longhorn.Volume {
	return build.Volume(name, func(v *longhorn.Volume) { v.Status.State = longhorn.VolumeStateDetached })
}

// do sends a request to a handler; headers are "Name: value".
func do(t *testing.T, h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decoded[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body)
	return v
}

var errBehindTheScenes = errors.New("secret: etcd at 10.9.8.7 is down")

// ownedByVol makes the volume "vol" of package build the owner of an object.
var ownedByVol = []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}}
