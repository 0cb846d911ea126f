package usage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	at      = "2030-01-02T03:04:05Z" // testutil.Now
	earlier = "2030-01-01T00:00:00Z"
)

func pv(phase corev1.PersistentVolumePhase, claim string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "vol"}
	if claim != "" {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
	}
	pv.Status.Phase = phase
	return pv
}

func pod(name, claim string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName = "node-1"
	p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	p.Status.Phase = corev1.PodRunning
	for _, change := range changes {
		change(&p)
	}
	return p
}

func owned(p *corev1.Pod) {
	isController := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: &isController}}
}

func volume(state longhorn.VolumeState, status longhorn.KubernetesStatus, attachedAt string) *longhorn.Volume {
	return build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Status.KubernetesStatus, v.Status.AttachedAt = state, status, attachedAt
		if attachedAt != "" {
			v.Status.CurrentNodeID = "node-1"
		}
	})
}

func TestWhoUsesAVolumeOrDidSoLast(t *testing.T) {
	attached, detached := longhorn.VolumeStateAttached, longhorn.VolumeStateDetached
	db := []longhorn.WorkloadStatus{{PodName: "db-0", PodStatus: "Running", WorkloadName: "db", WorkloadType: "StatefulSet"}}
	bound := longhorn.KubernetesStatus{PVName: "pv", PVStatus: "Bound", Namespace: "default", PVCName: "data"}
	with := func(s longhorn.KubernetesStatus, change func(*longhorn.KubernetesStatus)) longhorn.KubernetesStatus {
		change(&s)
		return s
	}
	used := with(bound, func(s *longhorn.KubernetesStatus) { s.WorkloadsStatus = db })
	left := with(used, func(s *longhorn.KubernetesStatus) { s.LastPodRefAt = earlier })
	for _, tc := range []struct {
		name   string
		state  longhorn.VolumeState
		was    longhorn.KubernetesStatus
		pv     *corev1.PersistentVolume
		pods   []corev1.Pod
		listed bool
		want   longhorn.KubernetesStatus
	}{
		{name: "nothing stands for it → empty", state: detached},
		{name: "a PersistentVolume without a claim → that", state: detached, pv: pv("Available", ""), want: longhorn.KubernetesStatus{PVName: "pv", PVStatus: "Available"}},
		{name: "bound → its claim", state: detached, pv: pv("Bound", "data"), want: bound},
		{
			name: "used → its pods, in order, and no others", state: attached, was: bound, pv: pv("Bound", "data"), listed: true,
			pods: []corev1.Pod{pod("z", "data"), pod("other", "tmp"), pod("db-0", "data", owned), pod("elsewhere", "data", func(p *corev1.Pod) { p.Namespace = "x" })},
			want: with(bound, func(s *longhorn.KubernetesStatus) {
				s.WorkloadsStatus = append(append([]longhorn.WorkloadStatus{}, db...), longhorn.WorkloadStatus{PodName: "z", PodStatus: "Running"})
			}),
		},
		{name: "used, the pods are not listed now → as they were", state: attached, was: used, pv: pv("Bound", "data"), want: used},
		{name: "listed, and none is there any more → the last ones", state: longhorn.VolumeStateDetaching, was: used, pv: pv("Bound", "data"), listed: true, want: used},
		{name: "detached → the last ones, since now", state: detached, was: used, pv: pv("Bound", "data"), want: with(used, func(s *longhorn.KubernetesStatus) { s.LastPodRefAt = at })},
		{name: "detached for long → that time stays", state: detached, was: left, pv: pv("Bound", "data"), want: left},
		{
			name: "used again, by another pod → that one", state: attached, was: left, pv: pv("Bound", "data"), listed: true, pods: []corev1.Pod{pod("db-1", "data")},
			want: with(bound, func(s *longhorn.KubernetesStatus) {
				s.WorkloadsStatus = []longhorn.WorkloadStatus{{PodName: "db-1", PodStatus: "Running"}}
			}),
		},
		{
			name: "the claim is gone → the last one, since now", state: detached, was: left, pv: pv("Released", "data"),
			want: with(left, func(s *longhorn.KubernetesStatus) { s.PVStatus, s.LastPVCRefAt = "Released", at }),
		},
		{
			name: "the PersistentVolume is gone, too → its name, and the first time", state: detached,
			was:  with(left, func(s *longhorn.KubernetesStatus) { s.PVStatus, s.LastPVCRefAt = "Released", earlier }),
			want: with(left, func(s *longhorn.KubernetesStatus) { s.PVStatus, s.LastPVCRefAt = "", earlier }),
		},
		{
			name: "another claim → its own pods alone", state: detached, was: left, pv: pv("Bound", "data-2"),
			want: longhorn.KubernetesStatus{PVName: "pv", PVStatus: "Bound", Namespace: "default", PVCName: "data-2"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := plan(Input{Volume: volume(tc.state, tc.was, ""), PV: tc.pv, Pods: tc.pods, Listed: tc.listed, Now: testutil.Now})
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestPodsAreListedOnceAnAttachment(t *testing.T) {
	attached, detaching := longhorn.VolumeStateAttached, longhorn.VolumeStateDetaching
	known := longhorn.KubernetesStatus{WorkloadsStatus: []longhorn.WorkloadStatus{{PodName: "p"}}}
	last := longhorn.KubernetesStatus{WorkloadsStatus: known.WorkloadsStatus, LastPodRefAt: earlier}
	for _, tc := range []struct {
		name   string
		state  longhorn.VolumeState
		was    longhorn.KubernetesStatus
		since  time.Duration
		pv     *corev1.PersistentVolume
		listed string
		after  time.Duration
		now    bool
	}{
		{name: "attached for a minute → now", state: attached, since: time.Minute, pv: pv("Bound", "data"), now: true},
		{name: "attached just now → later", state: attached, since: 4 * time.Second, pv: pv("Bound", "data"), after: 6 * time.Second},
		{name: "attached again → now", state: attached, was: last, since: time.Hour, pv: pv("Bound", "data"), listed: earlier, now: true},
		{name: "listed already → not again", state: attached, since: time.Hour, pv: pv("Bound", "data"), listed: types.Timestamp(testutil.Now.Add(-time.Hour))},
		{name: "known already → not again", state: attached, was: known, since: time.Hour, pv: pv("Bound", "data")},
		{name: "detaching before it was listed → now", state: detaching, since: time.Second, pv: pv("Bound", "data"), now: true},
		{name: "detached → never", state: longhorn.VolumeStateDetached, since: time.Hour, pv: pv("Bound", "data")},
		{name: "no claim → never", state: attached, since: time.Hour, pv: pv("Available", "")},
		{name: "no PersistentVolume → never", state: attached, since: time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Volume: volume(tc.state, tc.was, types.Timestamp(testutil.Now.Add(-tc.since))), PV: tc.pv, Now: testutil.Now}
			after, now := untilList(in, tc.listed)
			assert.Equal(t, tc.after, after)
			assert.Equal(t, tc.now, now)
		})
	}
}
