package scheduler

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawSnapshot draws clusters that are so small that rules conflict often.
func drawSnapshot(t *rapid.T) Snapshot {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	mostly := func(name string) bool { return rapid.IntRange(0, 7).Draw(t, name) > 0 }
	size := func(name string) int64 { return rapid.Int64Range(0, 100).Draw(t, name) }
	s := Snapshot{Settings: Settings{
		MinimalAvailablePercent: rapid.Int64Range(0, 60).Draw(t, "minimal"),
		OverProvisioningPercent: rapid.Int64Range(50, 250).Draw(t, "over"),
		NodeSoftAntiAffinity:    flag("node soft"), ZoneSoftAntiAffinity: flag("zone soft"), DiskSoftAntiAffinity: flag("disk soft"),
		AllowEmptyNodeSelector: mostly("empty node selector"), AllowEmptyDiskSelector: mostly("empty disk selector"),
	}}
	tags := rapid.SampledFrom([][]string{nil, nil, {"ssd"}, {"ssd", "fast"}})
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		n := Node{
			Name: fmt.Sprintf("n%d", i), Zone: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone"), Tags: tags.Draw(t, "node tags"),
			Ready: mostly("ready"), Schedulable: mostly("schedulable"), AllowScheduling: mostly("allow"),
			Deleting: !mostly("deleting"), InstanceManagerRunning: mostly("instance manager"),
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "disks") {
			d := Disk{
				Name: fmt.Sprintf("d%d", j), UUID: fmt.Sprintf("u%d-%d", i, j), Path: "/p", Tags: tags.Draw(t, "disk tags"),
				AllowScheduling: mostly("disk allow"), EvictionRequested: !mostly("evicting"), Ready: mostly("disk ready"), Schedulable: mostly("disk schedulable"),
				StorageMaximum: 100, StorageAvailable: size("available"), StorageReserved: size("reserved") / 2, StorageScheduled: size("scheduled"),
			}
			n.Disks = append(n.Disks, d)
			if rapid.IntRange(0, 5).Draw(t, "has replica") == 0 {
				s.Replicas = append(s.Replicas, Replica{Node: n.Name, DiskUUID: d.UUID, Evicting: flag("replica evicting")})
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func drawRequest(t *rapid.T) Request {
	selector := rapid.SampledFrom([][]string{nil, nil, nil, {"ssd"}})
	return Request{
		SizeBytes: rapid.Int64Range(0, 60).Draw(t, "size"), ActualSizeBytes: rapid.Int64Range(0, 30).Draw(t, "actual"),
		HardNodeAffinity: rapid.SampledFrom([]string{"", "", "", "n0", "n1"}).Draw(t, "affinity"),
		NodeSelector:     selector.Draw(t, "node selector"), DiskSelector: selector.Draw(t, "disk selector"),
	}
}

// mayHold decides in one flat condition, without the package's filters and stages, whether a disk may hold one more
// replica.
func mayHold(s Snapshot, req Request, n Node, d Disk) bool {
	set := s.Settings
	hasAll := func(have, selector []string, allowEmpty bool) bool {
		found := 0
		for _, tag := range selector {
			for _, h := range have {
				if h == tag {
					found++
				}
			}
		}
		return found == len(selector) && (len(selector) > 0 || len(have) == 0 || allowEmpty)
	}
	zoneOf := map[string]string{}
	for _, other := range s.Nodes {
		zoneOf[other.Name] = other.Zone
	}
	var onNode, stayOnNode, stayInZone, onDisk int
	for _, r := range s.Replicas {
		if r.Node == n.Name {
			onNode++
			if !r.Evicting {
				stayOnNode++
			}
		}
		if zoneOf[r.Node] == n.Zone && !r.Evicting {
			stayInZone++
		}
		if r.DiskUUID == d.UUID {
			onDisk++
		}
	}
	usable := n.Ready && n.Schedulable && n.AllowScheduling && !n.Deleting && n.InstanceManagerRunning &&
		d.AllowScheduling && !d.EvictionRequested && d.Ready && d.Schedulable &&
		(req.HardNodeAffinity == "" || req.HardNodeAffinity == n.Name)
	tagged := hasAll(n.Tags, req.NodeSelector, set.AllowEmptyNodeSelector) && hasAll(d.Tags, req.DiskSelector, set.AllowEmptyDiskSelector)
	room := d.StorageMaximum > 0 && d.StorageAvailable > 0 &&
		100*(d.StorageAvailable-req.ActualSizeBytes) >= 100*(d.StorageMaximum*set.MinimalAvailablePercent/100)+100 &&
		d.StorageScheduled+req.SizeBytes <= (d.StorageMaximum-d.StorageReserved)*set.OverProvisioningPercent/100
	apart := (set.DiskSoftAntiAffinity || onDisk == 0) &&
		(set.ZoneSoftAntiAffinity || onNode == 0 && stayInZone == 0) &&
		(!set.ZoneSoftAntiAffinity || set.NodeSoftAntiAffinity || stayOnNode == 0)
	return usable && tagged && room && apart
}

// A replica is placed exactly if some disk may hold it, and on such a disk. Otherwise every disk has its rejection.
func TestScheduleFindsAPlaceExactlyWhenThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, req := drawSnapshot(t), drawRequest(t)
		may, entries := map[string]bool{}, 0
		for _, n := range s.Nodes {
			entries += max(1, len(n.Disks))
			for _, d := range n.Disks {
				if mayHold(s, req, n, d) {
					may[d.UUID] = true
				}
			}
		}
		got, err := Schedule(s, req)
		if err == nil {
			require.True(t, may[got.DiskUUID], "placed on %+v, may be on %v", got, may)
			return
		}
		var unschedulable *Unschedulable
		require.ErrorAs(t, err, &unschedulable, "error of another kind")
		require.Empty(t, may, unschedulable.Details())
		require.Len(t, unschedulable.Rejections, entries)
	})
}

// Several replicas that are placed at once also follow the rules among each other.
func TestScheduleAllAppliesTheRulesToItsOwnReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, req := drawSnapshot(t), drawRequest(t)
		got, err := ScheduleAll(s, req, rapid.IntRange(1, 4).Draw(t, "n"))
		if err != nil {
			return
		}
		perNode, perDisk := map[string]int{}, map[string]int64{}
		zoneOf, inZone, onDisk := map[string]string{}, map[string]int{}, map[string]int{}
		for _, n := range s.Nodes {
			zoneOf[n.Name] = n.Zone
		}
		for _, r := range s.Replicas {
			onDisk[r.DiskUUID]++
			if !r.Evicting {
				perNode[r.Node]++
				inZone[zoneOf[r.Node]]++
			}
		}
		for _, p := range got {
			perNode[p.Node]++
			perDisk[p.DiskUUID]++
			require.False(t, inZone[zoneOf[p.Node]] > 0 && !s.Settings.ZoneSoftAntiAffinity, "two replicas in the zone of node %s: %+v", p.Node, got)
			require.False(t, onDisk[p.DiskUUID] > 0 && !s.Settings.DiskSoftAntiAffinity, "two replicas on disk %s: %+v", p.DiskUUID, got)
			inZone[zoneOf[p.Node]]++
			onDisk[p.DiskUUID]++
			require.False(t, perNode[p.Node] > 1 && !s.Settings.NodeSoftAntiAffinity, "two replicas on node %s: %+v", p.Node, got)
		}
		for _, n := range s.Nodes {
			for _, d := range n.Disks {
				count := perDisk[d.UUID]
				if count == 0 {
					continue
				}
				require.LessOrEqual(t, d.StorageScheduled+count*req.SizeBytes, (d.StorageMaximum-d.StorageReserved)*s.Settings.OverProvisioningPercent/100, "disk %+v promised too much: %+v", d, got)
				require.Greater(t, d.StorageAvailable-count*req.ActualSizeBytes, d.StorageMaximum*s.Settings.MinimalAvailablePercent/100, "disk %+v filled too far: %+v", d, got)
			}
		}
	})
}

func TestScheduleAllDoesNotDependOnInputOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, req, n := drawSnapshot(t), drawRequest(t), rapid.IntRange(1, 4).Draw(t, "n")
		got, err := ScheduleAll(s, req, n)

		random := rand.New(rand.NewSource(rapid.Int64().Draw(t, "order")))
		shuffled := Snapshot{Settings: s.Settings, Replicas: append([]Replica(nil), s.Replicas...)}
		random.Shuffle(len(shuffled.Replicas), func(i, j int) {
			shuffled.Replicas[i], shuffled.Replicas[j] = shuffled.Replicas[j], shuffled.Replicas[i]
		})
		for _, i := range random.Perm(len(s.Nodes)) {
			node := s.Nodes[i]
			node.Disks = append([]Disk(nil), node.Disks...)
			random.Shuffle(len(node.Disks), func(i, j int) { node.Disks[i], node.Disks[j] = node.Disks[j], node.Disks[i] })
			shuffled.Nodes = append(shuffled.Nodes, node)
		}
		again, errAgain := ScheduleAll(shuffled, req, n)
		require.Equal(t, again, got)
		require.Equal(t, errAgain, err)
	})
}
