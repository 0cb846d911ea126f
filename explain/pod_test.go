package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAPodIsExplainedByItsClaims(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world, pod *corev1.Pod)
		want   []string
	}{
		{"it runs → nothing", func(*world, *corev1.Pod) {}, nil},
		{"its volume cannot be mounted → the pod, with why", func(w *world, pod *corev1.Pod) {
			waits(pod)
			w.happens(pod, "FailedMount", `volume "pv-1" : no`, 0)
		}, []string{"pod shop/db FailedMount"}},
		{"its claim does not exist → so", func(w *world, _ *corev1.Pod) { w.Claims = nil }, []string{"pod shop/db ClaimMissing"}},
		{"its claim may not be read → nothing is claimed", func(w *world, _ *corev1.Pod) {
			w.Claims, w.Unseen = nil, []string{ResourceClaims}
		}, nil},
		{"another pod waits for the same claim → it is not told", func(w *world, pod *corev1.Pod) {
			other := pod.DeepCopy()
			other.Name, other.UID = "other", "other-uid"
			waits(other)
			w.happens(other, "FailedMount", `volume "pv-1" : no`, 0)
			w.UserPods = append(w.UserPods, other)
		}, nil},
		{"the volume of its claim is gone → the PersistentVolume first", func(w *world, pod *corev1.Pod) {
			waits(pod)
			w.happens(pod, "FailedMount", `volume "pv-1" : no`, 0)
			w.PersistentVolumes[0].Spec.CSI.VolumeHandle = "gone"
		}, []string{"persistent volume pv-1 VolumeMissing", "pod shop/db FailedMount"}},
		{"an ephemeral claim → the claim of its name", func(w *world, pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}, []string{"pod shop/db ClaimMissing"}},
	} {
		w := newWorld()
		_, _, pod := w.claimed()
		tc.change(w, pod)
		found, err := Pod(&w.Snapshot, "shop", "db")
		require.NoError(t, err, tc.name)
		var got []string
		for _, f := range found {
			got = append(got, f.Object.String()+" "+f.Reason)
		}
		assert.Equal(t, tc.want, got, tc.name)
	}
}

func TestAPodThatIsNotThere(t *testing.T) {
	w := newWorld()
	_, err := Pod(&w.Snapshot, "shop", "web")
	assert.EqualError(t, err, `no pod "shop/web" exists that uses a claim`)
	w.Unseen = []string{ResourceUserPods}
	_, err = Pod(&w.Snapshot, "shop", "web")
	assert.EqualError(t, err, `pod "shop/web": your account may not read pods in namespace shop`)
}
