package page

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDisksAndTags: the user adds a disk next to the existing one. The form refuses a bad tag at its field.
func TestDisksAndTags(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Nodes")
	b.Click("button", "Edit node node-1")
	b.Axe(root, "the form of a node")
	b.Type("textbox", "Tags", "fast, über")
	b.Click("button", "Save")
	b.Describes("textbox", "Tags", `tags: "über" is not a valid tag`)
	b.ExpectWrites()
	b.Type("textbox", "Tags", "fast")
	b.Click("button", "Save")
	b.HasNot("dialog", "Edit node node-1")
	b.Sees("tags: fast")
	b.ExpectWrites("update nodes/node-1")

	b.Click("button", "Add disk to node-2")
	b.Axe(root, "the form of a disk")
	assert.Regexp(t, "^disk-[a-z0-9]{5}$", b.Value("textbox", "Name"))
	b.Type("textbox", "Path", "relative")
	b.Click("button", "Add")
	b.Describes("textbox", "Path", `.path: "relative"`)
	b.ExpectWrites()
	b.Type("textbox", "Path", "/mnt/second")
	b.SeesNot("must be an absolute path") // that was about another path
	b.Type("textbox", "Name", "second")
	b.Click("button", "Add")
	b.HasNot("dialog", "Add a disk to node-2")
	b.Has("heading", "second /mnt/second")
	b.Has("button", "Edit disk disk-1 of node-2")
	b.ExpectWrites("update nodes/node-2")
}

// TestSettings: a refusal is shown at the field, and an accepted value is shown.
func TestSettings(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.login("admin")
	b.Click("link", "Settings")
	b.Type("textbox", "Search", "default replica count")
	b.Type("textbox", "Value of Default Replica Count", "99")
	b.Click("button", "Save Default Replica Count")
	b.Describes("textbox", "Value of Default Replica Count", "value: ")
	b.ExpectWrites()
	b.Type("textbox", "Value of Default Replica Count", "2")
	b.Click("button", "Save Default Replica Count")
	b.HasNot("button", "Save Default Replica Count")
	b.ExpectWrites("create settings/default-replica-count")
}

// TestADiskIsEmptiedAndRemoved: the page shows which replicas still have to leave the disk. For each it shows the
// progress of the rebuild, or the reason for its wait. It removes the disk after the user has typed the disk's name.
func TestADiskIsEmptiedAndRemoved(t *testing.T) {
	objs := append(threeNodes(), volume("orders-queue", 5, state{
		robustness: longhorn.VolumeRobustnessDegraded, node: "node-3", replicas: map[string]string{"node-1": "RW", "node-3": "WO"}, progress: 42,
	})...)
	objs = append(objs, volume("archive", 40, state{replicas: map[string]string{"node-1": "RW", "node-3": "RW"}, condition: &longhorn.Condition{
		Type: types.ConditionEvictionWaits, Status: longhorn.ConditionTrue, LastTransitionTime: now, Message: "it moves when the volume is attached",
	}})...)
	b := newBench(t, objs...)
	emptied := func(status longhorn.ConditionStatus, message string, held map[string]int64) *longhorn.Node {
		n := build.ReadyNode("node-1", "uuid-1")
		spec := n.Spec.Disks["disk-1"]
		spec.AllowScheduling, spec.EvictionRequested = false, true
		n.Spec.Disks["disk-1"] = spec
		s := n.Status.DiskStatus["disk-1"]
		s.ScheduledReplica = held
		s.Conditions = append(s.Conditions, longhorn.Condition{Type: types.ConditionEmptied, Status: status, Message: message, LastTransitionTime: now})
		n.Status.DiskStatus["disk-1"] = s
		return n
	}
	b.change(emptied(longhorn.ConditionFalse, "2 replicas left", map[string]int64{"orders-queue-r-1": 5 * build.GiB, "archive-r-1": 40 * build.GiB}))
	b.login("admin")
	b.Click("link", "Nodes")
	b.Sees("being evicted 2 replicas left")
	b.Has("progressbar", "Rebuild of orders-queue on another disk")
	b.Sees("archive, 40 GiB: it moves when the volume is attached")
	b.Axe(root, "a disk that is emptied")
	b.change(emptied(longhorn.ConditionTrue, "no volume has a replica on it", nil))
	b.Sees("eviction complete no volume has a replica on it")
	b.HasNot("progressbar", "Rebuild of")

	idle := build.ReadyNode("node-2", "uuid-2")
	spec := idle.Spec.Disks["disk-1"]
	spec.AllowScheduling = false
	idle.Spec.Disks["disk-1"] = spec
	b.change(idle)
	b.Click("button", "Remove disk disk-1 of node-2")
	b.Axe(root, "the removal of a disk")
	b.Click("button", "Remove")
	b.ExpectWrites()
	b.Type("textbox", "Type “disk-1” to confirm", "disk-1")
	b.Click("button", "Remove")
	b.HasNot("dialog", "Remove disk disk-1")
	b.ExpectWrites("update nodes/node-2")
}

// TestACordonedNode: its disks accept no new replicas, and the page says why.
func TestACordonedNode(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Nodes")
	b.Has("heading", "disk-1 /var/lib/longhorn ● accepts new replicas")
	b.change(build.ReadyNode("node-2", "uuid-2", func(n *longhorn.Node) {
		n.Status.Conditions[1] = longhorn.Condition{
			Type: types.ConditionSchedulable, Status: longhorn.ConditionFalse, LastTransitionTime: now,
			Reason: types.ReasonKubernetesNodeCordoned, Message: "Kubernetes node node-2 is cordoned",
		}
	}))
	b.Has("heading", "node-2 ● ready ○ cordoned")
	b.Sees("Kubernetes node node-2 is cordoned. Its disks accept no new replicas.")
	b.Has("heading", "disk-1 /var/lib/longhorn ▲ accepts no new replicas")
	b.Axe(root, "a cordoned node")
	b.Click("link", "Dashboard")
	b.Has("link", "Disks that accept no new replicas 1")
}

// TestANodeThatIsNotReady: the sums of the dashboard leave its disks out, and the dashboard says so.
func TestANodeThatIsNotReady(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Sees("185 GiB free")
	b.SeesNot("Not counted")
	b.change(build.ReadyNode("node-3", "uuid-3", func(n *longhorn.Node) {
		n.Status.Conditions[0] = longhorn.Condition{
			Type: types.ConditionReady, Status: longhorn.ConditionFalse, LastTransitionTime: now,
			Reason: types.ReasonKubernetesNodeNotReady, Message: "the kubelet does not answer",
		}
		status := n.Status.DiskStatus["disk-1"]
		status.StorageAvailable = 40 * build.GiB
		n.Status.DiskStatus["disk-1"] = status
	}))
	b.Sees("145 GiB free")
	b.Sees("Not counted: 1 disk that is not ready, or whose node is not ready.")
	b.Axe(root, "a capacity without all disks")
}

// TestARefusedAnnotation: the page of the node shows which key was refused, and at which position.
func TestARefusedAnnotation(t *testing.T) {
	n := build.ReadyNode("node-1", "uuid-1")
	n.Status.Conditions = append(n.Status.Conditions, longhorn.Condition{
		Type: types.ConditionDefaultDisksConfig, Status: longhorn.ConditionFalse, LastTransitionTime: now, Message: `annotation refused: [1].storageReserved at byte 40: must be a number`,
	})
	b := newBench(t, n)
	b.login("admin")
	b.Click("link", "Nodes")
	b.Sees("DefaultDisksConfig: annotation refused: [1].storageReserved at byte 40: must be a number")
}
