package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScheduleChoosesAPlace(t *testing.T) {
	scheduled := func(n int64) func(*Disk) { return func(d *Disk) { d.StorageScheduled = n } }
	reserved := func(n int64) func(*Disk) { return func(d *Disk) { d.StorageReserved = n } }
	generous := with(defaults, func(s *Settings) { s.OverProvisioningPercent = 300 })
	tests := map[string]struct {
		nodes    []Node
		replicas []Replica
		settings Settings
		want     string // disk
	}{
		"the most free space wins": {
			nodes:    []Node{node("a", disk("a1", 500), disk("a2", 600)), node("b", disk("b1", 550))},
			settings: defaults, want: "a2",
		},
		"promised space is not usable": {
			nodes:    []Node{node("a", diskBut(disk("a1", 900), scheduled(400))), node("b", disk("b1", 550))},
			settings: defaults, want: "b1",
		},
		"reserved space is not usable": {
			nodes:    []Node{node("a", diskBut(disk("a1", 900), reserved(400))), node("b", disk("b1", 550))},
			settings: defaults, want: "b1",
		},
		"no usable space anywhere → the least promised": {
			nodes:    []Node{node("a", diskBut(disk("a1", 900), scheduled(1200))), node("b", diskBut(disk("b1", 500), scheduled(1100)))},
			settings: generous, want: "b1",
		},
		"equal disks → the first by node name": {
			nodes: []Node{node("b", disk("1", 500)), node("a", disk("2", 500))}, settings: defaults, want: "2",
		},
		"equal disks of a node → the first by disk name": {
			nodes: []Node{node("a", disk("a2", 500), disk("a1", 500))}, settings: defaults, want: "a1",
		},
		"an unused zone beats free space": {
			nodes: []Node{
				inZone("x", node("a", disk("a1", 500))), inZone("x", node("b", disk("b1", 900))), inZone("y", node("c", disk("c1", 300))),
			},
			replicas: []Replica{on("a", "a1")}, settings: defaults, want: "c1",
		},
		"an unused node beats free space": {
			nodes:    []Node{node("a", disk("a1", 500), disk("a2", 900)), node("b", disk("b1", 300))},
			replicas: []Replica{on("a", "a1")},
			settings: with(defaults, func(s *Settings) { s.NodeSoftAntiAffinity = true }), want: "b1",
		},
		"all zones used → the one with fewer replicas": {
			nodes: []Node{
				inZone("x", node("a", disk("a1", 500))), inZone("x", node("b", disk("b1", 500))), inZone("x", node("c", disk("c1", 900))),
				inZone("y", node("d", disk("d1", 500))), inZone("y", node("e", disk("e1", 300))),
			},
			replicas: []Replica{on("a", "a1"), on("b", "b1"), on("d", "d1")}, settings: defaults, want: "e1",
		},
		"nodes all used, soft → an unused disk first": {
			nodes:    []Node{node("a", disk("a1", 900)), node("b", disk("b1", 900), disk("b2", 300), disk("b3", 300))},
			replicas: []Replica{on("a", "a1"), on("b", "b1"), on("b", "b3")},
			settings: with(defaults, func(s *Settings) { s.NodeSoftAntiAffinity = true }), want: "b2",
		},
		"disks all used, soft → the node with fewer replicas": {
			nodes:    []Node{node("a", disk("a1", 900), disk("a2", 900)), node("b", disk("b1", 300))},
			replicas: []Replica{on("a", "a1"), on("a", "a2"), on("b", "b1")},
			settings: with(defaults, func(s *Settings) { s.NodeSoftAntiAffinity = true }), want: "b1",
		},
		"a replica on a node that is gone uses no zone": {
			nodes:    []Node{inZone("", node("a", disk("a1", 500)))},
			replicas: []Replica{on("gone", "g1")},
			settings: with(defaults, func(s *Settings) { s.ZoneSoftAntiAffinity = false }), want: "a1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Schedule(Snapshot{Nodes: tt.nodes, Replicas: tt.replicas, Settings: tt.settings}, Request{SizeBytes: 10})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.Disk)
		})
	}
}

func TestAntiAffinity(t *testing.T) {
	zones := []Node{
		inZone("x", node("a", disk("a1", 900), disk("a2", 900))),
		inZone("x", node("b", disk("b1", 500))),
		inZone("y", node("c", disk("c1", 300))),
	}
	const nodeUsed, diskUsed = "another replica of the volume is on the node", "another replica of the volume is on the disk"
	zoneUsed := func(zone string) string { return "another replica of the volume is in the node's zone " + zone }
	tests := map[string]struct {
		nodes                        []Node
		replicas                     []Replica
		nodeSoft, zoneSoft, diskSoft bool
		want                         string            // disk, or
		rejected                     map[string]string // disk → message
	}{
		"zone hard, a zone is unused → there":               {nodes: zones, replicas: []Replica{on("a", "a1")}, want: "c1"},
		"zone hard, a zone holds only leaving ones → there": {nodes: zones, replicas: []Replica{leaving("a", "a1"), on("c", "c1")}, want: "b1"},
		"zone hard, an unused zone comes before a leaving one": {
			nodes: zones, replicas: []Replica{leaving("a", "a1")}, want: "c1",
		},
		"zone hard, all zones used → nowhere, even with soft nodes": {
			nodes: zones, replicas: []Replica{on("a", "a1"), on("c", "c1")}, nodeSoft: true, diskSoft: true,
			rejected: map[string]string{"a1": nodeUsed, "a2": nodeUsed, "b1": zoneUsed("x"), "c1": nodeUsed},
		},
		"zone hard, no zones known → they are one zone": {
			nodes: []Node{node("a", disk("a1", 900)), node("b", disk("b1", 900))}, replicas: []Replica{on("a", "a1")},
			rejected: map[string]string{"a1": nodeUsed, "b1": zoneUsed("(all nodes without a zone label form one zone)")},
		},
		"zone hard, the node that a replica leaves is not used again": {
			nodes: zones[2:], replicas: []Replica{leaving("c", "c1")}, nodeSoft: true, diskSoft: true,
			rejected: map[string]string{"c1": nodeUsed},
		},
		"zone soft, node hard, an unused node of a full zone comes before a leaving one of an emptier zone": {
			nodes: append(zones[:2:2],
				inZone("x", node("d", disk("d1", 900))), inZone("x", node("e", disk("e1", 900))),
				inZone("y", node("f", disk("f1", 900), disk("f2", 900)))),
			replicas: []Replica{on("a", "a1"), on("b", "b1"), on("d", "d1"), leaving("f", "f1")}, zoneSoft: true, want: "e1",
		},
		"zone soft, zones used → an unused node":                 {nodes: zones, replicas: []Replica{on("a", "a1"), on("c", "c1")}, zoneSoft: true, want: "b1"},
		"zone soft, node hard, only a leaving node left → there": {nodes: zones, replicas: []Replica{leaving("a", "a1"), on("b", "b1"), on("c", "c1")}, zoneSoft: true, want: "a2"},
		"zone soft, an unused node comes before a leaving one":   {nodes: zones, replicas: []Replica{leaving("a", "a1"), on("c", "c1")}, zoneSoft: true, want: "b1"},
		"node hard, all nodes used → nowhere": {
			nodes: zones, replicas: []Replica{on("a", "a1"), on("b", "b1"), on("c", "c1")}, zoneSoft: true, diskSoft: true,
			rejected: map[string]string{"a1": nodeUsed, "a2": nodeUsed, "b1": nodeUsed, "c1": nodeUsed},
		},
		"node hard, one leaving and one staying on a node → used": {
			nodes: zones[:1], replicas: []Replica{leaving("a", "a1"), on("a", "a1")}, zoneSoft: true, diskSoft: true,
			rejected: map[string]string{"a1": nodeUsed, "a2": nodeUsed},
		},
		"both soft, all nodes used → an unused disk": {nodes: zones, replicas: []Replica{on("a", "a1"), on("b", "b1"), on("c", "c1")}, nodeSoft: true, zoneSoft: true, want: "a2"},
		"disk hard, all disks used → nowhere": {
			nodes: zones, replicas: []Replica{on("a", "a1"), on("a", "a2"), on("b", "b1"), on("c", "c1")}, nodeSoft: true, zoneSoft: true,
			rejected: map[string]string{"a1": diskUsed, "a2": diskUsed, "b1": diskUsed, "c1": diskUsed},
		},
		"all soft, all disks used → the best of the least used zone": {nodes: zones, replicas: []Replica{on("a", "a1"), on("a", "a2"), on("b", "b1"), on("c", "c1")}, nodeSoft: true, zoneSoft: true, diskSoft: true, want: "c1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			settings := with(defaults, func(s *Settings) {
				s.NodeSoftAntiAffinity, s.ZoneSoftAntiAffinity, s.DiskSoftAntiAffinity = tt.nodeSoft, tt.zoneSoft, tt.diskSoft
			})
			got, err := Schedule(Snapshot{Nodes: tt.nodes, Replicas: tt.replicas, Settings: settings}, Request{SizeBytes: 10})
			if tt.want != "" {
				require.NoError(t, err)
				require.Equal(t, tt.want, got.Disk)
				return
			}
			var unschedulable *Unschedulable
			require.ErrorAs(t, err, &unschedulable, got)
			require.Len(t, unschedulable.Rejections, len(tt.rejected))
			for _, r := range unschedulable.Rejections {
				assert.Equal(t, ReasonAntiAffinity, r.Reason, "disk %s", r.Disk)
				assert.Equal(t, tt.rejected[r.Disk], r.Message, "disk %s", r.Disk)
			}
		})
	}
}

func TestScheduleAll(t *testing.T) {
	three := []Node{node("a", disk("a1", 500)), node("b", disk("b1", 900)), node("c", disk("c1", 700))}
	soft := with(defaults, func(s *Settings) { s.NodeSoftAntiAffinity = true })
	tests := map[string]struct {
		nodes    []Node
		settings Settings
		req      Request
		n        int
		want     string // disks in order, or
		wantErr  string // the error, with
		placed   int
	}{
		"three replicas take three nodes, the emptiest first": {nodes: three, settings: defaults, req: Request{SizeBytes: 100}, n: 3, want: "b1 c1 a1"},
		"none": {nodes: three, settings: defaults, n: 0, want: ""},
		"four on three nodes, hard → error": {
			nodes: three, settings: defaults, n: 4, placed: 3,
			wantErr: "replica scheduling failed: 3 of 4 replicas fit: anti-affinity cannot be satisfied (3 disks)",
		},
		"soft, sizes placed in this pass count → the emptier disk in turn": {
			nodes: []Node{node("a", disk("a1", 1000), disk("a2", 1000))}, settings: soft, req: Request{SizeBytes: 400}, n: 4, want: "a1 a2 a1 a2",
		},
		"soft, the virtual room ends → error": {
			nodes: []Node{node("a", disk("a1", 1000))}, settings: soft, req: Request{SizeBytes: 400}, n: 3, placed: 2,
			wantErr: "replica scheduling failed: 2 of 3 replicas fit: insufficient storage (1 disk)",
		},
		"soft, the physical room ends → error": {
			nodes: []Node{node("a", disk("a1", 1000))}, settings: soft, req: Request{SizeBytes: 1, ActualSizeBytes: 300}, n: 3, placed: 2,
			wantErr: "replica scheduling failed: 2 of 3 replicas fit: insufficient storage (1 disk)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ScheduleAll(Snapshot{Nodes: tt.nodes, Settings: tt.settings}, tt.req, tt.n)
			if tt.wantErr != "" {
				var unschedulable *Unschedulable
				require.ErrorAs(t, err, &unschedulable)
				assert.EqualError(t, err, tt.wantErr)
				assert.Equal(t, tt.placed, unschedulable.Placed)
				assert.Equal(t, tt.n, unschedulable.Wanted)
				assert.Nil(t, got)
				return
			}
			disks := make([]string, len(got))
			for i, p := range got {
				disks[i] = p.Disk
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, strings.Join(disks, " "))
		})
	}
}

func TestWithDoesNotChangeTheSnapshot(t *testing.T) {
	before := Snapshot{
		Settings: defaults,
		Nodes:    []Node{node("a", disk("a1", 900), disk("a2", 900)), node("b", disk("b1", 900))},
		Replicas: slices.Grow([]Replica{on("b", "b1")}, 4), // spare capacity that a careless append would share
	}
	p := Placement{Node: "a", Disk: "a2", DiskUUID: "a2", SizeBytes: 100, ActualSizeBytes: 30}
	after, other := before.With(p), before.With(Placement{Node: "a", Disk: "a1", DiskUUID: "a1", SizeBytes: 1})

	d := before.Nodes[0].Disks[1]
	assert.Zero(t, d.StorageScheduled)
	assert.Equal(t, int64(900), d.StorageAvailable)
	assert.Len(t, before.Replicas, 1, "the snapshot was changed")
	d = after.Nodes[0].Disks[1]
	assert.Equal(t, int64(100), d.StorageScheduled)
	assert.Equal(t, int64(870), d.StorageAvailable)
	d = after.Nodes[0].Disks[0]
	assert.Zero(t, d.StorageScheduled)
	assert.Equal(t, int64(900), d.StorageAvailable, "the other disk was changed")
	assert.Equal(t, []Replica{on("b", "b1"), on("a", "a2")}, after.Replicas)
	assert.Equal(t, []Replica{on("b", "b1"), on("a", "a1")}, other.Replicas)
}
