package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// event is one about an object, some minutes before the harness's time.
func event(id, kind, name, reason string, minutes int) *corev1.Event {
	at := metav1.Time{Time: testutil.Now.Add(-time.Duration(minutes) * time.Minute)}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: id, Namespace: types.Namespace, CreationTimestamp: at},
		InvolvedObject: corev1.ObjectReference{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: kind, Namespace: types.Namespace, Name: name},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: reason + " of " + name, Count: 3, LastTimestamp: at,
	}
}

// lately are Events of cluster, as its controllers would tell them.
func lately() []runtime.Object {
	var objs []runtime.Object
	for i, e := range []struct{ kind, name, reason, message string }{
		{"Volume", "orders-queue", "Degraded", "volume orders-queue has 2 of 3 copies"},
		{"Replica", "orders-queue-r-3", "Rebuilding", "replica orders-queue-r-3 is rebuilt on node node-3"},
		{"Volume", "search-index", types.ReasonLocalReplicaSchedulingFailure, "node-3: insufficient storage"},
		{"Node", "node-3", "Ready", "node node-3 is ready"},
	} {
		one := event(fmt.Sprintf("lately-%d", i), e.kind, e.name, e.reason, 2*i+1)
		one.Message, one.Count = e.message, 1
		if e.reason == "Rebuilding" || e.reason == "Ready" {
			one.Type = corev1.EventTypeNormal
		}
		objs = append(objs, one)
	}
	return objs
}

// TestEvents: the dashboard has all, the newest first, and new ones as they come; a volume has its own and those of its replicas.
func TestEvents(t *testing.T) {
	objs := cluster()
	for i := range 12 {
		objs = append(objs, event(fmt.Sprintf("old-%d", i), "Node", "node-1", "Older", 60+i))
	}
	b := newBench(t, append(objs, event("a", "Replica", "archive-r-1", "ReplicaEvent", 5), event("b", "Volume", "orders-db", "OtherEvent", 1))...)
	b.login("admin")
	b.Has("region", "What changed lately")
	b.Sees("OtherEvent of orders-db")
	b.Has("link", "Volume orders-db")
	b.Axe(root, "Events")
	b.Has("button", "Show all 14")
	b.add(event("c", "Volume", "archive", "NewEvent", 0))
	b.Sees("NewEvent of archive")
	var first string
	b.Evaluate("document.querySelector('.events li').innerText", &first)
	assert.Contains(t, first, "NewEvent of archive")
	b.Click("button", "Show all 15")
	b.Has("button", "Show fewer")

	b.Click("link", "Volume archive")
	b.Has("heading", "archive")
	b.Has("region", "Events")
	b.Sees("ReplicaEvent of archive-r-1")
	b.Sees("NewEvent of archive")
	b.SeesNot("OtherEvent of orders-db")
}

// TestWhoMayNotSeeEvents is told so, and that alone: nothing is lost that could be mended.
func TestWhoMayNotSeeEvents(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("operator")
	b.Sees(`403 Forbidden: user "system:serviceaccount:default:operator" has no right to list events`)
	b.Matches(".connection[data-state=open]")
}

// TestALostConnection is said and mended; what has changed meanwhile is shown then.
func TestALostConnection(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Matches(".connection[data-state=open]")
	b.network.cut()
	b.Sees("Live updates are interrupted")
	b.Has("link", "orders-db") // what is known stays
	b.change(volume("orders-db", 21, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere})...)
	b.network.mend()
	b.SeesNot("Live updates are interrupted")
	b.Sees("21 GiB")
}
