package remount

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events stores the type of each Event, and the kind and name of its object, which may be a reference.
type events struct {
	record.EventRecorder
	lines []string
}

func (e *events) Eventf(obj runtime.Object, eventType, reason, _ string, _ ...any) {
	about := "Volume"
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		about = ref.Kind + " " + ref.Namespace + "/" + ref.Name
	}
	e.lines = append(e.lines, fmt.Sprintf("%s %s %s", eventType, reason, about))
}

type fixture struct {
	*testutil.Harness
	*Controller
	events *events
}

func newFixture(t *testing.T, v *longhorn.Volume, pods ...*corev1.Pod) *fixture {
	t.Helper()
	h := testutil.New(t, v)
	for _, p := range pods {
		h.Seed(p)
	}
	h.Clock.SetTime(requested.Add(time.Minute))
	workloads := datastore.NewWorkloads(h.Kube)
	require.NoError(t, workloads.Replace([]*corev1.PersistentVolume{bound()}))
	f := &fixture{Harness: h, events: &events{}}
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{
		Volumes: store.Volumes, Shares: store.ShareManagers, Workloads: workloads, Setting: valuesWith(nil),
		Env: queue.Env{Clock: h.Clock, Recorder: f.events, Log: h.Log},
	})
	require.NoError(t, err)
	f.Controller = c
	h.EndWithTest(c.Run)
	return f
}

func (f *fixture) mustSync(want queue.Result) {
	f.T.Helper()
	got, err := f.sync(f.T.Context(), "vol")
	require.NoError(f.T, err)
	require.Equal(f.T, want, got)
}

// record lets the controller see the request, and updates the cache with the record.
func (f *fixture) record() {
	f.T.Helper()
	f.mustSync(queue.Result{})
	f.ExpectWrites("update volumes/vol")
	f.CatchUp()
}

func (f *fixture) expectEvents(want ...string) {
	f.T.Helper()
	assert.Equal(f.T, want, f.events.lines)
	f.events.lines = nil
}

func bare(p *corev1.Pod) { p.OwnerReferences = nil }

func TestPodsAreDeletedOnceAndTheirOwnersTold(t *testing.T) {
	f := newFixture(t, remounted(), pod("a"), pod("b", bare))
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "update volumes/vol")
	f.CatchUp()
	f.expectEvents("Normal Remount Volume", "Normal Remount ReplicaSet default/web", "Warning Remount Volume")
	// A pod with that name comes back, and the volume's status changes again.
	f.Seed(pod("a", func(p *corev1.Pod) { p.UID = "uid-a-2" }))
	f.mustSync(queue.Result{})
	f.ExpectWrites()
	f.expectEvents()
}

func TestANewRequestIsSeenTo(t *testing.T) {
	f := newFixture(t, remounted())
	f.record()
	f.Seed(pod("a", func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: requested.Add(time.Second)} }))
	v, err := f.Longhorn.LonghornV1beta2().Volumes("longhorn-system").Get(t.Context(), "vol", metav1.GetOptions{})
	require.NoError(t, err)
	v.Status.RemountRequestedAt = "2030-01-02T03:05:00Z"
	_, err = f.Longhorn.LonghornV1beta2().Volumes("longhorn-system").UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
	require.NoError(t, err)
	f.CatchUp()
	f.Writes()
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "update volumes/vol")
}

// This holds whatever the clocks of the nodes and of the leaders show.
func TestANewLeaderDeletesNeitherReplacementsNorPodsThatWereSpared(t *testing.T) {
	off := valuesWith(map[settings.Name]string{settings.AutoDeletePodWhenVolumeDetachedUnexpectedly: "false"})
	for name, c := range map[string]struct {
		setting settings.Values
		seed    *corev1.Pod
		writes  []string
	}{
		"a replacement":            {seed: pod("a", func(p *corev1.Pod) { p.UID = "uid-a-2" }), setting: valuesWith(nil), writes: []string{"delete pods/a", "update volumes/vol"}},
		"a pod that was spared":    {setting: off, writes: []string{"update volumes/vol"}},
		"a pod that came meantime": {seed: pod("b"), setting: valuesWith(nil), writes: []string{"delete pods/a", "update volumes/vol"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, remounted(), pod("a"))
			f.deps.Setting = c.setting
			f.record()
			f.mustSync(queue.Result{})
			f.ExpectWrites(c.writes...)
			if c.seed != nil {
				f.Seed(c.seed)
			}
			f.CatchUp()
			next := f.next(valuesWith(nil))
			_, err := next.sync(t.Context(), "vol")
			require.NoError(t, err)
			f.ExpectWrites()
		})
	}
}

// next is the controller of another leader, which sees the same cluster.
func (f *fixture) next(setting settings.Values) *Controller {
	f.T.Helper()
	deps := f.deps
	deps.Setting = setting
	c, err := New(deps)
	require.NoError(f.T, err)
	f.EndWithTest(c.Run)
	return c
}

func TestALeaderThatDiesBetweenTheRecordAndTheDeletionIsFollowed(t *testing.T) {
	f := newFixture(t, remounted(), pod("a"))
	f.record()
	f.Seed(pod("b"))
	_, err := f.next(valuesWith(nil)).sync(t.Context(), "vol")
	require.NoError(t, err)
	f.ExpectWrites("delete pods/a", "update volumes/vol")
}

func TestARecordIsMadeWhileTheVolumeIsNotServedYet(t *testing.T) {
	f := newFixture(t, remounted(func(v *longhorn.Volume) { v.Status.State, v.Status.Robustness = "attaching", "unknown" }), pod("a"))
	f.record()
	f.mustSync(queue.Result{})
	f.ExpectWrites()
	assert.Equal(t, []kubetypes.UID{"uid-a"}, recordOf(must(f.deps.Volumes.GetRO("vol")), "").Pods)
}

func TestAnAnnotationThatCannotBeReadIsWrittenAgain(t *testing.T) {
	f := newFixture(t, remounted(func(v *longhorn.Volume) { v.Annotations = map[string]string{types.AnnotationRemountPods: "{"} }), pod("a"))
	f.record()
	assert.Equal(t, recorded{types.Timestamp(requested), []kubetypes.UID{"uid-a"}}, recordOf(must(f.deps.Volumes.GetRO("vol")), ""))
}

func TestARequestThatIsOldIsNotRecordedEither(t *testing.T) {
	f := newFixture(t, remounted(), pod("a"))
	f.Clock.SetTime(requested.Add(11 * time.Minute))
	f.mustSync(queue.Result{})
	f.ExpectWrites()
}

// An earlier release wrote the request and no record. The volume was detached since, and its present pods started long
// after.
func TestAVeryOldRequestWithoutARecordConcernsNoPod(t *testing.T) {
	f := newFixture(t, remounted(func(v *longhorn.Volume) { v.Status.State, v.Status.Robustness = "attaching", "unknown" }), pod("a"))
	f.Clock.SetTime(requested.Add(24 * time.Hour))
	f.record()
	assert.Equal(t, recorded{types.Timestamp(requested), []kubetypes.UID{}}, recordOf(must(f.deps.Volumes.GetRO("vol")), ""))
	f.Overwrite(remounted(func(v *longhorn.Volume) {
		v.Annotations = must(f.deps.Volumes.GetRO("vol")).Annotations
		attachedAfter(24 * time.Hour)(v)
	}))
	f.CatchUp()
	f.mustSync(queue.Result{})
	f.ExpectWrites()
	f.expectEvents()
}

func must[T any](o T, err error) T {
	if err != nil {
		panic(err)
	}
	return o
}

func TestNothingIsDeletedTooEarly(t *testing.T) {
	f := newFixture(t, remounted(), pod("a"))
	f.Clock.SetTime(requested.Add(time.Second))
	f.record()
	f.mustSync(queue.Result{RequeueAfter: 4 * time.Second})
	f.ExpectWrites()
}

func TestAVolumeThatIsGoneNeedsNothing(t *testing.T) {
	f := newFixture(t, remounted(func(v *longhorn.Volume) { v.Name = "other" }), pod("a"))
	f.mustSync(queue.Result{})
	f.ExpectWrites()
}

func TestAFailedDeletionIsTriedAgainAndToldOnce(t *testing.T) {
	f := newFixture(t, remounted(), pod("a"), pod("b"))
	away := errors.New("the API server is away")
	f.record()
	f.Fail("delete", "pods", away, away)
	for range 2 {
		_, err := f.sync(t.Context(), "vol")
		require.ErrorIs(t, err, away)
	}
	f.expectEvents()
	f.mustSync(queue.Result{})
	f.ExpectWrites("delete pods/a", "delete pods/a", "delete pods/a", "delete pods/b", "update volumes/vol")
	f.expectEvents("Normal Remount Volume", "Normal Remount ReplicaSet default/web", "Normal Remount Volume", "Normal Remount ReplicaSet default/web")
}

func TestAPodReplacedMeanwhileIsLeftAlone(t *testing.T) {
	for name, err := range map[string]error{
		"gone":                apierrors.NewNotFound(corev1.Resource("pods"), "a"),
		"another of its name": apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("uid differs")),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, remounted(), pod("a"))
			f.record()
			f.Fail("delete", "pods", err)
			f.mustSync(queue.Result{})
			f.expectEvents()
		})
	}
}

func TestOnlyVolumesThatAskAreSynced(t *testing.T) {
	f := newFixture(t, remounted())
	assert.Nil(t, f.keysOf(remounted(func(v *longhorn.Volume) { v.Status.RemountRequestedAt = "" })))
	assert.Equal(t, []string{"vol"}, f.keysOf(remounted()))
}
