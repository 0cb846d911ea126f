package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var (
	ofNode families

	nodeStatus         = ofNode.add("node_status", "node condition condition_reason", "1 if the condition of the node is True, else 0; condition=\"allowScheduling\" is the value in its spec.")
	nodeCPUUsage       = ofNode.add("node_cpu_usage_millicpu", "node", "CPU that all processes of the node's machine used since the last scrape, in thousandths of a CPU, from /proc/stat.")
	nodeCPUCapacity    = ofNode.add("node_cpu_capacity_millicpu", "node", "CPU of the Kubernetes node (status.capacity), in thousandths of a CPU.")
	nodeMemoryUsage    = ofNode.add("node_memory_usage_bytes", "node", "Memory of the node's machine that is in use (not available), from /proc/meminfo.")
	nodeMemoryCapacity = ofNode.add("node_memory_capacity_bytes", "node", "Memory of the Kubernetes node (status.capacity).")
	nodeStorage        = storage{
		capacity:    ofNode.add("node_storage_capacity_bytes", "node", "Size of the file systems of the node's disks that are ready."),
		usage:       ofNode.add("node_storage_usage_bytes", "node", "Used space on the file systems of the node's disks that are ready, by replicas and by other files."),
		reservation: ofNode.add("node_storage_reservation_bytes", "node", "Space on the node's disks that is reserved for other uses than replicas (storageReserved)."),
		scheduled:   ofNode.add("node_storage_scheduled_bytes", "node", "Full size of all replicas that are placed on the node's disks that are ready."),
	}

	diskStatus  = ofNode.add("disk_status", "node disk condition condition_reason", "1 if the condition of the disk is True, else 0; condition=\"allowScheduling\" is the value in its spec.")
	diskStorage = storage{
		capacity:    ofNode.add("disk_capacity_bytes", "node disk", "Size of the disk's file system; absent while the disk is not ready."),
		usage:       ofNode.add("disk_usage_bytes", "node disk", "Used space on the disk's file system, by replicas and by other files; absent while the disk is not ready."),
		reservation: ofNode.add("disk_reservation_bytes", "node disk", "Space on the disk that is reserved for other uses than replicas (storageReserved)."),
		scheduled:   ofNode.ours("disk_scheduled_bytes", "node disk", "Full size of all replicas that are placed on the disk; absent while the disk is not ready."),
	}

	replicaInfo      = ofNode.add("replica_info", "replica volume node disk_path data_engine", "1 for each replica of the node.")
	replicaState     = ofNode.add("replica_state", "replica volume node state", "1 for the present state of the replica (status.currentState).")
	replicaAllocated = ofNode.ours("replica_allocated_bytes", "replica volume node", "Space that the replica's data uses on its disk, as last recorded.")

	volumeReadThroughput  = ofNode.add("volume_read_throughput", "node volume", "Bytes per second that users read from the volume, since the last scrape.")
	volumeWriteThroughput = ofNode.add("volume_write_throughput", "node volume", "Bytes per second that users write to the volume, since the last scrape.")
	volumeReadIOPS        = ofNode.add("volume_read_iops", "node volume", "Reads per second that the volume's device has answered, since the last scrape.")
	volumeWriteIOPS       = ofNode.add("volume_write_iops", "node volume", "Writes per second that the volume's device has answered, since the last scrape.")
	volumeReadLatency     = ofNode.add("volume_read_latency", "node volume", "Average time of a read in nanoseconds, since the last scrape; 0 if there was none.")
	volumeWriteLatency    = ofNode.add("volume_write_latency", "node volume", "Average time of a write in nanoseconds, since the last scrape; 0 if there was none.")
	volumeReadOnly        = ofNode.add("volume_file_system_read_only", "node volume", "1 if the volume's file system, as it is mounted for pods of the node, is read-only as a whole, else 0; absent while it is not mounted.")

	engineInfo  = ofNode.add("engine_info", "engine volume node data_engine", "1 for each engine of the node.")
	engineState = ofNode.add("engine_state", "engine volume node state", "1 for the present state of the engine (status.currentState).")
	engineMode  = ofNode.add("engine_replica_mode", "engine volume replica mode", "1 for the mode of the replica in the engine: RW, WO (it is being rebuilt) or ERR.")

	managerCPURequests    = ofNode.add("instance_manager_cpu_requests_millicpu", "node instance_manager type", "CPU that the instance manager's pod requests, in thousandths of a CPU.")
	managerMemoryRequests = ofNode.add("instance_manager_memory_requests_bytes", "node instance_manager type", "Memory that the instance manager's pod requests.")
	managerCPUUsage       = ofNode.add("instance_manager_cpu_usage_millicpu", "node instance_manager type", "CPU that the instance manager's pod used since the last scrape, in thousandths of a CPU, from its control group; absent if the control group is not of version 2.")
	managerMemoryUsage    = ofNode.add("instance_manager_memory_usage_bytes", "node instance_manager type", "Memory of the instance manager's pod, without files that are only cached, from its control group; absent if the control group is not of version 2.")
	managerState          = ofNode.ours("instance_manager_state", "node instance_manager type state", "1 for the present state of the instance manager (status.currentState).")
	managerInfo           = ofNode.ours("instance_manager_info", "node instance_manager type version process", "1 for the serving process of the instance manager; process is its identity, which changes at a restart.")

	daemonCPUUsage    = ofNode.add("manager_cpu_usage_millicpu", "node manager", "CPU that this daemon used since the last scrape, in thousandths of a CPU.")
	daemonMemoryUsage = ofNode.add("manager_memory_usage_bytes", "node manager", "Memory of this daemon (resident set size).")
	daemonLeads       = ofNode.ours("manager_leader", "node manager", "1 if this daemon is the leader, else 0.")
)

// Lister lists the cached objects of a kind; datastore.Store implements it. This package does not modify them.
type Lister[T any] interface {
	List(selector labels.Selector) ([]T, error)
}

// Getter gets one cached object; datastore.Store implements it. This package does not modify it.
type Getter[T any] interface {
	GetRO(name string) (T, error)
}

// NodeDeps are the dependencies of Node. The stores contain only this node.
type NodeDeps struct {
	// Node is the name of this daemon's node; Manager is the name of the daemon's pod.
	Node, Manager    string
	Nodes            Getter[*longhorn.Node]
	KubeNodes        Getter[*corev1.Node]
	Replicas         Lister[*longhorn.Replica]
	Engines          Lister[*longhorn.Engine]
	InstanceManagers Getter[*longhorn.InstanceManager]
	Pods             Getter[*corev1.Pod]
	// Leads reports whether this daemon is the leader.
	Leads func() bool
	// DeviceAt finds the device at a path of the node.
	DeviceAt func(path string) (Device, bool)
	// Proc is the mount point of the proc file system: /proc. HostMounts is the mount table of the node's first
	// process. HostCgroups is the directory with the node's control groups.
	Proc, HostMounts, HostCgroups string
	Clock                         clock.PassiveClock
	Log                           *logrus.Entry
}

// Node is the prometheus.Collector of one node. Concurrent scrapes are allowed.
type Node struct {
	deps  NodeDeps
	usage *usage
	io    *volumeIO
}

// NewNode returns a Node. It reads nothing yet.
func NewNode(deps NodeDeps) *Node {
	return &Node{deps: deps, usage: newUsage(deps.Proc, deps.Clock), io: newVolumeIO(deps.Clock)}
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(out chan<- *prometheus.Desc) { ofNode.describe(out) }

// Collect implements prometheus.Collector. Until the caches are filled, the metrics of missing objects are missing,
// too.
func (n *Node) Collect(out chan<- prometheus.Metric) {
	s := series(out)
	if node, err := n.deps.Nodes.GetRO(n.deps.Node); err == nil {
		s.node(node)
	}
	if node, err := n.deps.KubeNodes.GetRO(n.deps.Node); err == nil {
		s.kubeNode(node)
	}
	n.replicas(s)
	n.engines(s)
	n.volumes(s)
	n.instanceManager(s)
	n.usages(s)
	s.gauge(daemonLeads, oneIf(n.deps.Leads()), n.deps.Node, n.deps.Manager)
}

// kubeNode sends the capacities in the status of the Kubernetes node.
func (s series) kubeNode(node *corev1.Node) {
	if cpu, ok := node.Status.Capacity[corev1.ResourceCPU]; ok {
		s.gauge(nodeCPUCapacity, float64(cpu.MilliValue()), node.Name)
	}
	if memory, ok := node.Status.Capacity[corev1.ResourceMemory]; ok {
		s.bytes(nodeMemoryCapacity, memory.Value(), node.Name)
	}
}

func (n *Node) replicas(s series) {
	for _, r := range list(n.deps.Replicas, "replicas", n.deps.Log) {
		s.gauge(replicaInfo, 1, r.Name, r.Spec.VolumeName, r.Spec.NodeID, r.Spec.DiskPath, string(r.Spec.DataEngine))
		if r.Status.CurrentState != "" {
			s.gauge(replicaState, 1, r.Name, r.Spec.VolumeName, r.Spec.NodeID, string(r.Status.CurrentState))
		}
		if r.Status.AllocatedAt != "" {
			s.bytes(replicaAllocated, r.Status.AllocatedBytes, r.Name, r.Spec.VolumeName, r.Spec.NodeID)
		}
	}
}

func (n *Node) engines(s series) {
	for _, e := range list(n.deps.Engines, "engines", n.deps.Log) {
		s.gauge(engineInfo, 1, e.Name, e.Spec.VolumeName, e.Spec.NodeID, string(e.Spec.DataEngine))
		if e.Status.CurrentState != "" {
			s.gauge(engineState, 1, e.Name, e.Spec.VolumeName, e.Spec.NodeID, string(e.Status.CurrentState))
		}
		for replica, mode := range e.Status.ReplicaModeMap {
			s.gauge(engineMode, 1, e.Name, e.Spec.VolumeName, replica, string(mode))
		}
	}
}

// instanceManager sends the state of the node's instance manager, and what its pod, which has the same name, requests
// and uses.
func (n *Node) instanceManager(s series) {
	manager, err := n.deps.InstanceManagers.GetRO(types.InstanceManagerName(n.deps.Node))
	if err != nil {
		return
	}
	name, kind := manager.Name, string(manager.Spec.Type)
	if manager.Status.CurrentState != "" {
		s.gauge(managerState, 1, n.deps.Node, name, kind, string(manager.Status.CurrentState))
	}
	if manager.Status.UUID != "" {
		s.gauge(managerInfo, 1, n.deps.Node, name, kind, manager.Status.Version, manager.Status.UUID)
	}
	pod, err := n.deps.Pods.GetRO(name)
	if err != nil {
		return
	}
	var cpu, memory int64
	for _, c := range pod.Spec.Containers {
		cpu += c.Resources.Requests.Cpu().MilliValue()
		memory += c.Resources.Requests.Memory().Value()
	}
	s.gauge(managerCPURequests, float64(cpu), n.deps.Node, name, kind)
	s.bytes(managerMemoryRequests, memory, n.deps.Node, name, kind)
	if used, ok := n.usage.ofPod(n.deps.HostCgroups, pod); ok {
		used.send(s, managerCPUUsage, managerMemoryUsage, n.deps.Node, name, kind)
	}
}

// usages sends the kernel's values for the machine and for this process.
func (n *Node) usages(s series) {
	machine, err := n.usage.ofMachine()
	if err != nil {
		n.deps.Log.WithError(err).Warn("metrics lack the use of CPU and memory of the node")
	} else {
		machine.send(s, nodeCPUUsage, nodeMemoryUsage, n.deps.Node)
	}
	process, err := n.usage.ofProcess()
	if err != nil {
		n.deps.Log.WithError(err).Warn("metrics lack the use of CPU and memory of this process")
	} else {
		process.send(s, daemonCPUUsage, daemonMemoryUsage, n.deps.Node, n.deps.Manager)
	}
}
