package page

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestActions: each action of the menu sends its change.
func TestActions(t *testing.T) {
	for _, tc := range []struct {
		name, volume, item, dialog string
		fill                       func(b *bench)
		submit                     string
		want                       []string
	}{
		{"attach", "archive", "Attach", "Attach archive", func(b *bench) { b.Choose("Node", "node-2") }, "Attach", []string{"create volumeattachments/archive"}},
		{"number of replicas", "orders-db", "Number of replicas", "Replicas of orders-db", func(b *bench) {
			b.Type("textbox", "Number of replicas", "99")
			b.Click("button", "Save")
			b.Describes("textbox", "Number of replicas", "must be 1 to 20")
			b.Type("textbox", "Number of replicas", "2")
		}, "Save", []string{"update volumes/orders-db"}},
		{"data locality", "orders-db", "Data locality", "Data locality of orders-db", func(b *bench) { b.Choose("Data locality", "best-effort") }, "Save", []string{"update volumes/orders-db"}},
		{"access mode", "archive", "Access mode", "Access mode of archive", func(b *bench) { b.Choose("Access mode", "rwx") }, "Save", []string{"update volumes/archive"}},
		{"expand", "orders-db", "Expand", "Expand orders-db", func(b *bench) {
			b.Type("textbox", "New size", "1Gi")
			b.Describes("textbox", "New size", "must be larger than the current size")
			b.Type("textbox", "New size", "30Gi")
		}, "Expand", []string{"update volumes/orders-db"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, cluster()...)
			b.login("admin")
			b.Open(b.url + "/volumes/" + tc.volume)
			b.Act("Actions on "+tc.volume, tc.item)
			b.Has("dialog", tc.dialog)
			b.Axe(root, tc.dialog)
			tc.fill(b)
			b.ExpectWrites()
			b.Click("button", tc.submit)
			b.HasNot("dialog", tc.dialog)
			b.ExpectWrites(tc.want...)
		})
	}
}

// TestTrimming: the menu offers it while the volume is attached. If the API refuses it, the page shows the API's
// reason.
func TestTrimming(t *testing.T) {
	b := newBench(t, append(cluster(), build.Pod("manager", "node-1", func(p *corev1.Pod) {
		p.Labels["app"], p.Status.PodIP = "longhorn-manager", "10.0.1.1"
	}))...)
	b.daemons.answer(&manager.Problem{Class: manager.ErrConflict, Text: "nothing of volume orders-db is mounted on node-1"})
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Act("Actions on orders-db", "Trim the file system")
	b.Axe(root, "the dialog of a trim")
	b.Click("button", "Trim")
	b.Sees("409 Conflict: nothing of volume orders-db is mounted on node-1")
	b.daemons.answer(nil)
	b.Click("button", "Trim")
	b.HasNot("dialog", "Trim the file system")
	assert.Equal(t, []string{"node-1/orders-db"}, b.daemons.trims())

	b.Open(b.url + "/volumes/archive")
	b.Click("button", "Actions on archive")
	b.Has("menuitem", "Delete")
	b.HasNot("menuitem", "Trim the file system")
}

// TestDetachingByForceAsksForTheName: without force, the volume is detached in the way in which users attached it.
func TestDetachingByForceAsksForTheName(t *testing.T) {
	objs := append(cluster(), build.VolumeAttachment("orders-db", func(a *longhorn.VolumeAttachment) {
		a.OwnerReferences = []metav1.OwnerReference{{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: "orders-db", UID: build.Volume("orders-db").UID}}
		a.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{
			"":    {ID: "", Type: longhorn.AttacherTypeAPI, NodeID: "node-1"},
			"pod": {ID: "pod", Type: longhorn.AttacherTypeCSI, NodeID: "node-1"},
		}
	}))
	b := newBench(t, objs...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Act("Actions on orders-db", "Detach")
	b.Click("checkbox", "Force detach")
	b.Axe(root, "a detach by force")
	b.Click("button", "Force detach")
	b.ExpectWrites()
	b.Type("textbox", "Type “orders-db” to confirm", "orders-db")
	b.Click("button", "Force detach")
	b.HasNot("dialog", "Detach orders-db")
	b.ExpectWrites("update volumeattachments/orders-db")
}

// TestExpansionIsShown: the page shows the current size, the requested size, and the reason why the expansion waits.
func TestExpansionIsShown(t *testing.T) {
	healthy := state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere}
	grows := volume("grows", 10, healthy)
	v, ok := grows[0].(*longhorn.Volume)
	assert.True(t, ok)
	v.Spec.Size = 20 * build.GiB
	v.Status.Size, v.Status.ExpansionRequired = 10*build.GiB, true
	v.Status.Conditions = append(v.Status.Conditions, longhorn.Condition{
		Type: types.ConditionExpanded, Status: longhorn.ConditionFalse, LastTransitionTime: now, Message: "disk disk-1 of node-2 lacks 5 GiB",
	})
	b := newBench(t, append(threeNodes(), grows...)...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Sees("10 GiB → 20 GiB")
	b.Click("link", "grows")
	b.Has("progressbar", "Expansion of grows")
	b.Sees("10 GiB now, 20 GiB requested")
	b.Sees("disk disk-1 of node-2 lacks 5 GiB")
	b.Axe(root, "an expansion")
	b.change(volume("grows", 20, healthy)...)
	b.HasNot("progressbar", "Expansion of grows")
}

// TestAShare: the page shows its state and endpoint, and the volume's YAML.
func TestAShare(t *testing.T) {
	shared := volume("shared", 2, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere})
	v, ok := shared[0].(*longhorn.Volume)
	assert.True(t, ok)
	v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
	v.Status.ShareState, v.Status.ShareEndpoint = longhorn.ShareManagerStateRunning, "nfs://10.96.0.7/shared"
	b := newBench(t, append(threeNodes(), shared...)...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Click("link", "shared")
	b.Sees("nfs://10.96.0.7/shared")
	b.Sees("running")
	b.Click("button", "YAML and JSON")
	b.Sees("shareEndpoint: nfs://10.96.0.7/shared")
	b.Click("tab", "JSON")
	b.Sees(`"shareEndpoint": "nfs://10.96.0.7/shared"`)
	b.Axe(root, "a volume's source")
}

// TestConditions: those that report a problem are marked and come first. The page of a volume hides the others until the
// user asks for them.
func TestConditions(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/unplaced")
	b.Matches("[aria-labelledby=conditions] .badge.warn")
	b.Sees("ReplicaSchedulingFailure")
	b.Axe(root, "a condition that reports a problem")
	b.Open(b.url + "/volumes/search-index")
	b.Has("button", "The only condition reports no problem")
	b.SeesNot("LocalReplicaSchedulingFailure")
	b.Click("button", "The only condition reports no problem")
	b.Sees("LocalReplicaSchedulingFailure")
	b.Axe(root, "conditions that report no problem")
	b.Open(b.url + "/nodes")
	b.Click("button", "Conditions of node-1")
	b.Matches("[aria-label='Conditions of node-1'] .calm")
}

// TestTheTable: a link of the dashboard leads to the degraded volumes. The user chooses columns, and changes several
// volumes at once. If one of them is refused, the page names it, and changes the others.
func TestTheTable(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Degraded")
	b.Sees("2 of 5 volumes") // search-index lacks one of three replicas
	b.Has("link", "orders-queue")
	b.HasNot("link", "archive")
	b.Choose("Degraded State", "All states") // not the column
	b.Sees("5 volumes")
	b.HasNot("button", "Data locality")
	b.Act("Columns", "Data locality")
	b.Press(kb.Escape)
	b.Has("button", "Data locality")

	b.Click("checkbox", "Select orders-db")
	b.Click("checkbox", "Select orders-queue")
	b.Sees("2 selected")
	b.Act("Actions on selected volumes", "Number of replicas")
	b.Type("textbox", "Number of replicas", "2")
	b.Click("button", "Save")
	b.HasNot("dialog", "Replicas of 2 volumes")
	b.ExpectWrites("update volumes/orders-db", "update volumes/orders-queue")
	b.Act("Actions on selected volumes", "Delete")
	b.Has("textbox", "Type “delete 2 volumes” to confirm")
}

// TestByKeyboard: the user creates a volume and opens its menu without a mouse.
func TestByKeyboard(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.login("admin")
	b.Open(b.url + "/volumes")
	b.Sees("There are no volumes yet.")
	focused := func(name string) {
		t.Helper()
		for range 40 {
			b.Press(kb.Tab)
			var is string
			b.Evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || ''", &is)
			if is == name {
				return
			}
		}
		t.Fatalf("the tabulator does not lead to %s", name)
	}
	focused("Create volume")
	b.Press(kb.Enter)
	b.Has("dialog", "Create volume")
	b.Press("mine" + kb.Enter)
	b.HasNot("dialog", "Create volume")
	b.ExpectWrites("create volumes/mine")
	b.Has("link", "mine")
	focused("Actions on mine")
	b.Press(kb.Enter)
	b.Has("menuitem", "Delete")
	b.Press(kb.End + kb.Enter)
	b.Has("dialog", "Delete mine")
	b.Press(kb.Escape)
	b.HasNot("dialog", "Delete mine")
}
