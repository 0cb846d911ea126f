package remount

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// requested is when a remount of the volume was requested.
var requested = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// remounted is a volume that is attached to node-1 again.
func remounted(changes ...func(*longhorn.Volume)) *longhorn.Volume {
	return build.Volume("vol", append([]func(*longhorn.Volume){func(v *longhorn.Volume) {
		v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "node-1"
		v.Status.Robustness = longhorn.VolumeRobustnessHealthy
		v.Status.RemountRequestedAt = "2030-01-02T03:04:05Z"
	}}, changes...)...)
}

// bound is a PersistentVolume of the volume, bound to the claim default/data.
func bound(changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "vol"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	pv.Status.Phase = corev1.VolumeBound
	for _, change := range changes {
		change(pv)
	}
	return pv
}

// pod has run on node-1 since a minute before the request, uses the claim data, and belongs to a ReplicaSet.
func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	isController := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: kubetypes.UID("uid-" + name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-web", Controller: &isController}},
	}}
	p.Spec.NodeName = "node-1"
	p.Spec.Volumes = []corev1.Volume{
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.StartTime = &metav1.Time{Time: requested.Add(-time.Minute)}
	for _, change := range changes {
		change(p)
	}
	return p
}

// valuesWith returns the defaults, except for the given settings.
func valuesWith(given map[settings.Name]string) settings.Values {
	return func(name settings.Name) string {
		if value, ok := given[name]; ok {
			return value
		}
		d, _ := settings.DefinitionOf(name)
		return d.Default
	}
}

func TestDue(t *testing.T) {
	status := func(change func(*longhorn.VolumeStatus)) *longhorn.Volume {
		return remounted(func(v *longhorn.Volume) { change(&v.Status) })
	}
	for _, c := range []struct {
		name   string
		volume *longhorn.Volume
		since  time.Duration // since the request
		after  time.Duration
		ok     bool
	}{
		{"attached again, just now → in 5 s", remounted(), 0, 5 * time.Second, false},
		{"attached again, 2 s ago → in 3 s", remounted(), 2 * time.Second, 3 * time.Second, false},
		{"attached again, 5 s ago → now", remounted(), 5 * time.Second, 0, true},
		{"attached again ten minutes ago → now", remounted(), 10 * time.Minute, 0, true},
		{"attached again longer ago → never", remounted(), 10*time.Minute + time.Second, 0, false},
		{"requested long ago, and attached just now → now", remounted(attachedAfter(time.Hour)), time.Hour + time.Minute, 0, true},
		{"requested long ago, and attached longer ago than ten minutes → never", remounted(attachedAfter(time.Hour)), time.Hour + 11*time.Minute, 0, false},
		{"degraded → now", status(func(s *longhorn.VolumeStatus) { s.Robustness = "degraded" }), time.Minute, 0, true},
		{"faulted → not before it changes", status(func(s *longhorn.VolumeStatus) { s.Robustness = "faulted" }), time.Minute, 0, false},
		{"of unknown robustness → not before it changes", status(func(s *longhorn.VolumeStatus) { s.Robustness = "unknown" }), time.Minute, 0, false},
		{"still attaching → not before it changes", status(func(s *longhorn.VolumeStatus) { s.State = "attaching" }), time.Minute, 0, false},
		{"detached → not before it changes", status(func(s *longhorn.VolumeStatus) { s.State = "detached"; s.CurrentNodeID = "" }), time.Minute, 0, false},
		{"never requested → not before it changes", status(func(s *longhorn.VolumeStatus) { s.RemountRequestedAt = "" }), time.Minute, 0, false},
		{"requested at no time that can be read → never", status(func(s *longhorn.VolumeStatus) { s.RemountRequestedAt = "soon" }), time.Minute, 0, false},
		{"being deleted → never", remounted(func(v *longhorn.Volume) { v.DeletionTimestamp = &metav1.Time{Time: requested} }), time.Minute, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			after, ok := due(c.volume, c.volume.Status.RemountRequestedAt, "", requested.Add(c.since))
			assert.Equal(t, c.after, after)
			assert.Equal(t, c.ok, ok)
		})
	}
}

// attachedAfter: the volume was attached that long after the request.
func attachedAfter(d time.Duration) func(*longhorn.Volume) {
	return func(v *longhorn.Volume) {
		v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionAttaching, Status: longhorn.ConditionFalse, LastTransitionTime: types.Timestamp(requested.Add(d))}}
	}
}

func TestPlan(t *testing.T) {
	started := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: requested.Add(d)} }
	}
	for _, c := range []struct {
		name    string
		claims  []*corev1.PersistentVolume
		pod     *corev1.Pod
		setting map[settings.Name]string
		unseen  bool // it did not exist when the request was seen
		delete  bool
		kept    string // why the user must restart it
	}{
		{name: "started before → deleted", pod: pod("a"), delete: true},
		{name: "started a second before → deleted", pod: pod("a", started(-time.Second)), delete: true},
		{name: "started before, by a clock that is ahead → deleted", pod: pod("a", started(time.Hour)), delete: true},
		{name: "did not exist when the request was seen → stays", pod: pod("a"), unseen: true},
		{name: "did not exist then, and started before by its node's clock → stays", pod: pod("a", started(-time.Hour)), unseen: true},
		{name: "not started yet → stays", pod: pod("a", func(p *corev1.Pod) { p.Status.StartTime = nil })},
		{name: "being deleted already → stays", pod: pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: requested} })},
		{name: "ended well → stays", pod: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		{name: "ended badly → stays", pod: pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		{name: "of no owner → kept", pod: pod("a", func(p *corev1.Pod) { p.OwnerReferences = nil }), kept: "no controller would create the pod again"},
		{name: "of an owner that is no controller → kept", pod: pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), kept: "no controller would create the pod again"},
		{name: "of a node's own file → kept", pod: pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Node" }), kept: "no controller would create the pod again"},
		{
			name: "the setting is off → kept", pod: pod("a"), kept: "setting auto-delete-pod-when-volume-detached-unexpectedly is false",
			setting: map[settings.Name]string{settings.AutoDeletePodWhenVolumeDetachedUnexpectedly: "false"},
		},
		{
			name: "the setting is off, did not exist then → stays", pod: pod("a"), unseen: true,
			setting: map[settings.Name]string{settings.AutoDeletePodWhenVolumeDetachedUnexpectedly: "false"},
		},
		{
			name: "its owner's kind is spared → kept", pod: pod("a"),
			kept:    "setting blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly excludes apps/ReplicaSet",
			setting: map[settings.Name]string{settings.AutoDeletePodBlacklist: "apps/StatefulSet; apps/ReplicaSet"},
		},
		{
			name: "another kind is spared → deleted", pod: pod("a"), delete: true,
			setting: map[settings.Name]string{settings.AutoDeletePodBlacklist: "apps/StatefulSet"},
		},
		{name: "on another node → stays", pod: pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })},
		{name: "using another claim → stays", pod: pod("a", func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "other" })},
		{name: "using no claim → stays", pod: pod("a", func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[:1] })},
		{name: "using a claim of the name in another namespace → stays", pod: pod("a", func(p *corev1.Pod) { p.Namespace = "elsewhere" })},
		{
			name: "using it as an ephemeral volume → deleted", delete: true,
			claims: []*corev1.PersistentVolume{bound(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = "a-d" })},
			pod: pod("a", func(p *corev1.Pod) {
				p.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
			}),
		},
		{
			name: "a volume of another driver → stays", pod: pod("a"),
			claims: []*corev1.PersistentVolume{bound(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other.example" })},
		},
		{
			name: "another volume of this driver → stays", pod: pod("a"),
			claims: []*corev1.PersistentVolume{bound(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vol-2" })},
		},
		{
			name: "no volume of a CSI driver → stays", pod: pod("a"),
			claims: []*corev1.PersistentVolume{bound(func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil })},
		},
		{name: "no claim any more → stays", pod: pod("a"), claims: []*corev1.PersistentVolume{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.claims == nil {
				c.claims = []*corev1.PersistentVolume{bound()}
			}
			in := Input{Volume: remounted(), Request: types.Timestamp(requested), Claims: c.claims, Pods: []corev1.Pod{*c.pod}, Setting: valuesWith(c.setting)}
			if !c.unseen {
				in.Recorded = []kubetypes.UID{c.pod.UID}
			}
			p := plan(in)
			assert.Equal(t, c.delete, len(p.Delete) == 1)
			if c.kept == "" {
				assert.Empty(t, p.Keep)
				return
			}
			assert.Equal(t, []Kept{{Pod: *c.pod, Why: c.kept}}, p.Keep)
		})
	}
}

func TestPlanIsInOrderAndNamesEachPodOnce(t *testing.T) {
	second := bound(func(pv *corev1.PersistentVolume) { pv.Name, pv.Spec.ClaimRef.Name = "pv-2", "tmp" })
	p := plan(Input{
		Volume: remounted(), Request: types.Timestamp(requested), Claims: []*corev1.PersistentVolume{bound(), second}, Setting: valuesWith(nil),
		Recorded: []kubetypes.UID{"uid-a", "uid-b"},
		Pods: []corev1.Pod{*pod("b"), *pod("a", func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "tmp"},
			}})
		})},
	})
	var names []string
	for _, pod := range p.Delete {
		names = append(names, pod.Name)
	}
	assert.Equal(t, []string{"a", "b"}, names)
}

// A pod may request a grace period of hours, but its volume is dead.
func TestTheGraceOfARestartIsBounded(t *testing.T) {
	for asked, want := range map[int64]int64{0: 0, 10: 10, 30: 30, 31: 30, 86400: 30} {
		assert.Equal(t, want, grace(&corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &asked}}))
	}
	assert.EqualValues(t, 30, grace(&corev1.Pod{}))
}
