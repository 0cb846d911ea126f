package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 8, 14, 12, 0, 0, 0, time.UTC)

// situation is an Input under construction.
type situation struct{ Input }

// used is a shared volume that a workload on node b uses, without a pod.
func used() *situation {
	s := &situation{Input{
		Share:      &longhorn.ShareManager{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol", UID: "share"}, Spec: longhorn.ShareManagerSpec{Image: "image:1"}},
		Volume:     &longhorn.Volume{ObjectMeta: metav1.ObjectMeta{Name: "vol", UID: "volume"}, Spec: longhorn.VolumeSpec{AccessMode: longhorn.AccessModeReadWriteMany}},
		Attachment: &longhorn.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "vol"}},
		Owner:      "leader", Now: now,
		Settings: settings.PodSettings{settings.PriorityClass: "", settings.TaintToleration: "", settings.SystemManagedNodeSelector: ""},
	}}
	s.Service = newService(s.Share)
	s.Service.Spec.ClusterIP = "10.0.0.9"
	return s.ticket("csi-1", longhorn.AttacherTypeCSI, "b")
}

func (s *situation) ticket(id string, kind longhorn.AttacherType, node string) *situation {
	if s.Attachment.Spec.AttachmentTickets == nil {
		s.Attachment.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
	}
	s.Attachment.Spec.AttachmentTickets[id] = longhorn.AttachmentTicket{ID: id, Type: kind, NodeID: node, Generation: 3}
	return s
}

// unused removes the workload.
func (s *situation) unused() *situation {
	delete(s.Attachment.Spec.AttachmentTickets, "csi-1")
	return s
}

func (s *situation) was(state longhorn.ShareManagerState) *situation {
	s.Share.Status.State = state
	if state == longhorn.ShareManagerStateRunning {
		s.Share.Status.Endpoint = "nfs://10.0.0.9/vol"
	}
	return s
}

// failed sets the number of failed pods, and how long ago the last one failed.
func (s *situation) failed(times int, ago time.Duration) *situation {
	s.Share.Status.Failures, s.Share.Status.FailedAt = times, types.Timestamp(now.Add(-ago))
	return s
}

// pod adds a pod on node a, with that report of its scheduler and kubelet.
func (s *situation) pod(phase corev1.PodPhase, change ...func(*corev1.Pod)) *situation {
	s.Pod = newPod(s.Input)
	s.Pod.UID, s.Pod.Spec.NodeName, s.Pod.Status.Phase = "pod", "a", phase
	s.Pod.CreationTimestamp = metav1.Time{Time: now.Add(-time.Hour)}
	for _, c := range change {
		c(s.Pod)
	}
	if at := s.Pod.DeletionTimestamp; at != nil { // the clocks agree, and the grace period is 0
		s.Ending = at.Time
	}
	return s
}

// is makes a pod ready, or unready, for that time.
func is(ready corev1.ConditionStatus, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Time{Time: now.Add(-ago)}}}
	}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }

// overdue is a deletion that should have been completed before.
func overdue(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)} }
}

// forReaders changes a pod to its form while all claims only read.
func forReaders(p *corev1.Pod) {
	p.Spec.Containers[0].Args = append(p.Spec.Containers[0].Args, readersOnly)
}

// since makes a pod scheduled, or unscheduled, for that time.
func since(scheduled corev1.ConditionStatus, ago time.Duration, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.CreationTimestamp = metav1.Time{Time: now.Add(-ago)}
		if scheduled == corev1.ConditionTrue {
			p.CreationTimestamp = metav1.Time{Time: now.Add(-24 * time.Hour)} // it waited for a node, which does not count
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: scheduled, Message: message, LastTransitionTime: metav1.Time{Time: now.Add(-ago)},
		})
	}
}

// runs makes the pod's container run.
func runs(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// waits makes the pod's container wait for its image.
func waits(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}
}

func attachedTo(node string) func(*Input) {
	return func(in *Input) {
		in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateAttached, node
	}
}

func anothers(p *corev1.Pod) { p.OwnerReferences = nil }

func onNoNode(p *corev1.Pod) { p.Spec.NodeName = "" }

func (s *situation) with(change func(*Input)) *situation {
	change(&s.Input)
	return s
}

func TestPlan(t *testing.T) {
	const ticketStays = "stays"
	ours := types.ShareTicketID("vol")
	for name, tc := range map[string]struct {
		in *situation
		// The plan's result. ticket is the node of the changed ticket, "" if it is removed.
		state    longhorn.ShareManagerState
		endpoint string
		creates  bool
		deletes  string // "", "gently", "soon" or "now"
		ticket   string
		failures int
		after    time.Duration
		says     string
	}{
		"a claim that may write comes → a pod for readers is replaced":            {in: used().pod(corev1.PodRunning, is("True", 0), forReaders).was("running").with(func(in *Input) { in.Parameters.ClientsWrite = true }), state: "error", deletes: "gently", ticket: ticketStays, says: "the share's pod on node a serves the volume read-only, and a new claim needs write access; another pod replaces it"},
		"no claim is known → a pod for readers stays":                             {in: used().pod(corev1.PodRunning, is("True", 0), forReaders).was("running"), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a"},
		"all claims only read → a pod for writers stays":                          {in: used().pod(corev1.PodRunning, is("True", 0)).was("running").with(func(in *Input) { in.Parameters.ClientsReadOnly = true }), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a"},
		"no workload, no pod → stopped":                                           {in: used().unused(), state: "stopped", ticket: ticketStays, says: "no workload uses the volume"},
		"no workload, no pod, still attached → let go":                            {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").was("stopping"), state: "stopped", ticket: ""},
		"no workload, a pod → it ends first, the device stays":                    {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning).was("running"), state: "stopping", deletes: "gently", ticket: ticketStays},
		"no workload, a pod that ends → waits":                                    {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, deleted).was("stopping"), state: "stopping", ticket: ticketStays, after: endLimit},
		"no workload, a pod that does not end → it goes now":                      {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, overdue(endLimit)).was("stopping"), state: "stopping", deletes: "now", ticket: ticketStays},
		"no workload, a pod that ends on a node that is down → it goes now":       {in: used().unused().pod(corev1.PodRunning, deleted).with(func(in *Input) { in.NodeDown = true }), state: "stopping", deletes: "now", ticket: ticketStays},
		"only a person's ticket → no share":                                       {in: used().unused().ticket("", longhorn.AttacherTypeAPI, "a"), state: "stopped", ticket: ticketStays},
		"the volume is faulted → its pod is created, and waits":                   {in: used().with(func(in *Input) { in.Volume.Status.Robustness = longhorn.VolumeRobustnessFaulted }), state: "starting", creates: true, ticket: ticketStays},
		"the volume is faulted under its workloads → its pod stays":               {in: used().pod(corev1.PodRunning, is("True", 0)).was("running").with(func(in *Input) { in.Volume.Status.Robustness = longhorn.VolumeRobustnessFaulted }), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a"},
		"no workload any more, failed a while ago → the failures still count":     {in: used().unused().was("error").failed(7, time.Hour), state: "stopped", ticket: ticketStays, failures: 7, says: "no workload uses the volume"},
		"no workload any more, failed long ago → they are forgotten":              {in: used().unused().was("stopped").failed(7, time.Hour+time.Second), state: "stopped", ticket: ticketStays},
		"used, no pod, the last failure is in the future → made":                  {in: used().was("error").failed(4, -time.Hour), state: "starting", creates: true, ticket: ticketStays, failures: 4},
		"used, no Service can have the name → says so":                            {in: used().with(func(in *Input) { in.Share.Name = "1st" }), state: "error", ticket: ticketStays, says: `name: "1st" must start with a letter if accessMode is rwx: the Service of a shared volume has the volume's name`},
		"ready, the Service is an earlier share's → its address is not told":      {in: used().pod(corev1.PodRunning, is("True", 0)).with(func(in *Input) { in.Service.OwnerReferences[0].UID = "earlier" }), state: "starting", ticket: "a", after: time.Minute, says: "Service vol exists, but this share manager does not own it; delete the Service if nothing needs it"},
		"the volume is being deleted → its pod ends":                              {in: used().pod(corev1.PodRunning).with(func(in *Input) { in.Volume.DeletionTimestamp = &metav1.Time{Time: now} }), state: "stopping", deletes: "gently", ticket: ticketStays},
		"the volume is gone → its pod ends":                                       {in: used().pod(corev1.PodRunning).with(func(in *Input) { in.Volume = nil }), state: "stopping", deletes: "gently", ticket: ticketStays},
		"the volume is shared no more → its pod ends":                             {in: used().pod(corev1.PodRunning).with(func(in *Input) { in.Volume.Spec.AccessMode = "rwo" }), state: "stopping", deletes: "gently", ticket: ticketStays},
		"used, no pod → made":                                                     {in: used(), state: "starting", creates: true, ticket: ticketStays},
		"used, no pod, after one failure → made at once":                          {in: used().was("error").failed(1, 0), state: "starting", creates: true, ticket: ticketStays, failures: 1},
		"used, no pod, after two failures → waits for a second":                   {in: used().was("error").failed(2, 0), state: "error", ticket: ticketStays, failures: 2, after: time.Second},
		"used, no pod, after four failures → waits":                               {in: used().was("error").failed(4, time.Second), state: "error", ticket: ticketStays, failures: 4, after: 3 * time.Second},
		"used, no pod, four failures long ago → made":                             {in: used().was("error").failed(4, 5*time.Second), state: "starting", creates: true, ticket: ticketStays, failures: 4},
		"used, no pod, after a hundred failures → at most 2 min":                  {in: used().was("error").failed(100, 0), state: "error", ticket: ticketStays, failures: 100, after: 2 * time.Minute},
		"used, a parameter is refused → says so":                                  {in: used().with(func(in *Input) { in.Refused = "shareManagerNodeSelector: no" }), state: "error", ticket: ticketStays, says: "shareManagerNodeSelector: no"},
		"used, a pod of another → waits":                                          {in: used().pod(corev1.PodRunning, func(p *corev1.Pod) { p.OwnerReferences = nil }), state: "error", ticket: ticketStays, after: hiddenDelay, says: "pod share-manager-vol exists, but this share manager does not own it; delete the pod if nothing needs it"},
		"used, a pod without a node → starting":                                   {in: used().pod(corev1.PodPending, onNoNode, since("False", 0, "0/3 nodes")), state: "starting", ticket: ticketStays, after: time.Minute, says: "the share's pod has no node: 0/3 nodes"},
		"used, a pod on a node → the volume comes there":                          {in: used().pod(corev1.PodPending, since("True", 0, "")), state: "starting", ticket: "a", after: time.Minute, says: "pod share-manager-vol is starting"},
		"used, a pod on another node than before → it follows":                    {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "z").pod(corev1.PodPending, since("True", 0, "")), state: "starting", ticket: "a", after: time.Minute},
		"used, a pod that runs and waits → starting":                              {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, is("False", time.Hour), since("True", 0, "")).was("starting"), state: "starting", ticket: ticketStays, after: time.Minute},
		"used, a pod that is ready → running":                                     {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, is("True", 0)).was("starting"), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: ticketStays, says: "the share's pod serves the volume on node a"},
		"ready, an address of IPv6 → in brackets":                                 {in: used().pod(corev1.PodRunning, is("True", 0)).with(func(in *Input) { in.Service.Spec.ClusterIP = "fd00::9" }), state: "running", endpoint: "nfs://[fd00::9]/vol", ticket: "a"},
		"ready, the Service has no address → starting":                            {in: used().pod(corev1.PodRunning, is("True", 0)).with(func(in *Input) { in.Service.Spec.ClusterIP = "None" }), state: "starting", ticket: "a", after: time.Minute, says: "the share's Service has no address yet"},
		"ready since a moment, after failures → they still count":                 {in: used().pod(corev1.PodRunning, is("True", 29*time.Second)).was("running").failed(2, time.Hour), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a", failures: 2, after: time.Second},
		"ready for 30 s, after two failures → they are forgotten":                 {in: used().pod(corev1.PodRunning, is("True", 30*time.Second)).was("running").failed(2, time.Hour), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a"},
		"ready for less than clients waited, after many → they still count":       {in: used().pod(corev1.PodRunning, is("True", 119*time.Second)).was("running").failed(20, time.Hour), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a", failures: 20, after: time.Second},
		"ready for as long as clients waited, after many → they are forgotten":    {in: used().pod(corev1.PodRunning, is("True", 2*time.Minute)).was("running").failed(20, time.Hour), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a"},
		"served, unready for a moment → still running":                            {in: used().pod(corev1.PodRunning, is("False", 5*time.Second)).was("running"), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a", after: unreadyLimit - 5*time.Second},
		"served, unready for too long → another, and soon":                        {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, is("False", unreadyLimit)).was("running"), state: "error", deletes: "soon", ticket: ticketStays, failures: 1, says: "the share's pod on node a has not answered for 15s"},
		"served, unready for a moment, as this process saw → still running":       {in: used().pod(corev1.PodRunning, is("False", time.Hour)).was("running").with(func(in *Input) { in.Unready = now.Add(-5 * time.Second) }), state: "running", endpoint: "nfs://10.0.0.9/vol", ticket: "a", after: unreadyLimit - 5*time.Second},
		"served, unready for too long, as this process saw → another":             {in: used().pod(corev1.PodRunning, is("False", -time.Hour)).was("running").with(func(in *Input) { in.Unready = now.Add(-unreadyLimit) }), state: "error", deletes: "soon", ticket: "a", failures: 1},
		"the pod failed → another one":                                            {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodFailed).was("running"), state: "error", deletes: "gently", ticket: ticketStays, failures: 1},
		"the pod succeeded, though it shall run → another one":                    {in: used().pod(corev1.PodSucceeded).was("running"), state: "error", deletes: "gently", ticket: ticketStays, failures: 1},
		"the pod failed, told already → counts once":                              {in: used().pod(corev1.PodFailed).was("error").failed(1, 0), state: "error", deletes: "gently", ticket: ticketStays, failures: 1},
		"the node is down → the pod goes now, the volume stays for the next":      {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, is("True", time.Hour)).was("running").with(func(in *Input) { in.NodeDown = true }), state: "error", deletes: "now", ticket: ticketStays, failures: 1, says: "node a does not answer"},
		"the node is down, and the pod is being deleted → now":                    {in: used().pod(corev1.PodRunning, deleted).was("error").with(func(in *Input) { in.NodeDown = true }), state: "error", deletes: "now", ticket: ticketStays},
		"the pod is evicted → waits for its end, no failure":                      {in: used().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, deleted, is("True", time.Hour)).was("running"), state: "error", ticket: ticketStays, after: endLimit},
		"the pod is evicted, and about to be overdue → waits":                     {in: used().pod(corev1.PodRunning, overdue(endLimit-time.Second)).was("error"), state: "error", ticket: ticketStays, after: time.Second},
		"the pod is evicted, and does not end → it goes now":                      {in: used().pod(corev1.PodRunning, overdue(endLimit), is("False", time.Hour)).was("error"), state: "error", deletes: "now", ticket: ticketStays},
		"no workload, another's pod may have the device → told, the device stays": {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers).was("stopping"), state: "stopping", ticket: ticketStays, after: hiddenDelay, says: "no workload uses the volume; the volume stays attached: pod share-manager-vol exists, but this share manager does not own it; delete the pod if nothing needs it"},
		"no workload, another's pod ends too late → is left alone":                {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers, overdue(time.Hour)).was("stopping"), state: "stopping", ticket: ticketStays, after: hiddenDelay},
		"no workload, another's pod has ended → let go":                           {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }).was("stopping"), state: "stopped", ticket: "", after: hiddenDelay, says: "no workload uses the volume"},
		"no workload, another's pod has succeeded → let go":                       {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }).was("stopping"), state: "stopped", ticket: "", after: hiddenDelay},
		"no workload, another's pod is elsewhere → let go":                        {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers, func(p *corev1.Pod) { p.Spec.NodeName = "z" }).was("stopping"), state: "stopped", ticket: "", after: hiddenDelay},
		"no workload, another's pod is none that we made → let go":                {in: used().unused().ticket(ours, longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, anothers, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "shop" }).was("stopping"), state: "stopped", ticket: "", after: hiddenDelay},
		"no workload, not attached, another's pod → nothing to keep":              {in: used().unused().pod(corev1.PodRunning, anothers).was("stopping"), state: "stopped", ticket: ticketStays, after: hiddenDelay},
		"the pod is on a node without a daemon → another one":                     {in: used().pod(corev1.PodPending).with(func(in *Input) { in.NodeForeign = true }), state: "error", deletes: "gently", ticket: ticketStays, failures: 1, says: "the share's pod is on node a, which is not a Longhorn node"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(tc.in.Input)
			assert.Equal(t, tc.state, p.Status.State)
			assert.Equal(t, tc.endpoint, p.Status.Endpoint)
			assert.Equal(t, tc.creates, p.CreatePod != nil, "a pod is made")
			deletes := ""
			if p.DeletePod != nil {
				deletes = map[bool]string{false: "gently", true: "now"}[p.DeletePod.Now]
				if p.DeletePod.Soon && !p.DeletePod.Now {
					deletes = "soon"
				}
			}
			assert.Equal(t, tc.deletes, deletes, "the pod is deleted")
			if tc.ticket == ticketStays {
				assert.Nil(t, p.Attachment, "the ticket stays as it is")
			} else {
				require.NotNil(t, p.Attachment)
				assert.Equal(t, tc.ticket, p.Attachment.Spec.AttachmentTickets[ours].NodeID)
			}
			assert.Equal(t, tc.failures, p.Status.Failures)
			assert.Equal(t, tc.after, p.After)
			ready := types.FindCondition(p.Status.Conditions, types.ConditionReady)
			assert.Equal(t, tc.state == longhorn.ShareManagerStateRunning, ready.Status == longhorn.ConditionTrue)
			if tc.says != "" {
				assert.Equal(t, tc.says, ready.Message)
			}
			assert.Equal(t, "leader", p.Status.OwnerID)
		})
	}
}

// The status is written before the pod is deleted. If the deletion fails, or a crash prevents it, the next plan tries
// again.
func TestAPodThatDoesNotAnswerIsDeletedAgainUntilItIsGone(t *testing.T) {
	s := used().ticket(types.ShareTicketID("vol"), longhorn.AttacherTypeShareManager, "a").pod(corev1.PodRunning, is("False", unreadyLimit)).was("running")
	first := plan(s.Input)
	require.Equal(t, longhorn.ShareManagerStateError, first.Status.State)
	s.Share.Status = first.Status
	again := plan(s.Input)
	assert.Equal(t, longhorn.ShareManagerStateError, again.Status.State)
	require.NotNil(t, again.DeletePod, "it stands still, and nobody takes its place")
	assert.Equal(t, []bool{true, false}, []bool{again.DeletePod.Soon, again.DeletePod.Now}, "its kubelet has not had the time yet")
	assert.Equal(t, 1, again.Status.Failures, "counted once")
	assert.Empty(t, again.Events, "told once")

	s.pod(corev1.PodRunning, is("True", 0))
	assert.Equal(t, longhorn.ShareManagerStateRunning, plan(s.Input).Status.State, "it answers again")

	s.Pod = nil
	s.Share.Status = plan(s.Input).Status
	s.pod(corev1.PodPending, is("False", time.Hour), since("True", 0, ""))
	assert.Nil(t, plan(s.Input).DeletePod, "the next pod is another one")
}

func TestTheTicketOfTheShareIsANewOneEachTime(t *testing.T) {
	in := used().ticket(types.ShareTicketID("vol"), longhorn.AttacherTypeShareManager, "z")
	in.Attachment.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{types.ShareTicketID("vol"): {Generation: 7, Satisfied: true}}
	got := plan(in.pod(corev1.PodPending).Input).Attachment.Spec.AttachmentTickets
	assert.Equal(t, longhorn.AttachmentTicket{
		ID: "share-manager-controller-vol", Type: longhorn.AttacherTypeShareManager, NodeID: "a",
		Parameters: map[string]string{"disableFrontend": "false"}, Generation: 8,
	}, got["share-manager-controller-vol"])
	assert.Contains(t, got, "csi-1", "others' tickets stay")
}

func TestEventsOfAShare(t *testing.T) {
	ready := used().pod(corev1.PodRunning, is("True", 0)).was("starting")
	assert.Equal(t, []Event{{"Normal", "ShareRunning", "The volume is served over NFS at nfs://10.0.0.9/vol, from node a"}}, plan(ready.Input).Events)
	assert.Empty(t, plan(ready.was("running").Input).Events, "told once")
	down := used().pod(corev1.PodRunning).was("running").with(func(in *Input) { in.NodeDown = true })
	assert.Equal(t, []Event{{"Warning", "ShareFailed", "The volume is not served over NFS: node a does not answer"}}, plan(down.Input).Events)
	assert.Equal(t, []Event{{"Normal", "ShareStopped", "The volume is no longer served over NFS: no workload uses the volume"}}, plan(used().unused().was("stopping").Input).Events)
	assert.Empty(t, plan(used().unused().Input).Events, "a new share was never served")
}

func TestTheServiceIsMadeOnceForAll(t *testing.T) {
	in := used().unused()
	in.Service = nil
	made := plan(in.Input).CreateService
	require.NotNil(t, made, "also while nobody uses the volume")
	in.NoSlices = true
	assert.Equal(t, made.Spec.Selector, newPod(in.Input).Labels, "where Kubernetes is to write the pod's address")
	in.NoSlices = false
	assert.NotContains(t, newPod(in.Input).Labels, types.LabelManagedBy, "where the leader writes it, and Kubernetes must not")
	assert.Contains(t, made.Spec.Selector, types.LabelManagedBy)
	assert.EqualValues(t, 2049, made.Spec.Ports[0].Port)
	assert.Empty(t, made.Spec.ClusterIP, "the first one has any address")
	assert.Nil(t, plan(used().Input).CreateService)
	in.Share.Name = "1st"
	assert.Nil(t, plan(in.Input).CreateService, "the API server takes no such name")
}

// Clients have mounted that address.
func TestAServiceThatWasDeletedComesBackWithItsAddress(t *testing.T) {
	for endpoint, want := range map[string]string{"nfs://10.0.0.9/vol": "10.0.0.9", "nfs://[fd00::9]/vol": "fd00::9", "": ""} {
		s := used().pod(corev1.PodRunning, is("True", time.Hour)).was("running")
		s.Service, s.Share.Status.Endpoint = nil, endpoint
		p := plan(s.Input)
		require.NotNil(t, p.CreateService)
		assert.Equal(t, want, p.CreateService.Spec.ClusterIP)

		// of a ShareManager that was deleted
		s.Share.Annotations = map[string]string{types.AnnotationShareEndpoint: "nfs://10.0.0.8/vol"}
		if want == "" {
			want = "10.0.0.8"
		}
		assert.Equal(t, want, plan(s.Input).CreateService.Spec.ClusterIP)
	}
}
