package scheduler

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScheduleGivesAReasonForARejectedDisk(t *testing.T) {
	healthy := node("n", disk("d", 1000))
	changedNode := func(change func(*Node)) Node { return nodeBut(healthy, change) }
	changedDisk := func(change func(*Disk)) Node { return node("n", diskBut(disk("d", 1000), change)) }
	strict := with(defaults, func(s *Settings) { s.AllowEmptyNodeSelector, s.AllowEmptyDiskSelector = false, false })
	tests := map[string]struct {
		node            Node
		req             Request
		settings        Settings
		reason, message string // empty if it is placed
	}{
		"a healthy node and disk → placed": {node: healthy, settings: defaults, req: Request{SizeBytes: 1000}},

		"node being deleted":                         {changedNode(func(n *Node) { n.Deleting = true }), Request{}, defaults, ReasonNodesUnavailable, "the node is being deleted"},
		"node not ready":                             {changedNode(func(n *Node) { n.Ready = false }), Request{}, defaults, ReasonNodesUnavailable, "the node is not ready"},
		"node cordoned":                              {changedNode(func(n *Node) { n.Schedulable = false }), Request{}, defaults, ReasonNodesUnavailable, "the node is not schedulable: its condition Schedulable is not True"},
		"node closed by the user":                    {changedNode(func(n *Node) { n.AllowScheduling = false }), Request{}, defaults, ReasonNodesUnavailable, "allowScheduling of the node is false"},
		"node without instance manager":              {changedNode(func(n *Node) { n.InstanceManagerRunning = false }), Request{}, defaults, ReasonNodesUnavailable, "the node's instance manager is not running"},
		"node is the required one":                   {node: healthy, settings: defaults, req: Request{HardNodeAffinity: "n"}},
		"another node is required":                   {healthy, Request{HardNodeAffinity: "m"}, defaults, ReasonHardAffinity, "the replica must be on node m"},
		"affinity comes before the instance manager": {changedNode(func(n *Node) { n.InstanceManagerRunning = false }), Request{HardNodeAffinity: "m"}, defaults, ReasonHardAffinity, "the replica must be on node m"},
		"readiness comes before affinity":            {changedNode(func(n *Node) { n.Ready = false }), Request{HardNodeAffinity: "m"}, defaults, ReasonNodesUnavailable, "the node is not ready"},

		"disk closed by the user":   {changedDisk(func(d *Disk) { d.AllowScheduling = false }), Request{}, defaults, ReasonDisksUnavailable, "allowScheduling of the disk is false"},
		"disk being evicted":        {changedDisk(func(d *Disk) { d.EvictionRequested = true }), Request{}, defaults, ReasonDisksUnavailable, "the disk is being evicted"},
		"disk not ready":            {changedDisk(func(d *Disk) { d.Ready = false }), Request{}, defaults, ReasonDisksUnavailable, "the disk is not ready"},
		"disk without UUID":         {changedDisk(func(d *Disk) { d.UUID = "" }), Request{}, defaults, ReasonDisksUnavailable, "the disk has no UUID yet"},
		"disk marked unschedulable": {changedDisk(func(d *Disk) { d.Schedulable = false }), Request{}, defaults, ReasonDisksUnavailable, "the disk is not schedulable: its condition Schedulable is not True"},
		"disk unschedulable and full → the numbers are told": {
			changedDisk(func(d *Disk) { d.Schedulable, d.StorageAvailable = false, 250 }),
			Request{},
			defaults,
			ReasonInsufficientStorage, "storageAvailable 250 bytes - required 0 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"node without disks": {node("n"), Request{}, defaults, ReasonDiskNotFound, "the node has no disks"},

		"all selected node tags → placed":            {node: changedNode(func(n *Node) { n.Tags = []string{"a", "b", "c"} }), settings: defaults, req: Request{NodeSelector: []string{"c", "a"}}},
		"node lacks selected tags":                   {changedNode(func(n *Node) { n.Tags = []string{"a"} }), Request{NodeSelector: []string{"c", "a", "b"}}, defaults, ReasonTagsNotFulfilled, "the node lacks tags [b, c]"},
		"no selector, tagged node, allowed → placed": {node: changedNode(func(n *Node) { n.Tags = []string{"a"} }), settings: defaults},
		"no selector, tagged node, not allowed":      {changedNode(func(n *Node) { n.Tags = []string{"b", "a"} }), Request{}, strict, ReasonTagsNotFulfilled, "the volume has no node selector, the node has tags [a, b], and setting allow-empty-node-selector-volume is false"},
		"no selector, no tags, not allowed → placed": {node: healthy, settings: strict},
		"all selected disk tags → placed":            {node: changedDisk(func(d *Disk) { d.Tags = []string{"ssd"} }), settings: strict, req: Request{DiskSelector: []string{"ssd"}}},
		"disk lacks selected tags":                   {healthy, Request{DiskSelector: []string{"ssd"}}, defaults, ReasonTagsNotFulfilled, "the disk lacks tags [ssd]"},
		"no selector, tagged disk, not allowed":      {changedDisk(func(d *Disk) { d.Tags = []string{"ssd"} }), Request{}, strict, ReasonTagsNotFulfilled, "the volume has no disk selector, the disk has tags [ssd], and setting allow-empty-disk-selector-volume is false"},
		"no selector, tagged disk, allowed on nodes alone": {
			changedDisk(func(d *Disk) { d.Tags = []string{"ssd"} }),
			Request{},
			with(strict, func(s *Settings) { s.AllowEmptyNodeSelector = true }),
			ReasonTagsNotFulfilled, "the volume has no disk selector, the disk has tags [ssd], and setting allow-empty-disk-selector-volume is false",
		},
		"no selector, tagged node, allowed on disks alone": {
			changedNode(func(n *Node) { n.Tags = []string{"a"} }),
			Request{},
			with(strict, func(s *Settings) { s.AllowEmptyDiskSelector = true }),
			ReasonTagsNotFulfilled, "the volume has no node selector, the node has tags [a], and setting allow-empty-node-selector-volume is false",
		},

		"volume larger than the disk": {
			healthy,
			Request{SizeBytes: 1001},
			defaults, ReasonInsufficientStorage,
			"storageScheduled 0 bytes + size 1001 bytes must not exceed 1000 bytes (100% of storageMaximum 1000 bytes - storageReserved 0 bytes, setting storage-over-provisioning-percentage)",
		},
		"copy larger than the free space": {
			healthy,
			Request{SizeBytes: 1000, ActualSizeBytes: 750},
			defaults, ReasonInsufficientStorage,
			"storageAvailable 1000 bytes - required 750 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"just below what may be in use with the copy → placed": {
			node: changedDisk(func(d *Disk) { d.StorageAvailable = 601 }), settings: defaults, req: Request{ActualSizeBytes: 100, UsedBelowPercent: 50},
		},
		"as much in use with the copy as may not be": {
			changedDisk(func(d *Disk) { d.StorageAvailable = 600 }),
			Request{ActualSizeBytes: 100, UsedBelowPercent: 50},
			defaults, ReasonInsufficientStorage,
			"storageAvailable 600 bytes - required 100 bytes must leave more than 50% of storageMaximum 1000 bytes",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Schedule(Snapshot{Nodes: []Node{tt.node}, Settings: tt.settings}, tt.req)
			if tt.reason == "" {
				want := Placement{Node: "n", Disk: "d", DiskUUID: "d", DiskPath: "/d", SizeBytes: tt.req.SizeBytes, ActualSizeBytes: tt.req.ActualSizeBytes}
				require.NoError(t, err)
				require.Equal(t, want, got)
				return
			}
			var unschedulable *Unschedulable
			require.ErrorAs(t, err, &unschedulable, got)
			want := Rejection{Node: "n", Disk: "d", Reason: tt.reason, Message: tt.message}
			if tt.reason == ReasonDiskNotFound {
				want.Disk = ""
			}
			assert.Equal(t, []Rejection{want}, unschedulable.Rejections, want)
		})
	}
}

func TestUnschedulableNamesEveryDisk(t *testing.T) {
	s := Snapshot{
		Settings: defaults,
		Nodes: []Node{
			node("c"),
			node("b", disk("b2", 100), disk("b1", 100)),
			nodeBut(node("a", disk("a1", 1000)), func(n *Node) { n.Ready = false }),
		},
	}
	_, err := Schedule(s, Request{SizeBytes: 10})
	var unschedulable *Unschedulable
	require.ErrorAs(t, err, &unschedulable)
	const full = "storageAvailable 100 bytes - required 0 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)"
	want := []Rejection{
		{"a", "a1", ReasonNodesUnavailable, "the node is not ready"},
		{"b", "b1", ReasonInsufficientStorage, full},
		{"b", "b2", ReasonInsufficientStorage, full},
		{"c", "", ReasonDiskNotFound, "the node has no disks"},
	}
	assert.Equal(t, want, unschedulable.Rejections)
	const text = "replica scheduling failed: insufficient storage (2 disks), disk not found (1 node), nodes are unavailable (1 disk: the node is not ready)"
	assert.EqualError(t, err, text)
	const details = text + `
node a disk a1: nodes are unavailable: the node is not ready
node b disk b1: insufficient storage: ` + full + `
node b disk b2: insufficient storage: ` + full + `
node c: disk not found: the node has no disks`
	assert.Equal(t, details, unschedulable.Details())
}

func TestTheSummarySaysWhatDisksLack(t *testing.T) {
	reject := func(n int, reason, message string) []Rejection {
		return slices.Repeat([]Rejection{{Node: "n", Disk: "d", Reason: reason, Message: message}}, n)
	}
	for name, tt := range map[string]struct {
		rejections []Rejection
		want       string
	}{
		"all for the same → said once": {
			reject(3, ReasonTagsNotFulfilled, "the disk lacks tags [ssd]"),
			"tags not fulfilled (3 disks: the disk lacks tags [ssd])",
		},
		"different ones → each with its number, the most frequent first, then by text": {
			slices.Concat(reject(1, ReasonDisksUnavailable, "c"), reject(1, ReasonDisksUnavailable, "b"), reject(2, ReasonDisksUnavailable, "z")),
			"disks are unavailable (4 disks: 2: z; 1: b; 1: c)",
		},
		"more than three → the rest is not listed": {
			slices.Concat(reject(4, ReasonNodesUnavailable, "a"), reject(3, ReasonNodesUnavailable, "b"), reject(2, ReasonNodesUnavailable, "c"), reject(1, ReasonNodesUnavailable, "d")),
			"nodes are unavailable (10 disks: 4: a; 3: b; 2: c; and others)",
		},
		"of another reason → not told under this one": {
			slices.Concat(reject(2, ReasonOnItself, "a"), reject(1, ReasonHardAffinity, "b")),
			"the volume would depend on itself (2 disks: a), hard affinity cannot be satisfied (1 disk: b)",
		},
		"figures that change → not in the sentence": {
			slices.Concat(reject(2, ReasonInsufficientStorage, "storageAvailable 7 bytes"), reject(1, ReasonAntiAffinity, "x"), reject(1, ReasonDiskNotFound, "y")),
			"insufficient storage (2 disks), anti-affinity cannot be satisfied (1 disk), disk not found (1 node)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &Unschedulable{Wanted: 1, Rejections: tt.rejections}
			assert.Equal(t, "replica scheduling failed: "+tt.want, u.Error())
		})
	}
}

func TestUnschedulableWithoutNodes(t *testing.T) {
	_, err := Schedule(Snapshot{Settings: defaults}, Request{})
	assert.EqualError(t, err, "replica scheduling failed: node not found")
}
