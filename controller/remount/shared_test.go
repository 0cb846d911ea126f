package remount

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func shared(v *longhorn.Volume) {
	v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
	v.Status.ShareState, v.Status.ShareEndpoint = longhorn.ShareManagerStateRunning, "nfs://10.0.0.9/vol"
}

// asking is the share of a volume with clients that lost their state.
func asking(v *longhorn.Volume) *longhorn.ShareManager {
	s := &longhorn.ShareManager{ObjectMeta: metav1.ObjectMeta{
		Namespace: types.Namespace, Name: v.Name, OwnerReferences: []metav1.OwnerReference{{Kind: "Volume", Name: v.Name, UID: v.UID}},
	}}
	s.Status.RemountRequestedAt = types.Timestamp(requested)
	return s
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func running(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func later(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: requested.Add(time.Second)} }

func TestPodsOfASharedVolumeAreRestartedOnAllNodesOnce(t *testing.T) {
	v := remounted(shared)
	f := newFixture(t, v, pod("a", running), pod("b", running, on("node-2")), pod("c", running, on("node-3"), later),
		pod("d", running, bare), pod("e", on("node-2")))
	f.Seed(asking(v))
	f.CatchUp()
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "delete pods/b", "update volumes/vol")
	f.CatchUp()
	f.mustSync(queue.Result{})
	f.ExpectWrites()
}

// The leader could not ask the share for an hour.
func TestALossThatIsHeardOfLateIsActedUpon(t *testing.T) {
	v := remounted(shared)
	s := asking(v)
	s.Status.RemountRequests = []string{types.Timestamp(requested.Add(time.Hour))}
	f := newFixture(t, v, pod("a", running))
	f.Seed(s)
	f.CatchUp()
	f.Clock.SetTime(requested.Add(time.Hour + time.Second))
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "update volumes/vol")
}

func TestPodsOfASharedVolumeAreLeftAlone(t *testing.T) {
	off := valuesWith(map[settings.Name]string{settings.AutoDeletePodWhenVolumeDetachedUnexpectedly: "false"})
	for _, c := range []struct {
		name    string
		volume  func(*longhorn.Volume)
		share   func(*longhorn.ShareManager)
		since   time.Duration
		setting settings.Values
		want    queue.Result
	}{
		{name: "the engine ended, the share asks for nothing", share: func(s *longhorn.ShareManager) { s.Status.RemountRequestedAt = "" }},
		{name: "the share of an earlier volume asks", share: func(s *longhorn.ShareManager) { s.OwnerReferences[0].UID = "earlier" }},
		{name: "the share does not serve", volume: func(v *longhorn.Volume) { v.Status.ShareState = longhorn.ShareManagerStateError }},
		{name: "the request is old", since: 10*time.Minute + time.Second},
		{name: "the request was written late, and is old", since: time.Hour + 10*time.Minute + time.Second, share: func(s *longhorn.ShareManager) {
			s.Status.RemountRequests = []string{types.Timestamp(requested), types.Timestamp(requested.Add(time.Hour))}
		}},
		{name: "the request is too new", since: time.Second, want: queue.Result{RequeueAfter: 4 * time.Second}},
		{name: "the setting is off", setting: off},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := remounted(shared)
			if c.volume != nil {
				c.volume(v)
			}
			s := asking(v)
			if c.share != nil {
				c.share(s)
			}
			f := newFixture(t, v, pod("a", running))
			f.Seed(s)
			f.CatchUp()
			if c.since != 0 {
				f.Clock.SetTime(requested.Add(c.since))
			}
			if c.setting != nil {
				f.deps.Setting = c.setting
			}
			_, err := f.sync(t.Context(), v.Name) // it may record the pods
			require.NoError(t, err)
			f.CatchUp()
			f.mustSync(c.want)
			for _, w := range f.Writes() {
				assert.Equal(t, "update volumes/vol", w)
			}
		})
	}
}

func TestOnlySharesThatAskWakeTheirVolume(t *testing.T) {
	f := newFixture(t, remounted(shared))
	s := asking(remounted(shared))
	require.Equal(t, []string{"vol"}, f.keysOfShare(s))
	s.Status.RemountRequestedAt = ""
	assert.Empty(t, f.keysOfShare(s))
}

// A container that ran may have had files open. A container that never ran has lost nothing.
func TestPodsThatHaveRunAnythingAreRestarted(t *testing.T) {
	ended := &corev1.ContainerStateTerminated{}
	for name, status := range map[string]corev1.PodStatus{
		"runs":                          {ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
		"has ended":                     {ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: ended}}}},
		"ended, and waits to run again": {ContainerStatuses: []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: ended}}}},
		"ran, and no more is known":     {ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 1}}},
		"prepares":                      {InitContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	} {
		assert.True(t, hasRun(&corev1.Pod{Status: status}), name)
	}
	waits := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	assert.False(t, hasRun(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waits}, ContainerStatuses: []corev1.ContainerStatus{waits}}}))
}

// lostOn is a share with a request about one node, and none about all nodes.
func lostOn(v *longhorn.Volume, node string) *longhorn.ShareManager {
	s := asking(v)
	s.Status.RemountRequestedAt = ""
	s.Status.LostClients = []longhorn.LostClient{
		{ID: "other", Node: "elsewhere", BootID: "1", After: 7, Dropped: true},
		{ID: "x", Node: node, BootID: "1", After: 6, Dropped: true, RemountRequestedAt: types.Timestamp(requested.Add(-time.Minute))},
		{ID: "x", Node: node, BootID: "1", After: 7, Dropped: true, RemountRequestedAt: types.Timestamp(requested)},
	}
	return s
}

func TestPodsOfOneNodeAreRestartedOnce(t *testing.T) {
	v := remounted(shared)
	v.Status.RemountRequestedAt = ""
	f := newFixture(t, v, pod("a", on("x"), running), pod("b", on("y"), running))
	share := lostOn(v, "x")
	f.Seed(share)
	f.CatchUp()
	require.Equal(t, []string{"vol"}, f.keysOfShare(share))
	f.record()
	got, err := f.Controller.deps.Volumes.GetRO("vol")
	require.NoError(t, err)
	assert.Equal(t, []string{"vol"}, f.keysOf(got), "its record brings it back")
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "update volumes/vol")
	f.CatchUp()
	f.mustSync(queue.Result{})
	f.ExpectWrites()
}

// TestRequestsAboutAllAndAboutOneNodeAreRecordedApart: neither removes the other's record.
func TestRequestsAboutAllAndAboutOneNodeAreRecordedApart(t *testing.T) {
	v := remounted(shared)
	f := newFixture(t, v, pod("a", on("x"), running), pod("b", on("y"), running))
	share := lostOn(v, "x")
	share.Status.RemountRequestedAt = types.Timestamp(requested.Add(-time.Second))
	f.Seed(share)
	f.CatchUp()
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "delete pods/b", "update volumes/vol")
	f.CatchUp()
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites() // a is gone, and b is on another node
}

func TestWhichLossesAShareHas(t *testing.T) {
	v := remounted(shared)
	at := types.Timestamp(requested)
	assert.Equal(t, []loss{{}, {node: "x", request: at}}, lossesOf(v, lostOn(v, "x")))
	stranger := lostOn(v, "x")
	stranger.OwnerReferences = nil
	assert.Empty(t, lossesOf(v, stranger))
	assert.Empty(t, lossesOf(v, nil))
	assert.Len(t, lossesOf(remounted(), lostOn(v, "x")), 1, "a volume that is not shared has a request of its own alone")
}

// TestARequestForOneNodeConcernsItsPodsAlone: two separate rules decide which pods are recorded, and which are
// restarted.
func TestARequestForOneNodeConcernsItsPodsAlone(t *testing.T) {
	a, b := pod("a", running), pod("b", running, on("node-2"))
	for node, want := range map[string][]string{"": {"a", "b"}, "node-1": {"a"}, "node-2": {"b"}, "node-3": nil} {
		in := Input{
			Volume: remounted(shared), Request: types.Timestamp(requested), Node: node, Claims: []*corev1.PersistentVolume{bound()},
			Pods: []corev1.Pod{*a, *b}, Setting: valuesWith(nil),
		}
		var recorded, deleted []string
		for _, uid := range witnesses(in) {
			recorded = append(recorded, strings.TrimPrefix(string(uid), "uid-"))
		}
		in.Recorded = []kubetypes.UID{a.UID, b.UID} // independent of that rule
		for _, p := range plan(in).Delete {
			deleted = append(deleted, p.Name)
		}
		assert.Equal(t, want, recorded, "recorded for node %q", node)
		assert.Equal(t, want, deleted, "deleted for node %q", node)
	}
}
