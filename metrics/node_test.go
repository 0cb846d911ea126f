package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// fullNode has an object of every kind, and has been scraped once before.
func fullNode(t testing.TB) *Node {
	clock := clocktesting.NewFakeClock(begin)
	deps := emptyNode(t)
	deps.Clock = clock
	deps.Leads = func() bool { return true }
	deps.Nodes = cache[*longhorn.Node]{build.ReadyNode("node-1", "uuid-1", func(n *longhorn.Node) {
		disk := n.Spec.Disks["disk-1"]
		disk.StorageReserved = 10
		n.Spec.Disks["disk-1"] = disk
		n.Spec.Disks["disk-2"] = longhorn.DiskSpec{StorageReserved: 5}
		status := n.Status.DiskStatus["disk-1"]
		status.StorageMaximum, status.StorageAvailable, status.StorageScheduled = 1000, 400, 2000
		n.Status.DiskStatus["disk-1"] = status
		n.Status.DiskStatus["disk-2"] = longhorn.DiskStatus{Conditions: []longhorn.Condition{
			{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: "DiskUnmounted"},
		}}
		n.Status.Conditions = append(n.Status.Conditions, longhorn.Condition{
			Type: types.ConditionKernelNBDClient, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelNBDClientNotUsed,
		})
	})}
	deps.KubeNodes = cache[*corev1.Node]{build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1000Ki"),
		}
	})}
	deps.Replicas = cache[*longhorn.Replica]{build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1", func(r *longhorn.Replica) {
		r.Spec.DataEngine = longhorn.DataEngineV1
		r.Status.CurrentState, r.Status.AllocatedBytes, r.Status.AllocatedAt = longhorn.InstanceStateRunning, 77, "2026-03-01T12:00:00Z"
	})}
	deps.Engines = cache[*longhorn.Engine]{build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DataEngine, e.Status.CurrentState = "node-1", longhorn.DataEngineV1, longhorn.InstanceStateRunning
		e.Status.Endpoint = "/dev/longhorn/vol"
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": longhorn.ReplicaModeRW, "vol-r-2": longhorn.ReplicaModeWO}
	})}
	deps.InstanceManagers = cache[*longhorn.InstanceManager]{build.RunningInstanceManager("node-1", "10.0.0.1", "process-1", func(m *longhorn.InstanceManager) {
		m.Status.Version = "v1"
	})}
	deps.Pods = cache[*corev1.Pod]{build.Pod(types.InstanceManagerName("node-1"), "node-1", func(p *corev1.Pod) {
		requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("120m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}, {}}
		p.UID, p.Status.QOSClass = "12-34", corev1.PodQOSBurstable
	})}
	deps.DeviceAt = func(path string) (Device, bool) { return Device{43, 32}, path == "/dev/longhorn/vol" }
	deps.HostMounts = filepath.Join(t.TempDir(), "mountinfo")
	writeFile(t, deps.HostMounts, "36 25 43:32 / /var/lib/kubelet/x rw,relatime shared:1 - ext4 /dev/longhorn/vol rw\n")
	writeProc(t, deps.Proc, "100 0 100 5000 300 0 0 0 0 0", "10", "10")
	writeFile(t, filepath.Join(deps.Proc, "diskstats"), " 253 0 vda 1 2 3 4 5 6 7 8 9 10 11\n  43 32 nbd1 100 0 800 50 1000 1 16000 4000 0 0 0 0 0 0 0\n")
	group := filepath.Join(deps.HostCgroups, "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice")
	assert.NoError(t, os.MkdirAll(group, 0o755))
	writeFile(t, filepath.Join(group, "cpu.stat"), "usage_usec 1000000\nuser_usec 1\n")
	writeFile(t, filepath.Join(group, "memory.current"), "5000\n")
	writeFile(t, filepath.Join(group, "memory.stat"), "anon 1\ninactive_file 1200\n")
	n := NewNode(deps)
	scrape(t, n)
	writeFile(t, filepath.Join(group, "cpu.stat"), "usage_usec 3500000\nuser_usec 1\n")
	writeFile(t, filepath.Join(deps.Proc, "diskstats"), " 253 0 vda 1 2 3 4 5 6 7 8 9 10 11\n  43 32 nbd1 300 0 2400 150 1000 1 16000 4000 0 0 0 0 0 0 0\n")
	writeProc(t, deps.Proc, "600 100 200 9000 900 50 50 100 70 7", "110", "60")
	clock.Step(10 * time.Second)
	return n
}

func TestNode(t *testing.T) {
	manager := types.InstanceManagerName("node-1")
	assert.Equal(t, []string{
		`longhorn_disk_capacity_bytes{disk="disk-1",node="node-1"} 1000`,
		`longhorn_disk_reservation_bytes{disk="disk-1",node="node-1"} 10`,
		`longhorn_disk_reservation_bytes{disk="disk-2",node="node-1"} 5`,
		`longhorn_disk_scheduled_bytes{disk="disk-1",node="node-1"} 2000`,
		`longhorn_disk_status{condition="allowScheduling",condition_reason="",disk="disk-1",node="node-1"} 1`,
		`longhorn_disk_status{condition="allowScheduling",condition_reason="",disk="disk-2",node="node-1"} 0`,
		`longhorn_disk_status{condition="ready",condition_reason="",disk="disk-1",node="node-1"} 1`,
		`longhorn_disk_status{condition="ready",condition_reason="DiskUnmounted",disk="disk-2",node="node-1"} 0`,
		`longhorn_disk_status{condition="schedulable",condition_reason="",disk="disk-1",node="node-1"} 1`,
		`longhorn_disk_usage_bytes{disk="disk-1",node="node-1"} 600`,
		`longhorn_engine_info{data_engine="v1",engine="vol-e-0",node="node-1",volume="vol"} 1`,
		`longhorn_engine_replica_mode{engine="vol-e-0",mode="RW",replica="vol-r-1",volume="vol"} 1`,
		`longhorn_engine_replica_mode{engine="vol-e-0",mode="WO",replica="vol-r-2",volume="vol"} 1`,
		`longhorn_engine_state{engine="vol-e-0",node="node-1",state="running",volume="vol"} 1`,
		`longhorn_instance_manager_cpu_requests_millicpu{instance_manager="` + manager + `",node="node-1",type="aio"} 120`,
		`longhorn_instance_manager_cpu_usage_millicpu{instance_manager="` + manager + `",node="node-1",type="aio"} 250`,
		`longhorn_instance_manager_info{instance_manager="` + manager + `",node="node-1",process="process-1",type="aio",version="v1"} 1`,
		`longhorn_instance_manager_memory_requests_bytes{instance_manager="` + manager + `",node="node-1",type="aio"} 6.7108864e+07`,
		`longhorn_instance_manager_memory_usage_bytes{instance_manager="` + manager + `",node="node-1",type="aio"} 3800`,
		`longhorn_instance_manager_state{instance_manager="` + manager + `",node="node-1",state="running",type="aio"} 1`,
		// 1 + 0.5 s in 10 s
		`longhorn_manager_cpu_usage_millicpu{manager="manager-1",node="node-1"} 150`,
		`longhorn_manager_leader{manager="manager-1",node="node-1"} 1`,
		fmt.Sprintf(`longhorn_manager_memory_usage_bytes{manager="manager-1",node="node-1"} %d`, 25*os.Getpagesize()),
		`longhorn_node_cpu_capacity_millicpu{node="node-1"} 2000`,
		// 5 + 1 + 1 + 0.5 + 0.5 + 1 s in 10 s. Idle time and waiting do not count. The time of a guest is in the
		// first number.
		`longhorn_node_cpu_usage_millicpu{node="node-1"} 900`,
		`longhorn_node_memory_capacity_bytes{node="node-1"} 1.024e+06`,
		`longhorn_node_memory_usage_bytes{node="node-1"} 614400`,
		`longhorn_node_status{condition="allowScheduling",condition_reason="",node="node-1"} 1`,
		`longhorn_node_status{condition="kernelnbdclient",condition_reason="KernelNBDClientNotUsed",node="node-1"} 0`,
		`longhorn_node_status{condition="ready",condition_reason="",node="node-1"} 1`,
		`longhorn_node_status{condition="schedulable",condition_reason="",node="node-1"} 1`,
		`longhorn_node_storage_capacity_bytes{node="node-1"} 1000`,
		`longhorn_node_storage_reservation_bytes{node="node-1"} 15`,
		`longhorn_node_storage_scheduled_bytes{node="node-1"} 2000`,
		`longhorn_node_storage_usage_bytes{node="node-1"} 600`,
		`longhorn_replica_allocated_bytes{node="node-1",replica="vol-r-1",volume="vol"} 77`,
		`longhorn_replica_info{data_engine="v1",disk_path="/var/lib/longhorn",node="node-1",replica="vol-r-1",volume="vol"} 1`,
		`longhorn_replica_state{node="node-1",replica="vol-r-1",state="running",volume="vol"} 1`,
		`longhorn_volume_file_system_read_only{node="node-1",volume="vol"} 0`,
		// 200 reads of 4 KiB in 10 s, which took 100 ms; no writes.
		`longhorn_volume_read_iops{node="node-1",volume="vol"} 20`,
		`longhorn_volume_read_latency{node="node-1",volume="vol"} 500000`,
		`longhorn_volume_read_throughput{node="node-1",volume="vol"} 81920`,
		`longhorn_volume_write_iops{node="node-1",volume="vol"} 0`,
		`longhorn_volume_write_latency{node="node-1",volume="vol"} 0`,
		`longhorn_volume_write_throughput{node="node-1",volume="vol"} 0`,
	}, scrape(t, fullNode(t)))
}

// TestNodeShowsNothingItDoesNotKnow: empty caches, a kind that cannot be read, and a /proc without files leave gaps
// but do not break a scrape.
func TestNodeShowsNothingItDoesNotKnow(t *testing.T) {
	deps := emptyNode(t)
	deps.Replicas = broken[*longhorn.Replica]{}
	assert.Equal(t, []string{`longhorn_manager_leader{manager="manager-1",node="node-1"} 0`}, scrape(t, NewNode(deps)))
}

// TestDiskThatIsNotReady: values that remain from a time when the disk was ready are not exported.
func TestDiskThatIsNotReady(t *testing.T) {
	deps := emptyNode(t)
	deps.Nodes = cache[*longhorn.Node]{build.ReadyNode("node-1", "uuid-1", func(n *longhorn.Node) {
		status := n.Status.DiskStatus["disk-1"]
		status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionUnknown, Reason: types.ReasonNodeNotReady}}
		n.Status.DiskStatus["disk-1"] = status
	})}
	lines := scrape(t, NewNode(deps))
	assert.Equal(t, []string{
		`longhorn_disk_reservation_bytes{disk="disk-1",node="node-1"} 0`,
		`longhorn_disk_status{condition="allowScheduling",condition_reason="",disk="disk-1",node="node-1"} 1`,
		`longhorn_disk_status{condition="ready",condition_reason="NodeNotReady",disk="disk-1",node="node-1"} 0`,
	}, beginningWith(lines, "longhorn_disk_"))
	assert.Contains(t, lines, `longhorn_node_storage_capacity_bytes{node="node-1"} 0`)
}

func TestRate(t *testing.T) {
	type reading struct {
		after   time.Duration // since the first
		seconds float64
		want    float64
		known   bool
	}
	cases := []struct {
		name     string
		readings []reading
	}{
		{"one reading → no figure", []reading{{0, 50, 0, false}}},
		{"two → the time between them", []reading{{0, 50, 0, false}, {20 * time.Second, 60, 500, true}}},
		{"too soon after the first → no figure yet", []reading{{0, 50, 0, false}, {time.Second, 51, 0, false}, {10 * time.Second, 60, 1000, true}}},
		{
			"too soon after another → the last figure, and the next one counts from where that ended",
			[]reading{{0, 0, 0, false}, {10 * time.Second, 10, 1000, true}, {11 * time.Second, 11, 1000, true}, {20 * time.Second, 12, 200, true}},
		},
		{"the counter went back → it begins anew", []reading{{0, 50, 0, false}, {10 * time.Second, 60, 1000, true}, {20 * time.Second, 1, 0, false}, {30 * time.Second, 2, 100, true}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var r rate
			for _, in := range c.readings {
				got, known := r.next(begin.Add(in.after), in.seconds)
				assert.InDelta(t, in.want, got, 1e-9, "after %s", in.after)
				assert.Equal(t, in.known, known, "after %s", in.after)
			}
		})
	}
}

// TestThisProcess: the real /proc contains the files that the package reads.
func TestThisProcess(t *testing.T) {
	u := newUsage("/proc", clocktesting.NewFakeClock(begin))
	machine, err := u.ofMachine()
	assert.NoError(t, err)
	assert.Positive(t, machine.memoryBytes)
	process, err := u.ofProcess()
	assert.NoError(t, err)
	assert.Positive(t, process.memoryBytes)
}

func TestWhereAPodsControlGroupIs(t *testing.T) {
	for _, tc := range []struct {
		name, group, memory string
		qos                 corev1.PodQOSClass
		want                bool
	}{
		{"systemd, guaranteed", "kubepods.slice/kubepods-pod12_34.slice", "9", corev1.PodQOSGuaranteed, true},
		{"systemd, burstable", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice", "9", corev1.PodQOSBurstable, true},
		{"plain, guaranteed", "kubepods/pod12-34", "9", corev1.PodQOSGuaranteed, true},
		{"plain, best effort", "kubepods/besteffort/pod12-34", "9", corev1.PodQOSBestEffort, true},
		{"of another pod", "kubepods/pod12-35", "9", corev1.PodQOSGuaranteed, false},
		{"memory that is no number", "kubepods/pod12-34", "max", corev1.PodQOSGuaranteed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			groups := t.TempDir()
			dir := filepath.Join(groups, tc.group)
			assert.NoError(t, os.MkdirAll(dir, 0o755))
			writeFile(t, filepath.Join(dir, "cpu.stat"), "usage_usec 1\n")
			writeFile(t, filepath.Join(dir, "memory.current"), tc.memory+"\n")
			pod := build.Pod("p", "node-1", func(p *corev1.Pod) { p.UID, p.Status.QOSClass = "12-34", tc.qos })
			used, ok := newUsage("", clocktesting.NewFakeClock(begin)).ofPod(groups, pod)
			assert.Equal(t, tc.want, ok)
			if ok {
				assert.Equal(t, int64(9), used.memoryBytes)
				assert.False(t, used.isMeasured)
			}
		})
	}
}
