package page

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// spec returns the current spec of a node.
func (b *bench) spec(name string) longhorn.NodeSpec {
	b.T.Helper()
	n, err := b.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(b.T.Context(), name, metav1.GetOptions{})
	require.NoError(b.T, err)
	return n.Spec
}

// byOthers returns node-1 as another user left it: with a second disk, and other tags.
func byOthers(changes ...func(*longhorn.Node)) *longhorn.Node {
	return build.ReadyNode("node-1", "uuid-1", append([]func(*longhorn.Node){
		build.WithDisk("theirs", "/mnt/theirs"),
		func(n *longhorn.Node) { n.Spec.Tags = []string{"theirs"} },
	}, changes...)...)
}

// theirDisk changes the spec of disk-1 as another user would.
func theirDisk(change func(*longhorn.DiskSpec)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		d := n.Spec.Disks["disk-1"]
		change(&d)
		n.Spec.Disks["disk-1"] = d
	}
}

// TestChangesOfOthersStay: a form sends only the changes of its user. Other users change the node while the form is
// open, and the page has not received their changes.
func TestChangesOfOthersStay(t *testing.T) {
	tagged := theirDisk(func(d *longhorn.DiskSpec) { d.Tags = []string{"slow"} })
	for _, tc := range []struct {
		name, button, dialog string
		before, after        *longhorn.Node
		fill                 func(b *bench)
		submit               string
		want                 func(t *testing.T, spec longhorn.NodeSpec)
	}{
		{"a disk is changed", "Edit disk disk-1 of node-1", "Edit disk disk-1", build.ReadyNode("node-1", "uuid-1"), byOthers(tagged), func(b *bench) {
			b.Type("textbox", "Reserved for other uses", "2Gi")
			b.Describes("textbox", "Reserved for other uses", "= 2,147,483,648 bytes (2 GiB)")
		}, "Save", func(t *testing.T, spec longhorn.NodeSpec) {
			assert.Equal(t, int64(2*build.GiB), spec.Disks["disk-1"].StorageReserved)
			assert.Equal(t, []string{"slow"}, spec.Disks["disk-1"].Tags)
			assert.Contains(t, spec.Disks, "theirs")
		}},
		{"a disk is added", "Add disk to node-1", "Add a disk", build.ReadyNode("node-1", "uuid-1"), byOthers(tagged), func(b *bench) {
			b.Type("textbox", "Name", "mine")
			b.Type("textbox", "Path", "/mnt/mine")
		}, "Add", func(t *testing.T, spec longhorn.NodeSpec) {
			assert.Contains(t, spec.Disks, "mine")
			assert.Contains(t, spec.Disks, "theirs")
			assert.Equal(t, []string{"slow"}, spec.Disks["disk-1"].Tags)
		}},
		{"a disk is removed", "Remove disk old of node-1", "Remove disk old", build.ReadyNode("node-1", "uuid-1", build.WithDisk("old", "/mnt/old", closed)), byOthers(tagged, build.WithDisk("old", "/mnt/old", closed)), func(b *bench) {
			b.Type("textbox", "Type “old” to confirm", "old")
		}, "Remove", func(t *testing.T, spec longhorn.NodeSpec) {
			assert.NotContains(t, spec.Disks, "old")
			assert.Contains(t, spec.Disks, "theirs")
			assert.Equal(t, []string{"slow"}, spec.Disks["disk-1"].Tags)
		}},
		{"a node is changed", "Edit node node-1", "Edit node node-1", build.ReadyNode("node-1", "uuid-1"), byOthers(), func(b *bench) {
			b.Click("checkbox", "Evict all replicas")
		}, "Save", func(t *testing.T, spec longhorn.NodeSpec) {
			assert.True(t, spec.EvictionRequested)
			assert.False(t, spec.AllowScheduling)
			assert.Equal(t, []string{"theirs"}, spec.Tags)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.before)
			b.login("admin")
			b.Click("link", "Nodes")
			b.Click("button", tc.button)
			b.network.cut()
			tc.fill(b)
			b.change(tc.after)
			b.Click("button", tc.submit)
			b.HasNot("dialog", tc.dialog)
			b.ExpectWrites("update nodes/node-1")
			tc.want(t, b.spec("node-1"))
		})
	}
}

func closed(d *longhorn.DiskSpec) { d.AllowScheduling = false }

// TestAClashIsSaid: the user and another user changed the same field. The form reports it and overwrites nothing until
// the user sends the form again.
func TestAClashIsSaid(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
	b.login("admin")
	b.Click("link", "Nodes")
	b.Click("button", "Edit disk disk-1 of node-1")
	b.Type("textbox", "Tags", "fast")
	b.change(byOthers(theirDisk(func(d *longhorn.DiskSpec) { d.Tags, d.StorageReserved = []string{"slow"}, 3*build.GiB })))
	b.Click("button", "Save")
	b.Sees("Conflict: disk-1 was changed while this form was open: its tags are now slow. Nothing was sent.")
	b.Axe(root, "a clash")
	b.ExpectWrites()
	assert.Equal(t, "fast", b.Value("textbox", "Tags"), "what was typed stays")
	assert.Equal(t, "3Gi", b.Value("textbox", "Reserved for other uses"), "what was not is as it is now")
	b.Click("button", "Save")
	b.HasNot("dialog", "Edit disk disk-1")
	b.ExpectWrites("update nodes/node-1")
	spec := b.spec("node-1")
	assert.Equal(t, []string{"fast"}, spec.Disks["disk-1"].Tags)
	assert.Equal(t, int64(3*build.GiB), spec.Disks["disk-1"].StorageReserved)

	b.Click("button", "Edit node node-1")
	b.Type("textbox", "Tags", "mine")
	b.change(byOthers(func(n *longhorn.Node) { n.Spec.Tags = []string{"other"} }))
	b.Click("button", "Save")
	b.Sees("Conflict: node-1 was changed while this form was open: its tags are now other. Nothing was sent.")
	b.ExpectWrites()
}

// TestADiskOfAnotherPerson: the form refuses a name at its field if another user has taken it in the meantime. It does
// not remove a disk if another disk has that name now.
func TestADiskOfAnotherPerson(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1", build.WithDisk("old", "/mnt/old", closed)))
	b.login("admin")
	b.Click("link", "Nodes")
	b.Click("button", "Add disk to node-1")
	b.network.cut()
	b.Type("textbox", "Name", "theirs")
	b.Type("textbox", "Path", "/mnt/mine")
	b.change(byOthers(build.WithDisk("old", "/mnt/old", closed)))
	b.Click("button", "Add")
	b.Describes("textbox", "Name", "the node already has a disk with this name")
	b.Click("button", "Cancel")
	b.network.mend()

	b.Click("button", "Remove disk old of node-1")
	b.Type("textbox", "Type “old” to confirm", "old")
	b.change(byOthers(build.WithDisk("old", "/mnt/another", closed)))
	b.Click("button", "Remove")
	b.Sees("disk old was at /mnt/old when this form was opened, and is at /mnt/another now. Nothing was sent.")
	b.ExpectWrites()
	assert.ElementsMatch(t, []string{"disk-1", "old", "theirs"}, slices.Collect(maps.Keys(b.spec("node-1").Disks)))
}
