package config

import "fmt"

// Paths inside a node.
const (
	NodeConf         = "/etc/devcluster"
	NodeLogs         = "/var/log/devcluster"
	NodeBinary       = "/usr/local/bin/devcluster"
	NodeData         = "/var/lib/longhorn"
	ContainerdSocket = "/run/containerd/containerd.sock"
	CNIPlugins       = "/usr/lib/cni"
)

// Node has the values on which a node's configuration depends.
type Node struct {
	Name  string
	Index int
	// Kernel is the kind of the node's own kernel, or "".
	Kernel string
}

// KernelLabel is the label of nodes with a kernel of their own; its value is the kind.
const KernelLabel = "devcluster/kernel"

// Kubelet returns the kubelet's configuration file. Processes of pods are not in QoS groups, which works in either
// version of cgroups. Image garbage collection and eviction for lack of disk space are switched off: nodes share one
// disk, and a full one would make every kubelet remove images that no registry gives back, the sandbox image among them.
func (n Node) Kubelet() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
tlsCertFile: %[2]s/kubelet-server.crt
tlsPrivateKeyFile: %[2]s/kubelet-server.key
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s/ca.crt}
authorization: {mode: Webhook}
clusterDomain: %[3]s
clusterDNS: [%[4]s]
resolvConf: /etc/resolv.conf
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 30s
nodeLeaseDurationSeconds: 10
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard:
  memory.available: 50Mi
  nodefs.available: 0%%
  nodefs.inodesFree: 0%%
  imagefs.available: 0%%
`, ContainerdSocket, NodeConf, Domain, DNSServiceIP)
}

// KubeletArgs returns the arguments of the kubelet.
func (n Node) KubeletArgs() []string {
	args := []string{
		"--config=" + NodeConf + "/kubelet.yaml",
		"--kubeconfig=" + NodeConf + "/kubelet.kubeconfig",
		"--hostname-override=" + n.Name,
		"--node-ip=" + NodeIP(n.Index).String(),
	}
	if n.Kernel != "" {
		args = append(args, "--node-labels="+KernelLabel+"="+n.Kernel)
	}
	return args
}

// ProxyArgs returns the arguments of kube-proxy. The limits of connection tracking belong to the real machine and stay
// unchanged.
func (n Node) ProxyArgs() []string {
	return []string{
		"--kubeconfig=" + NodeConf + "/kube-proxy.kubeconfig",
		"--hostname-override=" + n.Name,
		"--proxy-mode=iptables",
		"--cluster-cidr=" + PodCIDR,
		"--conntrack-max-per-core=0",
		"--conntrack-min=0",
	}
}

// Containerd returns containerd's configuration file. Some containers and virtual machines refuse a lower
// oom_score_adj, so it is never tried. Images are only imported, because no registry can be reached.
func (n Node) Containerd(sandboxImage string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`, ContainerdSocket, sandboxImage, CNIPlugins)
}

// PodNetwork returns the CNI configuration. Pods have routed point-to-point links and not a bridge. So if a service
// leads to a pod of the same node, addresses are translated back without the kernel's bridge netfilter.
func (n Node) PodNetwork() string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {"type": "ptp", "mtu": 1500, "ipMasq": false,
     "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses",
              "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, NodePods(n.Index))
}

// Resolver returns the node's /etc/resolv.conf, which is also used by pods without cluster DNS policy.
func (n Node) Resolver() string {
	return fmt.Sprintf("nameserver %s\nsearch svc.%s %s\n", DNSServiceIP, Domain, Domain)
}

// Hosts returns the node's /etc/hosts.
func (n Node) Hosts() string {
	return fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", NodeIP(n.Index), n.Name)
}

// Tunables returns settings of the whole real machine that the kubelet requires (its setupKernelTunables). Files with
// the required values are mounted over them. So the kubelet accepts them and the machine stays unchanged.
func Tunables() map[string]string {
	return map[string]string{
		"/proc/sys/vm/overcommit_memory":      "1\n",
		"/proc/sys/vm/panic_on_oom":           "0\n",
		"/proc/sys/kernel/panic":              "10\n",
		"/proc/sys/kernel/panic_on_oops":      "1\n",
		"/proc/sys/kernel/keys/root_maxkeys":  "1000000\n",
		"/proc/sys/kernel/keys/root_maxbytes": "25000000\n",
	}
}
