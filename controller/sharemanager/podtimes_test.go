package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

func unreadySince(u *podTimes, share string, pod *corev1.Pod, now time.Time) time.Time {
	unready, _ := u.since(share, pod, now)
	return unready
}

// The API server's clock may be ahead or behind: the deletion counts from when this process saw it.
func TestSinceWhenAPodIsBeingDeleted(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		pod := func(uid kubetypes.UID, changes ...func(*corev1.Pod)) *corev1.Pod {
			p := used().pod(corev1.PodRunning, append(changes, is("True", time.Hour))...).Pod
			p.UID = uid
			return p
		}
		isDeleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(skew)} }
		u := &podTimes{}
		for _, look := range []struct {
			pod  *corev1.Pod
			at   time.Duration
			want time.Time
		}{
			{pod("1"), 0, time.Time{}},
			{pod("1", isDeleted), time.Second, now.Add(time.Second)},
			{pod("1", isDeleted), time.Minute, now.Add(time.Second)},
			{pod("2"), time.Hour, time.Time{}},
		} {
			_, ending := u.since("vol", look.pod, now.Add(look.at))
			assert.Equal(t, look.want, ending, "pod %s after %v, skew %v", look.pod.UID, look.at, skew)
		}
	}
}

func TestSinceWhenAPodSaysNothing(t *testing.T) {
	u := &podTimes{}
	pod := used().pod(corev1.PodRunning, is("False", time.Hour)).Pod
	u.since("vol", pod, now)
	assert.Equal(t, now, u.mute("vol", true, now))
	assert.Equal(t, now, u.mute("vol", true, now.Add(5*time.Second)))
	assert.Zero(t, u.mute("vol", false, now.Add(6*time.Second)), "it has said something")
	again := now.Add(7 * time.Second)
	assert.Equal(t, again, u.mute("vol", true, again))
	u.since("vol", used().pod(corev1.PodRunning, is("True", 0)).Pod, again)
	assert.Equal(t, again.Add(time.Second), u.mute("vol", true, again.Add(time.Second)), "it was ready meanwhile")
}

func TestSinceWhenAPodIsNotReady(t *testing.T) {
	// The kubelet's clock is ahead, or behind, by this much.
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		pod := func(uid kubetypes.UID, ready corev1.ConditionStatus, at time.Time) *corev1.Pod {
			return used().pod(corev1.PodRunning, is(ready, now.Sub(at.Add(skew))), func(p *corev1.Pod) { p.UID = uid }).Pod
		}
		u := &podTimes{}
		assert.Zero(t, unreadySince(u, "vol", pod("1", "True", now), now))
		turned := now.Add(time.Minute)
		assert.Equal(t, turned, unreadySince(u, "vol", pod("1", "False", turned), turned), "by this clock, skew %v", skew)
		assert.Equal(t, turned, unreadySince(u, "vol", pod("1", "False", turned), turned.Add(9*time.Second)), "the same at the next look")
		assert.Zero(t, unreadySince(u, "vol", pod("1", "True", turned), turned.Add(10*time.Second)))
		again := turned.Add(20 * time.Second)
		assert.Equal(t, again, unreadySince(u, "vol", pod("1", "False", again), again), "it begins anew")

		later := &podTimes{} // of another leader
		want := turned.Add(skew)
		if skew > 0 {
			want = again
		}
		assert.Equal(t, want, unreadySince(later, "vol", pod("1", "False", turned), again), "what the kubelet says, but not in the future")
		assert.Equal(t, want, unreadySince(later, "vol", pod("1", "False", turned), again.Add(time.Second)))
		assert.Zero(t, unreadySince(later, "vol", pod("2", "True", again), again), "another pod")
		assert.Zero(t, unreadySince(later, "vol", nil, again))
		assert.Empty(t, later.pods, "nothing is kept of a pod that is gone")
	}
}
