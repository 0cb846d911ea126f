package sharemanager

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Times of a plan.
const (
	// unreadyLimit is how long a pod that served may be unready, or silent, before another one takes its place. Its process starts a server
	// that died or hangs within that time.
	unreadyLimit = 15 * time.Second
	// steady is how long a pod must have served at least for its share's earlier failures to be forgotten; see steadyAfter.
	steady = 30 * time.Second
	// firstDelay and maxDelay bound how long a share waits after its second failure, and after many.
	firstDelay, maxDelay = time.Second, 2 * time.Minute
)

// Input is all that a plan for one share rests on. Nothing in it is modified.
type Input struct {
	Share      *longhorn.ShareManager
	Volume     *longhorn.Volume           // nil: it is gone, or not the share's
	Attachment *longhorn.VolumeAttachment // nil: there is none
	Pod        *corev1.Pod                // nil: there is none
	Service    *corev1.Service            // nil: there is none
	Slice      *discoveryv1.EndpointSlice // the leader's; nil: there is none
	// NoSlices: the API server does not let this leader write EndpointSlices, as with manifests of an earlier release.
	NoSlices bool
	// AddressTaken: another pod has the address that the slice has.
	AddressTaken bool
	// NodeDown: the pod's node does not answer or is gone. NodeForeign: it answers, and no volume can be attached there.
	NodeDown, NodeForeign bool
	// DaemonAway is since when no daemon works on the pod's node, so that no engine can start there; zero: one does. Elsewhere: another node can have
	// the pod.
	DaemonAway time.Time
	Elsewhere  bool
	// Ending is since when the pod is being deleted, as this process knows it. DeletionTimestamp is by the API server's clock.
	Ending time.Time
	// Unready is since when the pod is not ready, as this process knows it; zero: as its kubelet says.
	Unready time.Time
	// Silent is since when the pod answers none of the leader's questions; zero: it answers, or that is not known.
	Silent time.Time
	// Said is what the pod has said just now, if it is suspected for so long that it was asked. Reached: another pod of its node answers the leader.
	Said    said
	Reached bool
	// Mute is since when a pod whose container runs has said nothing each time that it was asked while another pod of its node answered; zero: it has
	// said something, or was not asked.
	Mute time.Time
	// Clients is what the ConfigMap types.ShareClientsConfigMap says; nil: there is none.
	Clients map[string]string
	// Barred are the Kubernetes nodes on which no volume can be attached now, and Near those with a good copy of the volume.
	Barred, Near []string
	Parameters   Parameters
	// Topologies are where the volume's StorageClass allows the pod to be, in any of them; none: everywhere.
	Topologies []corev1.TopologySelectorTerm
	// Settings are those that a new pod is made with.
	Settings types.PodSettings
	// Refused says which parameter breaks a rule; "": none does.
	Refused string
	// Unmade says why the API server did not take the pod when this process last tried; "": it did, or was not asked.
	Unmade string
	// Recovery is what the pod said of the recovery data; nil: it was not asked, or did not answer.
	Recovery *types.ShareRecovery
	// Generation is that of the epoch of the volume's engine; 0: not known. Fates are the nodes, by the identifiers of their clients, and Controls are
	// nodes that answer; nil while nothing depends on them (lost.go).
	Generation int64
	Fates      map[string]fate
	Controls   []types.Control
	Owner      string
	Now        time.Time
}

// Plan is what to do, in the order of its fields. A nil field asks for nothing.
type Plan struct {
	Status longhorn.ShareManagerStatus
	Events []Event
	// Attachment has the ticket added, changed or removed.
	Attachment    *longhorn.VolumeAttachment
	CreateService *corev1.Service
	// Slice is created, or updated where there is one. DropSlice deletes it.
	Slice     *discoveryv1.EndpointSlice
	DropSlice bool
	CreatePod *corev1.Pod
	DeletePod *Deletion
	// After is when to look again though nothing changed; 0: never.
	After time.Duration

	lost string  // what to tell people of a loss of recovery data; "": there was none
	told []Event // about everything else that the pod reported
}

// Deletion of the pod that the plan looked at, and why. Now: no one waits for its end, which its node cannot confirm: the node is down, or the pod has
// not ended long after its grace. Soon: its grace is silentGrace. What the pod may write later is refused, because the next engine has a higher
// generation.
type Deletion struct {
	Why       string
	Now, Soon bool
}

// Event is recorded about the volume once the status that it speaks of is written.
type Event struct{ Type, Reason, Message string }

// plan decides about a share.
//
//	wanted  pod                         state      pod      ticket
//	no      none                        stopped             removed
//	no      any                         stopping   deleted  stays
//	no      another owner's             stopped    –        removed; stopping, and stays, where that pod may have the device
//	yes     none, after a failure       error      –        stays
//	yes     none                        starting   made     stays
//	yes     another owner's             error      –        stays
//	yes     on a node that is down      error      deleted  stays
//	yes     being deleted               error      –        stays
//	any     does not end                as above   deleted at once, stays
//	yes     ended                       error      deleted  stays
//	yes     for readers, with a writer  error      deleted  stays
//	yes     not answering (isDead)      error      deleted with a short grace, then at once; stays
//	yes     not ready yet               starting   –        on its node
//	yes     not ready yet, and mute     error      deleted with a short grace, then at once; stays
//	yes     not ready for far too long  error      deleted  on its node (starting.go)
//	yes     unready since a moment      running    –        on its node
//	yes     ready                       running    –        on its node
//
// A ticket that stays keeps the volume attached until the next pod has a node.
func plan(in Input) Plan {
	p := Plan{Status: *in.Share.Status.DeepCopy()}
	p.Status.OwnerID = in.Owner
	p.Status.CurrentNode, p.Status.CurrentImage, p.Status.Endpoint = "", "", ""
	if in.Pod != nil {
		p.Status.CurrentNode, p.Status.CurrentImage = in.Pod.Spec.NodeName, types.ContainerImage(in.Pod, containerName)
	}
	if in.Service == nil && in.refusedName() == "" {
		p.CreateService = newService(in.Share)
	}
	if isWanted(in) {
		in.serve(&p)
	} else {
		in.stop(&p)
	}
	p.lead(in)
	in.learn(&p)
	in.noteServer(&p)
	in.watchLost(&p)
	// A leader that has just begun does not see the list at once: then the condition stays.
	if in.Clients != nil || types.FindCondition(p.Status.Conditions, types.ConditionClientsLimited).Status == longhorn.ConditionUnknown {
		p.clients(in, types.FindCondition(p.Status.Conditions, types.ConditionClientsLimited))
	}
	p.Events = append(eventsOf(in.Share.Status, p.Status), p.lossEvents()...)
	return p
}

// isWanted tells whether a workload uses the volume, and it may be served. Whether it can be now does not count: a volume is faulted only while it is
// attached for the share, so a share that stopped for that would start again at once. Its pod waits for the device, as a workload of any volume does.
func isWanted(in Input) bool {
	v := in.Volume
	return v != nil && v.DeletionTimestamp == nil && types.IsShared(v) && in.isUsed()
}

// isUsed tells whether a workload has the volume mounted, or is about to, be the volume as it may.
func (in Input) isUsed() bool {
	if in.Attachment == nil {
		return false
	}
	for _, t := range in.Attachment.Spec.AttachmentTickets {
		if t.Type == longhorn.AttacherTypeCSI {
			return true
		}
	}
	return false
}

func (in Input) serve(p *Plan) {
	switch pod := in.Pod; {
	case pod == nil:
		in.begin(p)
	case !metav1.IsControlledBy(pod, in.Share):
		in.awaitForeign(p, longhorn.ShareManagerStateError, "")
	case in.NodeDown:
		in.fail(p, types.ReasonShareNodeDown, fmt.Sprintf("node %s does not answer", pod.Spec.NodeName))
	case pod.DeletionTimestamp != nil && p.isSilent():
		p.end(in, fmt.Sprintf("its pod does not answer, and has not ended %v after its grace", silentEndLimit))
	case pod.DeletionTimestamp != nil:
		p.is(longhorn.ShareManagerStateError, types.ReasonPodDeleting, fmt.Sprintf("its pod on node %s is being deleted; another one takes its place", pod.Spec.NodeName), in.Now)
		p.end(in, fmt.Sprintf("its pod has not ended %v after its grace", endLimit))
	case in.NodeForeign:
		in.fail(p, types.ReasonShareNodeDown, fmt.Sprintf("its pod is on node %s, which is no Longhorn node", pod.Spec.NodeName))
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		in.fail(p, types.ReasonPodFailed, "its pod ended: "+types.WhyPodEnded(pod, containerName))
	case in.Parameters.ClientsWrite && servesReadersOnly(pod): // not the other way round: what readers cannot do, their nodes see to as well
		why := fmt.Sprintf("its pod on node %s serves readers alone, and a claim that may write has come; another one takes its place", pod.Spec.NodeName)
		p.is(longhorn.ShareManagerStateError, types.ReasonPodDeleting, why, in.Now)
		p.end(in, why)
	default:
		in.follow(p)
	}
}

// begin makes a pod, after a while where pods have failed one after the other.
func (in Input) begin(p *Plan) {
	if refused := cmp.Or(in.refusedName(), in.Refused); refused != "" {
		p.is(longhorn.ShareManagerStateError, types.ReasonShareParameterInvalid, refused, in.Now)
		return
	}
	// A failure in the future is one by a clock that was ahead: how long ago it was is not known.
	if failed, err := time.Parse(time.RFC3339, p.Status.FailedAt); err == nil && !failed.After(in.Now) {
		if left := failed.Add(delayAfter(p.Status.Failures)).Sub(in.Now); left > 0 {
			c := types.FindCondition(p.Status.Conditions, types.ConditionReady)
			p.is(longhorn.ShareManagerStateError, c.Reason, c.Message, in.Now)
			p.After = left
			return
		}
	}
	p.CreatePod = newPod(in)
	if in.Unmade != "" {
		p.is(longhorn.ShareManagerStateStarting, types.ReasonShareDelayed, "its pod cannot be made: "+in.Unmade, in.Now)
		return
	}
	p.is(longhorn.ShareManagerStateStarting, types.ReasonPodStarting, "its pod is made", in.Now)
}

// delayAfter is how long to wait after so many failures one after the other: not at all after the first.
func delayAfter(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	return backoff.After(firstDelay, maxDelay, failures-2)
}

// steadyAfter is how long a pod must have served for so many failures before it to be forgotten: as long as clients waited for it. A share
// whose nodes die minutes apart is not one that cannot serve, and its clients must not wait for each death.
func steadyAfter(failures int) time.Duration { return max(steady, delayAfter(failures)) }

// follow tells how a pod that has not ended fares, and has the volume attached on its node.
func (in Input) follow(p *Plan) {
	pod := in.Pod
	if pod.Spec.NodeName != "" {
		p.Attachment = withTicket(in.Attachment, in.Share.Name, pod.Spec.NodeName)
	}
	ready, since := readiness(pod)
	serving := in.Share.Status.State == longhorn.ShareManagerStateRunning
	silent := p.isSilent() // and there still, for its deletion has failed: the next pod begins in another state
	suspected, left := in.suspected()
	switch {
	case (serving || silent) && in.isDead():
		in.fail(p, types.ReasonShareNotAnswering, in.whyDead())
	case ready:
		var why string
		if p.Status.Endpoint, why = in.endpoint(); p.Status.Endpoint == "" {
			in.wait(p, why, since)
			return
		}
		p.is(longhorn.ShareManagerStateRunning, types.ReasonPodRunning, fmt.Sprintf("it serves on node %s", pod.Spec.NodeName), in.Now)
		if p.Status.Failures > 0 {
			if left := since.Add(steadyAfter(p.Status.Failures)).Sub(in.Now); left > 0 {
				p.After = left
			} else {
				p.forgetFailures()
			}
		}
		if suspected {
			p.wakeAfter(left)
		}
	case !serving && !silent:
		in.start(p)
		if suspected && p.Status.State == longhorn.ShareManagerStateStarting && isRunning(pod) {
			p.wakeAfter(left)
		}
	default:
		if p.Status.Endpoint = in.Share.Status.Endpoint; silent { // it answers again
			p.Status.Endpoint, _ = in.endpoint()
		}
		p.is(longhorn.ShareManagerStateRunning, types.ReasonPodRunning, fmt.Sprintf("it serves on node %s", pod.Spec.NodeName), in.Now)
		p.wakeAfter(left)
	}
}

// fail deletes the pod, and counts the failure once.
func (in Input) fail(p *Plan, reason, message string) {
	if in.Pod.DeletionTimestamp == nil && in.Share.Status.State != longhorn.ShareManagerStateError {
		p.Status.Failures++
		p.Status.FailedAt = types.Timestamp(in.Now)
		if in.Share.Status.State == longhorn.ShareManagerStateStarting && !in.NodeDown {
			p.avoid(in.Pod.Spec.NodeName)
		}
	}
	p.is(longhorn.ShareManagerStateError, reason, message, in.Now)
	p.end(in, message)
}

// is sets the state and says why.
func (p *Plan) is(state longhorn.ShareManagerState, reason, message string, now time.Time) {
	p.Status.State = state
	c := longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason, Message: message}
	if state == longhorn.ShareManagerStateRunning {
		c.Status = longhorn.ConditionTrue
	}
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, now)
}

// eventsOf tells people what became of the share.
func eventsOf(before, now longhorn.ShareManagerStatus) []Event {
	ready := types.FindCondition(now.Conditions, types.ConditionReady)
	message := ready.Message
	isNew := types.FindCondition(before.Conditions, types.ConditionReady).Reason != ready.Reason
	switch {
	case ready.Reason == types.ReasonShareDelayed && isNew:
		return []Event{{corev1.EventTypeWarning, types.EventShareDelayed, "The volume is not served over NFS yet: " + message}}
	case ready.Reason == types.ReasonShareForeignPod && isNew && now.State == longhorn.ShareManagerStateStopping:
		return []Event{{corev1.EventTypeWarning, types.EventShareForeignPod, "The volume is not served over NFS any more: " + message}}
	}
	if before.State == now.State {
		return nil
	}
	switch now.State {
	case longhorn.ShareManagerStateRunning:
		return []Event{{corev1.EventTypeNormal, types.EventShareRunning, fmt.Sprintf("The volume is served over NFS at %s, from node %s", now.Endpoint, now.CurrentNode)}}
	case longhorn.ShareManagerStateError:
		return []Event{{corev1.EventTypeWarning, types.EventShareFailed, "The volume is not served over NFS: " + message}}
	case longhorn.ShareManagerStateStopped:
		if before.State != "" {
			return []Event{{corev1.EventTypeNormal, types.EventShareStopped, "The volume is not served over NFS any more: " + message}}
		}
	}
	return nil
}

// endpoint is where clients mount the share; "" while its Service has no address, and why. The Service of an earlier share of that name is
// there until the garbage collector removes it; its address goes with it.
func (in Input) endpoint() (endpoint, why string) {
	switch {
	case in.Service == nil:
		return "", "its Service has no address yet"
	case !metav1.IsControlledBy(in.Service, in.Share):
		return "", fmt.Sprintf("Service %s belongs to another; it must go first", in.Service.Name)
	}
	return types.ShareEndpoint(in.Service.Spec.ClusterIP, in.Share.Name), "its Service has no address yet"
}

// refusedName says why no Service can have the volume's name; "": one can.
func (in Input) refusedName() string {
	if types.CanBeShared(in.Share.Name) {
		return ""
	}
	return fmt.Sprintf("name: %q %s", in.Share.Name, types.ShareNameRule)
}

// withTicket returns the attachment with the share's ticket for a node, or without it if node is ""; nil if it is so already.
func withTicket(va *longhorn.VolumeAttachment, volume, node string) *longhorn.VolumeAttachment {
	if va == nil {
		return nil
	}
	id := types.ShareTicketID(volume)
	have, ok := va.Spec.AttachmentTickets[id]
	if !ok && node == "" || ok && have.NodeID == node {
		return nil
	}
	u := va.DeepCopy()
	if node == "" {
		delete(u.Spec.AttachmentTickets, id)
		return u
	}
	if u.Spec.AttachmentTickets == nil {
		u.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
	}
	u.Spec.AttachmentTickets[id] = longhorn.AttachmentTicket{
		ID: id, Type: longhorn.AttacherTypeShareManager, NodeID: node,
		Parameters: map[string]string{longhorn.AttachmentParameterDisableFrontend: "false"},
		// The answer to an earlier ticket of this id must not be taken for one to this.
		Generation: 1 + max(have.Generation, va.Status.AttachmentTicketStatuses[id].Generation),
	}
	return u
}
