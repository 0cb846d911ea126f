package sharemanager

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

// podTimes remembers since when pods are not ready, say nothing and are being deleted, by this process's clock. The
// clocks of a node and of the API server may be ahead or behind. If only their times counted, a frozen pod could stay
// for that much longer, or a pod could be deleted at once while its server restarts.
//
//	this process saw the pod       since when it is not ready
//	ready, and then not            when it saw that
//	not ready from the first       when the kubelet says, but not in the future: an earlier leader may have seen it turn
//
// A deletion counts from when this process first saw it. So after a change of the leader its grace period is longer,
// never shorter.
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

// since returns the times from which a share's pod is not ready and is being deleted. A zero time: it is not, or it
// does not exist.
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

// mute records whether a share's pod says nothing, and returns since when it says nothing; zero: it says something.
// since must be called before.
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
