package sharemanager

import (
	"cmp"
	"maps"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// formerLimit is how long the Service leads to the address of a pod that no longer exists. A new pod has its address
// after a few seconds. Network plugins reuse the address of a deleted pod only later: AWS's plugin after 30 s, most
// plugins after all other addresses of their range. A refusal costs clients 3 s, which matters little after that time.
const formerLimit = 30 * time.Second

// lead plans the EndpointSlice of the share: the address to which the Service leads.
//
// kube-proxy refuses connections to a Service without an endpoint, and a Linux client that is refused waits for 3 s. If
// a connection gets no answer, the client tries again after 1 s. So while a pod is being replaced, the slice keeps the
// former pod's address. One write replaces it by the next pod's address. The API server refuses that write if another
// leader has written the slice since.
//
//	pod of the share           the slice has            its owner is
//	has an address             that address             the pod
//	is stopping, has stopped   its address              the ShareManager
//	has no address yet, gone   the address that it had  the ShareManager; no address after formerLimit, or once another
//	                                                    pod has the address
//	not wanted, stopping       the same as before       unchanged
//	not wanted, gone           – (deleted)
//
// The owner makes the slice correct under a leader of an earlier release, which does not know the slice. When that
// leader deletes the pod, the garbage collector deletes the slice with it. The next pod has the labels that the Service
// selects, so Kubernetes writes its address. The Service keeps its selector for that reason. The selector does not
// match the pods that this release creates, so Kubernetes adds no address to ours.
func (p *Plan) lead(in Input) {
	p.Slice, p.DropSlice = nil, false
	switch {
	case in.NoSlices || in.Service == nil:
		return
	case !metav1.IsControlledBy(in.Service, in.Share): // its clients must not come here
		p.DropSlice = in.Slice != nil
		return
	case in.Slice != nil && in.Slice.AddressType != in.addressType():
		p.DropSlice = true // the type never changes: the next sync creates another slice
		return
	}
	pod := in.ownPod()
	if !isWanted(in) {
		p.DropSlice = in.Slice != nil && (pod == nil || !shows(in.Slice, pod))
		return
	}
	want := in.newSlice()
	address := addressOfPod(pod, in.addressType())
	switch { // a pod that has stopped is being deleted
	case address != "" && pod.DeletionTimestamp == nil && p.DeletePod == nil:
		want.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
		want.Endpoints = []discoveryv1.Endpoint{endpointTo(pod, address)}
	default:
		in.keepFormer(p, want, pod, address)
	}
	if in.Slice == nil {
		p.Slice = want
		return
	}
	if changed := rewritten(in.Slice, want); !equality.Semantic.DeepEqual(changed, in.Slice) {
		p.Slice = changed
	}
}

// keepFormer fills a slice while no pod serves.
func (in Input) keepFormer(p *Plan, want *discoveryv1.EndpointSlice, pod *corev1.Pod, address string) {
	until := in.formerUntil(pod)
	left := until.Sub(in.Now)
	switch {
	case left <= 0 || in.AddressTaken:
		return
	case address != "":
		want.Endpoints = []discoveryv1.Endpoint{endpointTo(pod, address)}
	case addressIn(in.Slice) != "":
		want.Endpoints = in.Slice.DeepCopy().Endpoints[:1]
	default:
		return
	}
	want.Labels[types.LabelFormerPodUntil] = strconv.FormatInt(until.Unix(), 10)
	p.wakeAfter(left)
}

// formerAddress is the address that a slice keeps while no pod serves: the address of the share's pod, or of the
// previous pod. "": there is none.
func (in Input) formerAddress() string {
	if in.Service == nil {
		return ""
	}
	return cmp.Or(addressOfPod(in.ownPod(), in.addressType()), addressIn(in.Slice))
}

// formerUntil is until when the slice has the address of a former pod. While that pod exists and its container may run,
// no other pod gets its address, so the time is extended.
func (in Input) formerUntil(pod *corev1.Pod) time.Time {
	limit := in.Now.Add(formerLimit)
	if in.Slice == nil {
		return limit
	}
	seconds, err := strconv.ParseInt(in.Slice.Labels[types.LabelFormerPodUntil], 10, 64)
	until := time.Unix(seconds, 0)
	isThere := pod != nil && shows(in.Slice, pod) && !hasEnded(pod)
	switch {
	case err != nil && addressIn(in.Slice) != "": // it was the address of a pod that served
		return limit
	case err != nil && pod != nil && !hasEnded(pod): // its address was never written
		return limit
	case err != nil:
		return in.Now
	case until.After(limit), isThere && until.Before(in.Now.Add(formerLimit/2)):
		return limit
	}
	return until
}

// newSlice is the share's slice without an endpoint.
func (in Input) newSlice() *discoveryv1.EndpointSlice {
	labels := types.ShareManagerSelector(in.Share.Name)
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = in.Share.Name, types.EndpointSliceManager
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Share.Namespace, Name: types.ShareSliceName(in.Share.Name), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{ownedBy(in.Share)},
		},
		AddressType: in.addressType(),
		Ports:       []discoveryv1.EndpointPort{{Name: new("nfs"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(types.NFSPort))}},
	}
}

// rewritten is a slice with the content of another slice. Its other fields stay.
func rewritten(slice, want *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	u := slice.DeepCopy()
	if u.Labels == nil {
		u.Labels = map[string]string{}
	}
	delete(u.Labels, types.LabelFormerPodUntil)
	maps.Copy(u.Labels, want.Labels)
	u.OwnerReferences, u.Ports, u.Endpoints = want.OwnerReferences, want.Ports, want.Endpoints
	return u
}

// endpointTo returns an endpoint that counts as ready in any state of the pod. Clients try to reach the next server
// from the moment its pod has an address. Before that moment they try to reach the former server.
func endpointTo(pod *corev1.Pod, address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		NodeName:   new(pod.Spec.NodeName),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
}

// addressIn is the address that a slice has; "": it has none.
func addressIn(slice *discoveryv1.EndpointSlice) string {
	if slice == nil || len(slice.Endpoints) == 0 || len(slice.Endpoints[0].Addresses) == 0 {
		return ""
	}
	return slice.Endpoints[0].Addresses[0]
}

// shows reports whether a slice has the address of this very pod.
func shows(slice *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	return addressIn(slice) != "" && slice.Endpoints[0].TargetRef != nil && slice.Endpoints[0].TargetRef.UID == pod.UID
}

// ownPod is the share's pod; nil: it does not exist, or it belongs to another owner.
func (in Input) ownPod() *corev1.Pod {
	if in.Pod == nil || !metav1.IsControlledBy(in.Pod, in.Share) {
		return nil
	}
	return in.Pod
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// addressType is the family of the Service's first address, which is the one that clients mount.
func (in Input) addressType() discoveryv1.AddressType {
	address, _ := netip.ParseAddr(in.Service.Spec.ClusterIP)
	isV6 := address.Is6()
	if families := in.Service.Spec.IPFamilies; len(families) > 0 {
		isV6 = families[0] == corev1.IPv6Protocol
	}
	if isV6 {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// addressOfPod is a pod's address of a family; "": it has none.
func addressOfPod(pod *corev1.Pod, family discoveryv1.AddressType) string {
	if pod == nil {
		return ""
	}
	for _, text := range addressesOfPod(pod) {
		if a, err := netip.ParseAddr(text); err == nil && a.Is6() == (family == discoveryv1.AddressTypeIPv6) {
			return text
		}
	}
	return ""
}

func addressesOfPod(pod *corev1.Pod) []string {
	addresses := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		addresses = append(addresses, ip.IP)
	}
	return addresses
}
