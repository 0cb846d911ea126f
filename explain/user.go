package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// MountEvents are the reasons of the Events with which Kubernetes reports that a volume of a pod cannot be attached
// or mounted.
var MountEvents = []string{"FailedMount", "FailedAttachVolume", "FailedMapVolume"}

// usersOf returns the pods that use a claim and have not terminated.
func usersOf(s *Snapshot, c *corev1.PersistentVolumeClaim) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range s.UserPods {
		if pod.Namespace == c.Namespace && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && volumeIn(pod, c.Name) != "" {
			pods = append(pods, pod)
		}
	}
	return pods
}

// volumeIn returns the name of a claim's volume within a pod; "": the pod does not use the claim.
func volumeIn(pod *corev1.Pod, claim string) string {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim || v.Ephemeral != nil && pod.Name+"-"+v.Name == claim {
			return v.Name
		}
	}
	return ""
}

// ofUsers explains the pods that cannot start because of a claim's volume.
func ofUsers(s *Snapshot, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []Finding {
	if pv == nil || !isOurs(pv) {
		return nil
	}
	var found []Finding
	for _, pod := range usersOf(s, c) {
		if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
			continue
		}
		p := s.place("podns", pod.Namespace, "userpod", pod.Name, "claim", c.Namespace+"/"+c.Name, "podnode", pod.Spec.NodeName)
		f := Finding{Object: Object{Kind: KindPod, Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName}}
		events := mountEvents(s, pod, volumeIn(pod, c.Name), pv.Name)
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case pod.Spec.NodeName == "":
			f.Severity, f.Reason, f.What, f.Why = Warning, "Unschedulable", "pod {podns}/{userpod} uses claim {claim} and has no node yet", nonempty(podTrouble(pod))
			f.Next = []Step{{"See why no node fits it", "kubectl -n {podns} describe pod {userpod}"}}
		case len(events) > 0:
			f.Severity, f.Reason, f.What = Broken, events[0].Reason, "pod {podns}/{userpod} cannot use claim {claim} on node {podnode}"
			for _, e := range events {
				plain := plainMessage(e.Message)
				f.Why = append(f.Why, e.Reason+": "+plain)
			}
			f.Next = []Step{{"Fix what the lines above name first; the mount is retried automatically", "kubectl -n {podns} describe pod {userpod}"}}
			if strings.Contains(events[len(events)-1].Message+events[0].Message, multiAttach) {
				f.Next = otherPodSteps(s, c, pv)
			}
		case !isRunning(pod):
			f.Severity, f.Reason, f.What, f.Why = Info, "PodStarting", "pod {podns}/{userpod}, which uses claim {claim}, has not started on node {podnode}", nonempty(podTrouble(pod))
			f.Next = []Step{{"If this lasts, see what it waits for", "kubectl -n {podns} describe pod {userpod}"}}
		default:
			continue
		}
		f.What, f.Next = p.fill(f.What), p.steps(f.Next)
		found = append(found, f)
	}
	return found
}

// multiAttach is how Kubernetes starts its message that a volume is attached to another node.
const multiAttach = "Multi-Attach error"

// otherPodSteps returns the steps for a volume that only one node may use, and that another node uses.
func otherPodSteps(s *Snapshot, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []Step {
	where := ""
	if v := volumeOf(s, pv); v != nil && v.Status.CurrentNodeID != "" {
		where = " on node " + v.Status.CurrentNodeID
	}
	return []Step{
		{"Delete the other pods that use the claim" + where + ", or run this pod on that node; a Deployment needs the strategy Recreate", place{"ns": c.Namespace, "name": c.Name}.command("kubectl -n {ns} describe pvc {name}")},
		{"If pods on several nodes must use it at the same time, create a claim with access mode ReadWriteMany, and copy the data", ""},
	}
}

// waitingOn returns the nodes of the pods that use a claim and have not started.
func waitingOn(s *Snapshot, c *corev1.PersistentVolumeClaim) []string {
	var nodes []string
	if c == nil {
		return nil
	}
	for _, pod := range usersOf(s, c) {
		if !isRunning(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes
}

// isRunning reports whether a container of a pod runs or has run: then its volumes are mounted.
func isRunning(pod *corev1.Pod) bool {
	ran := func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	}
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, ran) || slices.ContainsFunc(pod.Status.ContainerStatuses, ran)
}

// mountEvents returns the last Event of each reason that says why a pod has not got a volume. It identifies the
// volume by its name in the pod, or by its PersistentVolume, because other volumes of the pod fail for other reasons.
func mountEvents(s *Snapshot, pod *corev1.Pod, volume, pv string) []*corev1.Event {
	if isRunning(pod) {
		return nil
	}
	about := corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	var events []*corev1.Event
	for _, reason := range MountEvents {
		last := lastEvent(s, about, func(e *corev1.Event) bool { return e.Reason == reason && isAboutVolume(e.Message, volume, pv) })
		if last != nil {
			events = append(events, last)
		}
	}
	return events
}

// isAboutVolume reports whether the message of an Event is about a volume. The kubelet writes `volume "PV"`, or lists
// names of the pod as `unmounted volumes=[data logs]`.
func isAboutVolume(message, volume, pv string) bool {
	if strings.Contains(message, `"`+pv+`"`) {
		return true
	}
	_, list, found := strings.Cut(message, "unmounted volumes=[")
	list, _, _ = strings.Cut(list, "]")
	return found && slices.Contains(strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' }), volume)
}

// ofUsedNodes explains the nodes on which a volume is used, or should be used, as far as they prevent its use. used
// are the nodes of the pods that wait for it.
func ofUsedNodes(s *Snapshot, v *longhorn.Volume, used []string) []Finding {
	clients := slices.Clone(used) // nodes that mount the share of a shared volume
	used = append(used, v.Status.CurrentNodeID, v.Spec.NodeID)
	if va := named(s.Attachments, v.Name); va != nil {
		for _, t := range va.Spec.AttachmentTickets {
			used = append(used, t.NodeID)
			if t.Type == longhorn.AttacherTypeCSI {
				clients = append(clients, t.NodeID)
			}
		}
	}
	if sm := named(s.ShareManagers, v.Name); sm != nil && types.IsShared(v) {
		used = append(used, sm.Status.CurrentNode)
	}
	slices.Sort(used)
	var found []Finding
	for _, name := range slices.Compact(used) {
		n := s.node(name)
		switch {
		case name == "" || n == nil && !s.sees(ResourceNodes):
			continue
		case n == nil:
			found = append(found, Finding{
				Object{Kind: KindNode, Name: name},
				Broken, "NodeMissing", fmt.Sprintf("node %s, where volume %s is to be used, does not belong to this installation", name, s.volumeText(v.Name)), nil,
				s.place("node", name).steps([]Step{seeDaemon, {"See why the pods of the installation are not there, for example because of a taint", describeKubeNode.Command}}),
			})
			continue
		}
		for _, f := range append(ofNode(s, n), ofInstanceManager(s, n)...) {
			if f.Severity != Info && (f.Reason != types.ReasonNFSClientNotFound || types.IsShared(v) && slices.Contains(clients, name)) {
				found = append(found, f)
			}
		}
	}
	return found
}
