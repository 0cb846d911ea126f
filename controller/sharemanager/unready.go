package sharemanager

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

// unready remembers since when pods are not ready, by this process's clock. A node's clock may be ahead or behind: its kubelet's word alone
// would have a pod that stands still left alone for that long, or one whose server starts again removed at once.
//
//	this process saw the pod       since when it is not ready
//	ready, and then not            when it saw that
//	not ready from the first       when the kubelet says, but not in the future: an earlier leader may have seen it turn
type unready struct {
	mu   sync.Mutex
	pods map[string]readySeen // by the share's name
}

type readySeen struct {
	uid   kubetypes.UID
	ready bool
	since time.Time // that it is not ready
}

// since returns since when a pod is not ready; zero: it is ready, or there is none.
func (u *unready) since(share string, pod *corev1.Pod, now time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pod == nil {
		delete(u.pods, share)
		return time.Time{}
	}
	ready, told := readiness(pod)
	seen, known := u.pods[share]
	known = known && seen.uid == pod.UID
	switch {
	case ready:
		seen = readySeen{uid: pod.UID, ready: true}
	case known && seen.ready:
		seen = readySeen{uid: pod.UID, since: now}
	case !known:
		if told.After(now) {
			told = now
		}
		seen = readySeen{uid: pod.UID, since: told}
	}
	if u.pods == nil {
		u.pods = map[string]readySeen{}
	}
	u.pods[share] = seen
	return seen.since
}
