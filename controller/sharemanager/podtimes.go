package sharemanager

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

// podTimes remembers since when pods are not ready, say nothing and are being deleted, by this process's clock. The clocks of a node and of the API
// server may be ahead or behind: their word alone would have a pod that stands still left alone for that long, or one whose server starts again
// removed at once.
//
//	this process saw the pod       since when it is not ready
//	ready, and then not            when it saw that
//	not ready from the first       when the kubelet says, but not in the future: an earlier leader may have seen it turn
//
// A deletion counts from when this process first saw it. So after a change of the leader its grace is longer, never shorter.
type podTimes struct {
	mu   sync.Mutex
	pods map[string]podSeen // by the share's name
}

type podSeen struct {
	uid    kubetypes.UID
	ready  bool
	since  time.Time // that it is not ready
	ending time.Time // that it is being deleted
	mute   time.Time // that it says nothing
}

// since returns the times from which a share's pod is not ready and is being deleted. Zero: it is not, or there is no pod.
func (u *podTimes) since(share string, pod *corev1.Pod, now time.Time) (unready, ending time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pod == nil {
		delete(u.pods, share)
		return time.Time{}, time.Time{}
	}
	ready, told := readiness(pod)
	seen, known := u.pods[share]
	if known = known && seen.uid == pod.UID; !known {
		seen = podSeen{uid: pod.UID}
	}
	switch {
	case ready:
		seen.ready, seen.since, seen.mute = true, time.Time{}, time.Time{}
	case seen.ready:
		seen.ready, seen.since = false, now
	case !known:
		if seen.since = told; told.After(now) {
			seen.since = now
		}
	}
	if seen.ending.IsZero() && pod.DeletionTimestamp != nil {
		seen.ending = now
	}
	if u.pods == nil {
		u.pods = map[string]podSeen{}
	}
	u.pods[share] = seen
	return seen.since, seen.ending
}

// mute notes whether a share's pod says nothing, and returns the time from which it does; zero: it says something. since must be called before.
func (u *podTimes) mute(share string, isMute bool, now time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	seen := u.pods[share]
	switch {
	case !isMute:
		seen.mute = time.Time{}
	case seen.mute.IsZero():
		seen.mute = now
	}
	u.pods[share] = seen
	return seen.mute
}
