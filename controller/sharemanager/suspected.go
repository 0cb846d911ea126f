package sharemanager

import (
	"fmt"
	"time"
)

// Times of a pod that does not answer. A frozen pod is replaced 25 s later at the latest. This is the sum of
// unreadyLimit, askLimit, silentGrace and silentEndLimit, and a second for the leader to see that. If the leader asks
// no questions (SettingRWXVolumeFastFailover), unreadyLimit starts with the kubelet's report, which is up to 6 s later.
const (
	// askLimit is the time limit for the question to a suspected pod.
	askLimit = time.Second
	// silentGrace is the grace period of such a pod's deletion. After it, the kubelet kills a frozen pod, which closes
	// the connections of clients.
	silentGrace = 6 * time.Second
	// silentEndLimit is how long after that grace period the pod is deleted at once: its kubelet does not kill it.
	silentEndLimit = 2 * time.Second
	// askAgain and askAgainLimit limit how soon the leader asks a pod again that is suspected and not dead. The pause
	// grows with the duration of the suspicion. A leader that does not reach a node with many shares must not spend its
	// time on them.
	askAgain, askAgainLimit = 5 * time.Second, time.Minute
)

// said is the answer of a pod to the question whether it serves.
type said int

const (
	notAsked said = iota
	saidServing
	saidNotServing
	saidNothing
)

// suspected reports whether, according to the kubelet's probe or the leader's questions, a pod does not answer. again
// is the time until the next check.
func (in Input) suspected() (suspected bool, again time.Duration) {
	since := in.suspectedSince()
	if since.IsZero() {
		return false, 0
	}
	if left := since.Add(unreadyLimit).Sub(in.Now); left > 0 {
		return true, left
	}
	return true, min(max(askAgain, in.Now.Sub(since)/4), askAgainLimit)
}

// suspectedSince is the start of that time; zero: the pod answers. The leader asks more often than the kubelet, so it
// may know an earlier time.
func (in Input) suspectedSince() time.Time {
	ready, since := readiness(in.Pod)
	switch {
	case ready:
		return in.Silent
	case !in.Unready.IsZero():
		since = in.Unready
	}
	if !in.Silent.IsZero() && in.Silent.Before(since) {
		return in.Silent
	}
	return since
}

// isDue reports whether a pod has been suspected for so long that the leader asks it once more, on a new connection.
func (in Input) isDue() bool {
	since := in.suspectedSince()
	return !since.IsZero() && !since.Add(unreadyLimit).After(in.Now)
}

// isDead decides on a pod that is suspected for unreadyLimit. The kubelet is a witness: it asks from the pod's own
// node.
//
//	the kubelet says    the pod says         dead
//	not ready           that it serves       no: the kubelet's report is late, or its own probe fails
//	not ready           that it does not     yes: its process has tried to start a server for long enough
//	not ready           nothing              yes: leader and kubelet agree
//	ready               anything             no: the leader's connection was lost
//	ready               nothing              yes, if another pod of the node (its instance manager) answers the leader.
//	                                         The kubelet may be frozen, or the pod has no network. Otherwise no: the
//	                                         leader may be cut off. Package liveness decides on the node
//	not ready           was not asked        yes: it has no address
func (in Input) isDead() bool {
	if !in.isDue() {
		return false
	}
	ready, _ := readiness(in.Pod)
	switch in.Said {
	case saidServing:
		return false
	case saidNothing:
		return !ready || in.Reached
	}
	return !ready
}

// whyDead is the text for the condition and the Event.
func (in Input) whyDead() string {
	ready, _ := readiness(in.Pod)
	node := in.Pod.Spec.NodeName
	switch {
	case ready:
		return fmt.Sprintf("the share's pod on node %s has answered none of the leader's questions for %v, although its kubelet reports the pod as ready", node, unreadyLimit)
	case in.Said == saidNotServing:
		return fmt.Sprintf("the share's pod on node %s has not served the volume for %v", node, unreadyLimit)
	}
	return fmt.Sprintf("the share's pod on node %s has not answered for %v", node, unreadyLimit)
}
