package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

func TestSinceWhenAPodIsNotReady(t *testing.T) {
	// The kubelet's clock is ahead, or behind, by this much.
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		pod := func(uid kubetypes.UID, ready corev1.ConditionStatus, at time.Time) *corev1.Pod {
			return used().pod(corev1.PodRunning, is(ready, now.Sub(at.Add(skew))), func(p *corev1.Pod) { p.UID = uid }).Pod
		}
		u := &unready{}
		assert.Zero(t, u.since("vol", pod("1", "True", now), now))
		turned := now.Add(time.Minute)
		assert.Equal(t, turned, u.since("vol", pod("1", "False", turned), turned), "by this clock, skew %v", skew)
		assert.Equal(t, turned, u.since("vol", pod("1", "False", turned), turned.Add(9*time.Second)), "the same at the next look")
		assert.Zero(t, u.since("vol", pod("1", "True", turned), turned.Add(10*time.Second)))
		again := turned.Add(20 * time.Second)
		assert.Equal(t, again, u.since("vol", pod("1", "False", again), again), "it begins anew")

		later := &unready{} // of another leader
		want := turned.Add(skew)
		if skew > 0 {
			want = again
		}
		assert.Equal(t, want, later.since("vol", pod("1", "False", turned), again), "what the kubelet says, but not in the future")
		assert.Equal(t, want, later.since("vol", pod("1", "False", turned), again.Add(time.Second)))
		assert.Zero(t, later.since("vol", pod("2", "True", again), again), "another pod")
		assert.Zero(t, later.since("vol", nil, again))
		assert.Empty(t, later.pods, "nothing is kept of a pod that is gone")
	}
}
