package sharemanager

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Times of a plan.
const (
	// unreadyLimit is how long a pod that served may be unready, or silent, before the controller replaces it. If its
	// server dies or hangs, the pod's process starts another server within that time.
	unreadyLimit = 15 * time.Second
	// steady is how long a pod must at least have served before its share's earlier failures are forgotten; see
	// steadyAfter.
	steady = 30 * time.Second
	// firstDelay is how long a share waits after its second failure. maxDelay is the longest wait.
	firstDelay, maxDelay = time.Second, 2 * time.Minute
)

// Input is everything that a plan for one share depends on. Nothing in it is modified.
type Input struct {
	Share      *longhorn.ShareManager
	Volume     *longhorn.Volume           // nil: it does not exist, or is not the share's
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
	// DaemonAway is since when the pod's node has no working daemon, so that no engine can start there; zero: it has
	// one. Elsewhere: another node can have the pod.
	DaemonAway time.Time
	Elsewhere  bool
	// Ending is since when the pod is being deleted, by this process's clock. DeletionTimestamp is by the API server's
	// clock.
	Ending time.Time
	// Unready is since when the pod is not ready, by this process's clock; zero: the kubelet's time counts.
	Unready time.Time
	// Silent is since when the pod has answered none of the leader's questions; zero: it answers, or this is not known.
	Silent time.Time
	// Said is the pod's latest answer. The leader asks a pod that has been suspected for long enough. Reached: another
	// pod of its node answers the leader.
	Said    said
	Reached bool
	// Mute is since when a pod with a running container has answered no question, each time while another pod of its
	// node answered. Zero: it has answered, or was not asked.
	Mute time.Time
	// Clients is the content of the ConfigMap types.ShareClientsConfigMap; nil: it does not exist.
	Clients map[string]string
	// Barred are the Kubernetes nodes to which no volume can be attached now. Near are the nodes with a healthy copy of
	// the volume.
	Barred, Near []string
	Parameters   Parameters
	// Topologies are those that the volume's StorageClass allows for the pod, which needs to be in one of them; none:
	// the pod may be anywhere.
	Topologies []corev1.TopologySelectorTerm
	// Settings are those with which a new pod is created.
	Settings settings.PodSettings
	// Refused says which parameter breaks a rule; "": none does.
	Refused string
	// Unmade says why the API server refused the pod when this process last tried to create it; "": it did not refuse,
	// or this process has not tried.
	Unmade string
	// Recovery is the pod's report about the recovery data; nil: the pod was not asked, or did not answer.
	Recovery *types.ShareRecovery
	// Generation is the generation in the epoch of the volume's engine; 0: not known. Fates are the nodes, by the
	// identifiers of their clients. Controls are nodes that answer. Fates and Controls are nil while nothing depends on
	// them (lost.go).
	Generation int64
	Fates      map[string]fate
	Controls   []types.Control
	Owner      string
	Now        time.Time
}

// Plan says what to do, in the order of its fields. A nil field requests nothing.
type Plan struct {
	Status longhorn.ShareManagerStatus
	Events []Event
	// Attachment is the VolumeAttachment with the ticket added, changed or removed.
	Attachment    *longhorn.VolumeAttachment
	CreateService *corev1.Service
	// Slice is created, or updated if it exists. DropSlice deletes it.
	Slice     *discoveryv1.EndpointSlice
	DropSlice bool
	CreatePod *corev1.Pod
	DeletePod *Deletion
	// After is when to sync again although nothing changed; 0: never.
	After time.Duration

	lost string  // the text about a loss of recovery data; "": there was none
	told []Event // Events about everything else that the pod reported
}

// Deletion of the pod in the plan's Input, and the reason.
//
//   - Now: no component waits until the pod has stopped. Its node cannot confirm that: the node is down, or the pod
//     still exists long after its grace period.
//   - Soon: its grace period is silentGrace.
//
// Later writes of the pod are refused, because the next engine has a higher generation.
type Deletion struct {
	Why       string
	Now, Soon bool
}

// Event is recorded about the volume once the status that it describes is written.
type Event struct{ Type, Reason, Message string }

// plan decides about a share.
//
//	wanted  pod                         state      pod      ticket
//	no      none                        stopped             removed
//	no      any                         stopping   deleted  stays
//	no      another owner's             stopped    –        removed; stopping, and stays, if that pod may have the device
//	yes     none, after a failure       error      –        stays
//	yes     none                        starting   created  stays
//	yes     another owner's             error      –        stays
//	yes     on a node that is down      error      deleted  stays
//	yes     being deleted               error      –        stays
//	any     does not stop               as above   deleted at once, stays
//	yes     has stopped                 error      deleted  stays
//	yes     for readers, with a writer  error      deleted  stays
//	yes     not answering (isDead)      error      deleted with a short grace, then at once; stays
//	yes     not ready yet               starting   –        on its node
//	yes     not ready yet, and mute     error      deleted with a short grace, then at once; stays
//	yes     not ready for far too long  error      deleted  on its node (starting.go)
//	yes     unready for a moment        running    –        on its node
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
	// A leader that has just started does not see the list at once. In that case the condition stays.
	if in.Clients != nil || types.FindCondition(p.Status.Conditions, types.ConditionClientsLimited).Status == longhorn.ConditionUnknown {
		p.clients(in, types.FindCondition(p.Status.Conditions, types.ConditionClientsLimited))
	}
	p.Events = append(eventsOf(in.Share.Status, p.Status), p.lossEvents()...)
	return p
}

// isWanted reports whether a workload uses the volume, and the volume may be served. It does not matter whether the
// volume can be served now. A volume is faulted only while it is attached for the share, so a share that stopped
// because of that would start again at once. The share's pod waits for the device, as any workload of a volume does.
func isWanted(in Input) bool {
	v := in.Volume
	return v != nil && v.DeletionTimestamp == nil && types.IsShared(v) && in.isUsed()
}

// isUsed reports whether a workload mounts the volume, or is about to do so, in any state of the volume.
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
		p.end(in, fmt.Sprintf("the share's pod does not answer, and has not stopped %v after its grace period", silentEndLimit))
	case pod.DeletionTimestamp != nil:
		p.is(longhorn.ShareManagerStateError, types.ReasonPodDeleting, fmt.Sprintf("the share's pod on node %s is being deleted; another pod replaces it", pod.Spec.NodeName), in.Now)
		p.end(in, fmt.Sprintf("the share's pod has not stopped %v after its grace period", endLimit))
	case in.NodeForeign:
		in.fail(p, types.ReasonShareNodeDown, fmt.Sprintf("the share's pod is on node %s, which is not a Longhorn node", pod.Spec.NodeName))
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		in.fail(p, types.ReasonPodFailed, "the share's pod stopped: "+types.WhyPodEnded(pod, containerName))
	// not the other way round: the nodes of readers also prevent them from writing
	case in.Parameters.ClientsWrite && servesReadersOnly(pod):
		why := fmt.Sprintf("the share's pod on node %s serves the volume read-only, and a new claim needs write access; another pod replaces it", pod.Spec.NodeName)
		p.is(longhorn.ShareManagerStateError, types.ReasonPodDeleting, why, in.Now)
		p.end(in, why)
	default:
		in.follow(p)
	}
}

// begin creates a pod. After several failures in a row it waits first.
func (in Input) begin(p *Plan) {
	if refused := cmp.Or(in.refusedName(), in.Refused); refused != "" {
		p.is(longhorn.ShareManagerStateError, types.ReasonShareParameterInvalid, refused, in.Now)
		return
	}
	// A failure in the future comes from a clock that was ahead: the time since then is not known.
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
		p.is(longhorn.ShareManagerStateStarting, types.ReasonShareDelayed, "the share's pod cannot be created: "+in.Unmade, in.Now)
		return
	}
	p.is(longhorn.ShareManagerStateStarting, types.ReasonPodStarting, "the share's pod is being created", in.Now)
}

// delayAfter is how long to wait after so many failures in a row. It is 0 after the first failure.
func delayAfter(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	return backoff.After(firstDelay, maxDelay, failures-2)
}

// steadyAfter is how long a pod must have served before the given number of earlier failures is forgotten. It is as
// long as clients waited for the pod. If nodes die minutes apart, the share is still able to serve, and its clients
// must not wait after each death.
func steadyAfter(failures int) time.Duration { return max(steady, delayAfter(failures)) }

// follow reports the state of a pod that has not stopped, and attaches the volume to its node.
func (in Input) follow(p *Plan) {
	pod := in.Pod
	if pod.Spec.NodeName != "" {
		p.Attachment = withTicket(in.Attachment, in.Share.Name, pod.Spec.NodeName)
	}
	ready, since := readiness(pod)
	serving := in.Share.Status.State == longhorn.ShareManagerStateRunning
	// silent: the pod still exists, because its deletion has failed. The next pod starts in another state.
	silent := p.isSilent()
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
		p.is(longhorn.ShareManagerStateRunning, types.ReasonPodRunning, fmt.Sprintf("the share's pod serves the volume on node %s", pod.Spec.NodeName), in.Now)
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
		p.is(longhorn.ShareManagerStateRunning, types.ReasonPodRunning, fmt.Sprintf("the share's pod serves the volume on node %s", pod.Spec.NodeName), in.Now)
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

// is sets the state and the reason.
func (p *Plan) is(state longhorn.ShareManagerState, reason, message string, now time.Time) {
	p.Status.State = state
	c := longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason, Message: message}
	if state == longhorn.ShareManagerStateRunning {
		c.Status = longhorn.ConditionTrue
	}
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, now)
}

// eventsOf are the Events about changes of the share's state.
func eventsOf(before, now longhorn.ShareManagerStatus) []Event {
	ready := types.FindCondition(now.Conditions, types.ConditionReady)
	message := ready.Message
	isNew := types.FindCondition(before.Conditions, types.ConditionReady).Reason != ready.Reason
	switch {
	case ready.Reason == types.ReasonShareDelayed && isNew:
		return []Event{{corev1.EventTypeWarning, types.EventShareDelayed, "The volume is not served over NFS yet: " + message}}
	case ready.Reason == types.ReasonShareForeignPod && isNew && now.State == longhorn.ShareManagerStateStopping:
		return []Event{{corev1.EventTypeWarning, types.EventShareForeignPod, "The volume is no longer served over NFS: " + message}}
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
			return []Event{{corev1.EventTypeNormal, types.EventShareStopped, "The volume is no longer served over NFS: " + message}}
		}
	}
	return nil
}

// endpoint is where clients mount the share; "" while its Service has no address, and the reason for that. The Service
// of an earlier share with that name exists until the garbage collector removes it; its address goes with it.
func (in Input) endpoint() (endpoint, why string) {
	switch {
	case in.Service == nil:
		return "", "the share's Service has no address yet"
	case !metav1.IsControlledBy(in.Service, in.Share):
		return "", fmt.Sprintf("Service %s exists, but this share manager does not own it; delete the Service if nothing needs it", in.Service.Name)
	}
	return types.ShareEndpoint(in.Service.Spec.ClusterIP, in.Share.Name), "the share's Service has no address yet"
}

// refusedName says why no Service can have the volume's name; "": a Service can.
func (in Input) refusedName() string {
	if types.CanBeShared(in.Share.Name) {
		return ""
	}
	return fmt.Sprintf("name: %q %s", in.Share.Name, types.ShareNameRule)
}

// withTicket returns the attachment with the share's ticket for a node, or without it if node is "". It returns nil if
// there is nothing to change.
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
		// The answer to an earlier ticket with this id must not count as an answer to this ticket.
		Generation: 1 + max(have.Generation, va.Status.AttachmentTicketStatuses[id].Generation),
	}
	return u
}
