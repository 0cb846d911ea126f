package sharemanager

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// If a share loses its recovery data again and again, its workloads are restarted maxRemounts times within the
	// window at most. A restart does not fix the cause of the loss.
	maxRemounts   = 3
	remountWindow = time.Hour
	// askDelay is the pause before the controller asks a share manager again that did not answer. It doubles up to
	// maxAskDelay. A NetworkPolicy may keep all answers of a pod away. Such a pod must not take the workers' time from
	// shares that move.
	askDelay, maxAskDelay = 5 * time.Second, 5 * time.Minute
)

// isServing reports whether the pod serves clients, so that it can answer questions about the recovery data and about
// the volume. The controller asks only after the status says that the share runs, so that clients do not wait for the
// answer.
func (in Input) isServing() bool {
	pod := in.Pod
	if !isWanted(in) || pod == nil || pod.DeletionTimestamp != nil || in.NodeDown || pod.Status.PodIP == "" {
		return false
	}
	ready, _ := readiness(pod)
	return ready && in.Share.Status.State == longhorn.ShareManagerStateRunning
}

// wasAsked reports whether the pod has answered before.
func (in Input) wasAsked() bool { return in.Share.Status.ServedBy == string(in.Pod.UID) }

// learn evaluates the pod's report about the recovery data, once for each pod.
//
//	reported                an earlier pod has served      consequence
//	nothing yet             any                            asked again
//	data found              no                             condition True
//	data found              yes, with data                 condition True
//	data found              yes, which could keep none     clients lost their state: as below
//	data lost               no                             no client had any state: condition True; False if data cannot
//	                                                       be kept
//	data lost, known id     any                            nothing: the controller has already acted on it
//	data lost               yes                            condition False, a request for a remount unless there were too
//	                                                       many
//
// The status contains the result, and one write stores it: the controller acts on no incident twice, nor do two
// leaders.
func (in Input) learn(p *Plan) {
	switch {
	case !in.isServing():
		return
	case in.Recovery == nil && in.wasAsked():
		return
	case in.Recovery == nil:
		_, since := readiness(in.Pod)
		p.wakeAfter(min(max(in.Now.Sub(since), askDelay), maxAskDelay))
		return
	}
	p.grown(in.Recovery.NotGrown, in.Now)
	if in.wasAsked() {
		in.learnMore(p)
		return
	}
	before, said := in.Share.Status, *in.Recovery
	first := before.ServedBy == ""
	if !first && said.Incident == "" && keptNothing(before) {
		said = types.ShareRecovery{
			Incident: "after-" + before.ServedBy, Reason: types.ReasonRecoveryDataUnusable, FoundAt: in.Now,
			Message: "the previous server could not store its recovery data on the volume",
		}
	}
	p.Status.ServedBy = string(in.Pod.UID)
	known := said.Incident == before.IncidentID
	if said.Incident != "" {
		p.Status.IncidentID = said.Incident
	}
	switch {
	case said.Incident == "":
		p.clientState(longhorn.ConditionTrue, types.ReasonRecoveryDataKept, "the server found the records of clients that the previous server had stored", in.Now)
	case known:
	case first && said.Reason == types.ReasonRecoveryDataUnusable:
		p.clientState(longhorn.ConditionFalse, said.Reason, "clients lose their open files and locks when the share's pod stops: "+said.Message, in.Now)
	case first:
		p.clientState(longhorn.ConditionTrue, types.ReasonNoClientsBefore, "no earlier server had clients", in.Now)
	default:
		in.requestRemount(p, said)
	}
}

// learnMore handles later reports of the pod: its server can no longer record its clients, or such a server was
// replaced in the pod.
func (in Input) learnMore(p *Plan) {
	said := *in.Recovery
	if said.Incident == "" || said.Incident == in.Share.Status.IncidentID {
		return
	}
	p.Status.IncidentID = said.Incident
	if said.Reason != types.ReasonRecoveryDataUnusable {
		in.requestRemount(p, said)
		return
	}
	message := "clients lose their open files and locks when the share's pod stops: " + said.Message
	p.clientState(longhorn.ConditionFalse, said.Reason, message, in.Now)
	p.told = append(p.told, Event{corev1.EventTypeWarning, types.EventClientStateNotRecorded, "The volume's " + message})
}

// grown records why the file system does not fill its device; "": it does.
func (p *Plan) grown(why string, now time.Time) {
	if why == "" {
		p.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions), func(c longhorn.Condition) bool { return c.Type == types.ConditionExpanded })
		return
	}
	message := fmt.Sprintf("the file system does not fill its device: %s. The next pod of the share grows the file system before it is mounted", why)
	was := types.FindCondition(p.Status.Conditions, types.ConditionExpanded)
	c := longhorn.Condition{Type: types.ConditionExpanded, Status: longhorn.ConditionFalse, Reason: types.ReasonFilesystemNotGrown, Message: message}
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, now)
	if was.Status != longhorn.ConditionFalse {
		p.told = append(p.told, Event{corev1.EventTypeWarning, types.EventFailedExpansion, "The volume has its new size, but " + message})
	}
}

// requestRemount requests new pods in place of those that started before the loss was found. Pods that started later
// know only the present server.
func (in Input) requestRemount(p *Plan, lost types.ShareRecovery) {
	message := fmt.Sprintf("clients have lost their open files and locks: %s (incident %s)", lost.Message, lost.Incident)
	p.clientState(longhorn.ConditionFalse, lost.Reason, message, in.Now)
	recent := slices.DeleteFunc(slices.Clone(p.Status.RemountRequests), func(at string) bool {
		t, err := time.Parse(time.RFC3339, at)
		return err != nil || !t.After(in.Now.Add(-remountWindow))
	})
	if len(recent) >= maxRemounts {
		p.lost = fmt.Sprintf("The volume's %s. The pods that use the volume are not restarted again: restarts were requested %d times within %v. Restart the pods that report errors",
			message, len(recent), remountWindow)
		return
	}
	p.Status.RemountRequests = append(recent, types.Timestamp(in.Now))
	at := lost.FoundAt
	switch made := in.Pod.CreationTimestamp.Time; {
	case at.After(in.Now):
		at = in.Now // the node's clock is ahead
	case at.Before(made):
		at = made // it is behind
	}
	if last, err := time.Parse(time.RFC3339, p.Status.RemountRequestedAt); err != nil || at.After(last) {
		p.Status.RemountRequestedAt = types.Timestamp(at)
	}
	p.lost = fmt.Sprintf("The volume's %s. The manager has requested a restart of the pods that use the volume and started before %s", message, p.Status.RemountRequestedAt)
}

// forgetClients is called for a share without workloads: no client has anything to lose.
func (p *Plan) forgetClients() {
	p.Status.ServedBy, p.Status.Server, p.Status.LostClients = "", nil, nil
	p.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions), func(c longhorn.Condition) bool {
		return c.Type == types.ConditionClientStateKept
	})
}

// keptNothing reports whether the last server that answered had its recovery data only in its pod.
func keptNothing(s longhorn.ShareManagerStatus) bool {
	return types.FindCondition(s.Conditions, types.ConditionClientStateKept).Reason == types.ReasonRecoveryDataUnusable
}

func (p *Plan) clientState(status longhorn.ConditionStatus, reason, message string, now time.Time) {
	c := longhorn.Condition{Type: types.ConditionClientStateKept, Status: status, Reason: reason, Message: message}
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, now)
}

// wakeAfter requests another sync after a while, unless an earlier one is already planned.
func (p *Plan) wakeAfter(d time.Duration) {
	if p.After == 0 || d < p.After {
		p.After = d
	}
}

// lossEvents are the Events that report the clients' loss of their state, and the reaction.
func (p *Plan) lossEvents() []Event {
	if p.lost == "" {
		return p.told
	}
	return append(p.told, Event{corev1.EventTypeWarning, types.EventClientStateLost, p.lost})
}
