package sharemanager

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ClientsInput is everything that the list of clients depends on. Nothing in it is modified.
type ClientsInput struct {
	Allowed   types.ShareClients
	KubeNodes []*corev1.Node
	// Nodes by name.
	Nodes map[string]*longhorn.Node
	// Last is the current content of the ConfigMap; nil: it does not exist.
	Last map[string]string
}

// clientsOf is the required content of the ConfigMap.
//
// A node's kernel mounts a share through the share's Service. The pod sees the node at an address of the node, or at an
// address that the node's network has for pods. If the pod is on the same node, the latter is the address of a bridge;
// otherwise it is the address of a tunnel. Which address it is depends on the network plugin and on kube-proxy. So each
// node's daemon reports all addresses of its node. The Kubernetes node adds the addresses that only other machines
// know.
//
//	the Kubernetes node                                     its clients are seen at
//	has no Longhorn Node                                    none: it has no CSI plugin, and mounts nothing
//	its daemon reports an InternalIP of the node            the reported addresses, the InternalIPs and ExternalIPs
//	it does not, and the last list has the node's           those in the last list, the InternalIPs and ExternalIPs
//	neither, and the plugin uses podCIDRs                   these, and the first two of its podCIDRs, which a tunnel and
//	                                                        a bridge have
//	nothing of these                                        these; whether at others is not known, so shared volumes wait
//	                                                        for the node
//
// The last row never admits other clients: a node that joins must not open the shares of all users. If the setting
// names networks of its own, no node waits: the person who set them knows the addresses.
func clientsOf(in ClientsInput) map[string]string {
	if in.Allowed.Any {
		return anyClient(types.ReasonClientsAllowedBySetting, fmt.Sprintf("setting %s is %s", settings.RWXVolumeAllowedClients, types.ShareClientsAny))
	}
	data := map[string]string{}
	clients := slices.Clone(in.Allowed.Networks)
	var nodes []nodeClients
	if in.Allowed.Nodes {
		nodes = clientsOfNodes(in)
		for _, n := range nodes {
			clients = slices.Concat(clients, n.own, n.more)
		}
		if waiting := waitingOf(nodes); len(in.Allowed.Networks) == 0 && waiting != "" {
			data[types.ShareClientsWaitingKey] = waiting
		}
		if known := knownOf(nodes); known != "" {
			data[types.ShareClientsNodesKey] = known
		}
	}
	data[types.ShareClientsKey] = linesOf(clients)
	if size := sizeOf(data); size > maxClientsBytes {
		delete(data, types.ShareClientsNodesKey)
		clients = slices.Clone(in.Allowed.Networks)
		for _, n := range nodes {
			clients = append(clients, n.own...)
		}
		data[types.ShareClientsKey] = linesOf(clients)
		data[types.ShareClientsMessageKey] = fmt.Sprintf("the addresses of all nodes need %d bytes, but ConfigMap %s can hold only %d. So it lists only the nodes' InternalIPs and ExternalIPs. If clients use other addresses, add their networks to setting %s",
			size, types.ShareClientsConfigMap, maxClientsBytes, settings.RWXVolumeAllowedClients)
	}
	return data
}

// maxClientsBytes leaves space for the rest of the ConfigMap. The API server accepts up to 1 MiB in total.
const maxClientsBytes = 900 << 10

func sizeOf(data map[string]string) (size int) {
	for _, value := range data {
		size += len(value)
	}
	return size
}

func linesOf(clients []netip.Prefix) string {
	var lines strings.Builder
	for _, network := range types.SortShareClients(clients) {
		fmt.Fprintln(&lines, textOf(network))
	}
	if lines.Len() == 0 {
		return types.ShareClientsNobody + "\n"
	}
	return lines.String()
}

func textOf(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}

func anyClient(reason, message string) map[string]string {
	return map[string]string{types.ShareClientsKey: types.ShareClientsAny, types.ShareClientsReasonKey: reason, types.ShareClientsMessageKey: message}
}

// nodeClients are the addresses at which clients on a node are seen.
type nodeClients struct {
	node string
	// own are the addresses of the Kubernetes node; more are the others.
	own, more []netip.Prefix
	// waits: there may be other addresses, which are not known.
	waits bool
}

// clientsOfNodes are the clients on nodes that have a CSI plugin, by the nodes' names.
func clientsOfNodes(in ClientsInput) (nodes []nodeClients) {
	podCIDRs, last := usesPodCIDRs(in), lastOf(in.Last)
	for _, k := range in.KubeNodes {
		n, ok := in.Nodes[k.Name]
		if !ok {
			continue
		}
		c := nodeClients{node: k.Name, own: kubeAddresses(k)}
		if c.more, ok = saidAddresses(n, c.own); !ok {
			switch cidrs := podCIDRsOf(k); {
			case len(last[k.Name]) > 0:
				c.more = last[k.Name]
			case podCIDRs && len(cidrs) > 0:
				c.more = nil
				for _, cidr := range cidrs {
					c.more = append(c.more, single(cidr.Addr()), single(cidr.Addr().Next()))
				}
			default:
				c.more, c.waits = nil, true
			}
		}
		nodes = append(nodes, c)
	}
	slices.SortFunc(nodes, func(a, b nodeClients) int { return strings.Compare(a.node, b.node) })
	return nodes
}

func waitingOf(nodes []nodeClients) string {
	var lines strings.Builder
	for _, n := range nodes {
		if n.waits {
			fmt.Fprintln(&lines, n.node)
		}
	}
	return lines.String()
}

// knownOf says which addresses belong to which node, for lastOf.
func knownOf(nodes []nodeClients) string {
	var lines strings.Builder
	for _, n := range nodes {
		if len(n.more) == 0 {
			continue
		}
		lines.WriteString(n.node)
		for _, address := range types.SortShareClients(n.more) {
			lines.WriteString(" " + textOf(address))
		}
		lines.WriteString("\n")
	}
	return lines.String()
}

// lastOf reads what knownOf wrote. A list of an earlier release does not have this part.
func lastOf(data map[string]string) map[string][]netip.Prefix {
	last := map[string][]netip.Prefix{}
	for line := range strings.Lines(data[types.ShareClientsNodesKey]) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for _, word := range words[1:] {
			if address, err := types.ParseShareClient(word); err == nil && address.IsSingleIP() {
				last[words[0]] = append(last[words[0]], address)
			}
		}
	}
	return last
}

// saidAddresses are the addresses that the node's daemon reports. They count if one of them is an address of the
// Kubernetes node. In that case the daemon read the network that the node's clients use.
func saidAddresses(n *longhorn.Node, own []netip.Prefix) (said []netip.Prefix, ok bool) {
	for _, text := range n.Status.Addresses {
		if address, err := types.ParseShareClient(text); err == nil && address.IsSingleIP() {
			said = append(said, address)
			ok = ok || slices.Contains(own, address)
		}
	}
	return said, ok
}

// usesPodCIDRs reports whether a node has an address within its podCIDRs. If so, the network plugin takes its addresses
// from them.
func usesPodCIDRs(in ClientsInput) bool {
	return slices.ContainsFunc(in.KubeNodes, func(k *corev1.Node) bool {
		n := in.Nodes[k.Name]
		if n == nil {
			return false
		}
		said, ok := saidAddresses(n, kubeAddresses(k))
		return ok && slices.ContainsFunc(podCIDRsOf(k), func(cidr netip.Prefix) bool {
			return slices.ContainsFunc(said, func(a netip.Prefix) bool { return cidr.Contains(a.Addr()) })
		})
	})
}

func kubeAddresses(k *corev1.Node) []netip.Prefix {
	var own []netip.Prefix
	for _, a := range k.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if address, err := types.ParseShareClient(a.Address); err == nil && address.IsSingleIP() {
			own = append(own, address)
		}
	}
	return own
}

func podCIDRsOf(k *corev1.Node) []netip.Prefix {
	var cidrs []netip.Prefix
	for _, text := range k.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, cidr.Masked())
		}
	}
	return cidrs
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// openness is why a list does not limit clients; "": it does.
func openness(data map[string]string) string {
	if data[types.ShareClientsKey] != types.ShareClientsAny {
		return ""
	}
	return cmp.Or(data[types.ShareClientsMessageKey], types.ShareClientsAny)
}

// clients updates the condition that says whether only listed clients may mount the volume. was is the former
// condition.
func (p *Plan) clients(in Input, was longhorn.Condition) {
	c := in.enforced(clientsLimited(in.Pod, in.Clients), was)
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, in.Now)
	if c.Reason == types.ReasonClientsNotLimited && was.Reason != c.Reason {
		p.told = append(p.told, Event{corev1.EventTypeWarning, types.EventClientsNotLimited, "Any pod that reaches the share may mount the volume: " + c.Message})
	}
}

// enforced is the condition c, unless the kernel of the pod's node does not enforce the list; then it says so. The
// controller asks the pod now and then. Between two answers the last one counts.
func (in Input) enforced(c, was longhorn.Condition) longhorn.Condition {
	switch {
	case c.Status != longhorn.ConditionTrue || in.Pod == nil:
		return c
	case in.Recovery == nil && in.wasAsked() && was.Reason == types.ReasonClientsNotLimited:
		return was
	case in.Recovery == nil || in.Recovery.NotLimited == "":
		return c
	}
	c.Status, c.Reason = longhorn.ConditionFalse, types.ReasonClientsNotLimited
	c.Message = "the kernel of node " + in.Pod.Spec.NodeName + " cannot limit clients to the listed ones: " + in.Recovery.NotLimited
	return c
}

// clientsLimited says whether the pod has a list that limits its clients. Without a pod, it describes the next pod.
func clientsLimited(pod *corev1.Pod, data map[string]string) longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionClientsLimited, Status: longhorn.ConditionFalse}
	hasList := pod == nil || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == clientsVolume })
	switch {
	case data == nil:
		c.Reason, c.Message = types.ReasonClientsNotListed, "the list of clients does not exist yet. Until it exists, no client may mount the volume. If the share's pod is of an earlier release, any client may mount it"
	case openness(data) != "":
		c.Reason, c.Message = data[types.ShareClientsReasonKey], "any client that reaches the share's pod may mount the volume: "+openness(data)
	case !hasList:
		c.Reason, c.Message = types.ReasonClientsOlderPod, "any client that reaches the share's pod may mount the volume: an earlier release created the pod, without a list of clients"
	default:
		c.Status, c.Message = longhorn.ConditionTrue, fmt.Sprintf("only clients listed in ConfigMap %s may mount the volume", types.ShareClientsConfigMap)
		if remark := data[types.ShareClientsMessageKey]; remark != "" {
			c.Message += "; " + remark
		}
	}
	return c
}
