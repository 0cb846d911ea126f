package types

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// LifeAddresses returns addresses, as host:port, that answer if a node is alive: the health ports of its share
// managers, its kubelet and its instance manager. A refused connection proves this as well as an accepted one. If the
// Kubernetes node does not exist (nil), the result is empty: another machine may have the addresses by now.
func LifeAddresses(n *corev1.Node, pods []*corev1.Pod, managers []*longhorn.InstanceManager) []string {
	if n == nil {
		return nil
	}
	var addresses []string
	for _, pod := range pods {
		if address := ShareHealthAddress(pod); address != "" && pod.Spec.NodeName == n.Name {
			addresses = append(addresses, address)
		}
	}
	return slices.Concat(addresses, KubeletAddresses(n), InstanceManagerAddresses(n.Name, managers))
}

// InstanceManagerAddresses returns the addresses of a node's instance managers, as host:port.
func InstanceManagerAddresses(node string, managers []*longhorn.InstanceManager) (addresses []string) {
	for _, im := range managers {
		ip, err := netip.ParseAddr(im.Status.IP)
		if err == nil && im.Spec.NodeID == node && im.Status.Port > 0 && im.Status.Port < 1<<16 {
			addresses = append(addresses, netip.AddrPortFrom(ip, uint16(im.Status.Port)).String())
		}
	}
	return addresses
}

// ShareHealthAddress returns the health port of a share manager's pod, as host:port. It is "" if the pod does not
// belong to a share manager, has stopped, or has no address yet.
func ShareHealthAddress(pod *corev1.Pod) string {
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || !IsSharePod(pod) {
		return ""
	}
	return netip.AddrPortFrom(ip, ShareHealthPort).String()
}
