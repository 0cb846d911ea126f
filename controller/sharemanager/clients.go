package sharemanager

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ClientsInput is all that the list of clients rests on. Nothing in it is modified.
type ClientsInput struct {
	Allowed   types.ShareClients
	KubeNodes []*corev1.Node
	// Nodes by name.
	Nodes map[string]*longhorn.Node
}

// clientsOf is what the ConfigMap shall say.
//
// A node's kernel mounts a share through the share's Service. The pod sees it at an address of the node, or at one that the node's network has for
// pods: that of a bridge where the pod is on the same node, that of a tunnel where it is not. Which one depends on the network plugin, and on
// kube-proxy. So each node's daemon says all addresses of its node, and the Kubernetes node adds those that only other machines know.
//
//	the daemon's list                  the node's client is seen at
//	has an InternalIP of the node      those, and the InternalIPs and ExternalIPs
//	is missing, or has none of them    these, and the first two of its podCIDRs: a tunnel and a bridge have them, with plugins that use podCIDRs
//	the same, plugin does not          not known: any client may mount, unless the setting has addresses of its own
func clientsOf(in ClientsInput) map[string]string {
	if in.Allowed.Any {
		return anyClient(types.ReasonClientsAllowedBySetting, fmt.Sprintf("setting %s is %s", types.SettingRWXVolumeAllowedClients, types.ShareClientsAny))
	}
	clients := slices.Clone(in.Allowed.Networks)
	if in.Allowed.Nodes {
		nodes, unknown := clientsOfNodes(in)
		if len(unknown) > 0 && len(in.Allowed.Networks) == 0 {
			slices.Sort(unknown)
			return anyClient(types.ReasonClientsNotKnown, fmt.Sprintf("at which addresses clients on these nodes are seen is not known: %s; setting %s may name them",
				strings.Join(unknown[:min(len(unknown), maxNamed)], ", "), types.SettingRWXVolumeAllowedClients))
		}
		clients = append(clients, nodes...)
	}
	var lines strings.Builder
	for _, network := range types.SortShareClients(clients) {
		if network.IsSingleIP() {
			fmt.Fprintln(&lines, network.Addr())
		} else {
			fmt.Fprintln(&lines, network)
		}
	}
	if lines.Len() > maxClientsBytes {
		return anyClient(types.ReasonClientsNotKnown, fmt.Sprintf("the addresses of all nodes take %d bytes, more than the %d that ConfigMap %s can have; setting %s may name networks instead",
			lines.Len(), maxClientsBytes, types.ShareClientsConfigMap, types.SettingRWXVolumeAllowedClients))
	}
	return map[string]string{types.ShareClientsKey: lines.String()}
}

// maxClientsBytes leaves room for the rest of the ConfigMap, which the API server takes up to 1 MiB of.
const maxClientsBytes = 900 << 10

// maxNamed is how many nodes a message names at most.
const maxNamed = 5

func anyClient(reason, message string) map[string]string {
	return map[string]string{types.ShareClientsKey: types.ShareClientsAny, types.ShareClientsReasonKey: reason, types.ShareClientsMessageKey: message}
}

// clientsOfNodes are the addresses of all nodes, and the nodes of which they are not known.
func clientsOfNodes(in ClientsInput) (clients []netip.Prefix, unknown []string) {
	podCIDRs := usesPodCIDRs(in)
	for _, k := range in.KubeNodes {
		own := kubeAddresses(k)
		clients = append(clients, own...)
		said, ok := saidAddresses(in.Nodes[k.Name], own)
		switch cidrs := podCIDRsOf(k); {
		case ok:
			clients = append(clients, said...)
		case podCIDRs && len(cidrs) > 0:
			for _, cidr := range cidrs {
				clients = append(clients, single(cidr.Addr()), single(cidr.Addr().Next()))
			}
		default:
			unknown = append(unknown, k.Name)
		}
	}
	return clients, unknown
}

// saidAddresses are those that the node's daemon says. They count where one of them is the Kubernetes node's: the daemon then looked at the network
// that the node's clients are in.
func saidAddresses(n *longhorn.Node, own []netip.Prefix) (said []netip.Prefix, ok bool) {
	if n == nil {
		return nil, false
	}
	for _, text := range n.Status.Addresses {
		if address, err := types.ParseShareClient(text); err == nil && address.IsSingleIP() {
			said = append(said, address)
			ok = ok || slices.Contains(own, address)
		}
	}
	return said, ok
}

// usesPodCIDRs tells whether a node has an address within its podCIDRs, so that the network plugin takes its addresses from them.
func usesPodCIDRs(in ClientsInput) bool {
	return slices.ContainsFunc(in.KubeNodes, func(k *corev1.Node) bool {
		said, ok := saidAddresses(in.Nodes[k.Name], kubeAddresses(k))
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

// clientsLimited says whether the pod, or the next one where there is none, has a list that limits its clients.
func clientsLimited(pod *corev1.Pod, data map[string]string) longhorn.Condition {
	c := longhorn.Condition{Type: types.ConditionClientsLimited, Status: longhorn.ConditionFalse}
	hasList := pod == nil || slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == clientsVolume })
	switch {
	case data == nil:
		c.Reason, c.Message = types.ReasonClientsNotListed, "whoever reaches its pod may mount the volume: the list of clients is not made yet"
	case openness(data) != "":
		c.Reason, c.Message = data[types.ShareClientsReasonKey], "whoever reaches its pod may mount the volume: "+openness(data)
	case !hasList:
		c.Reason, c.Message = types.ReasonClientsOlderPod, "whoever reaches its pod may mount the volume: the pod was made by an earlier release, which had no list of clients"
	default:
		c.Status, c.Message = longhorn.ConditionTrue, fmt.Sprintf("clients listed in ConfigMap %s may mount the volume", types.ShareClientsConfigMap)
	}
	return c
}
