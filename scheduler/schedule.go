package scheduler

import (
	"cmp"
	"slices"
	"strings"
)

// Schedule chooses the place for one more replica. Its only possible error is *Unschedulable.
func Schedule(s Snapshot, req Request) (Placement, error) {
	placements, err := ScheduleAll(s, req, 1)
	if err != nil {
		return Placement{}, err
	}
	return placements[0], nil
}

// ScheduleAll chooses places for n more replicas, one after the other. Each choice takes the earlier ones into account.
// It is all or nothing: if one replica finds no place, ScheduleAll fails with *Unschedulable. The error contains the
// number of replicas that found a place, and why the next one did not.
func ScheduleAll(s Snapshot, req Request, n int) ([]Placement, error) {
	placements := make([]Placement, 0, max(0, n))
	for len(placements) < n {
		place, rejections, ok := choose(s, req)
		if !ok {
			return nil, &Unschedulable{Wanted: n, Placed: len(placements), Rejections: rejections}
		}
		placements = append(placements, place)
		s = s.With(place)
	}
	return placements, nil
}

// choose returns the best place, or false and the reason why each disk was rejected.
func choose(s Snapshot, req Request) (Placement, []Rejection, bool) {
	use := usageOf(s)
	allowed, rejections := filterDisks(s, req, use)
	if len(allowed) == 0 {
		return Placement{}, rejections, false
	}
	best := slices.MinFunc(allowed, func(a, b candidate) int { return compare(a, b, use, s.Settings) })
	return Placement{
		Node:            best.node.Name,
		Disk:            best.disk.Name,
		DiskUUID:        best.disk.UUID,
		DiskPath:        best.disk.Path,
		SizeBytes:       req.SizeBytes,
		ActualSizeBytes: req.ActualSizeBytes,
	}, nil, true
}

// filterDisks separates the disks into allowed and rejected ones. It sorts the rejections.
func filterDisks(s Snapshot, req Request, use usage) ([]candidate, []Rejection) {
	var allowed []candidate
	var rejections []Rejection
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if len(n.Disks) == 0 {
			rejections = append(rejections, Rejection{
				Node: n.Name, Reason: ReasonDiskNotFound, Message: "the node has no disks",
			})
		}
		for j := range n.Disks {
			c := candidate{node: n, disk: &n.Disks[j]}
			reason, message := rejection(c, req, s.Settings, use)
			if reason == "" {
				allowed = append(allowed, c)
				continue
			}
			rejections = append(rejections, Rejection{Node: n.Name, Disk: c.disk.Name, Reason: reason, Message: message})
		}
	}
	slices.SortFunc(rejections, func(a, b Rejection) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Disk, b.Disk))
	})
	return allowed, rejections
}

func rejection(c candidate, req Request, s Settings, use usage) (reason, message string) {
	for _, f := range filters {
		if reason, message := f(c, req, s); reason != "" {
			return reason, message
		}
	}
	return use.antiAffinity(c, s)
}

// scorer compares two allowed candidates. The result is negative if a is the better place, and zero if there is no
// preference.
type scorer func(a, b candidate, use usage, s Settings) int

// scorers are in order of weight. A later scorer decides only between candidates that the earlier scorers find equal.
// The last two make the choice unique, whatever the order of the input.
var scorers = []scorer{
	earlierStage,
	unusedDisk,
	fewerReplicasInZone,
	fewerReplicasOnNode,
	moreUsableStorage,
	moreSchedulableStorage,
	nodeName,
	diskName,
}

func compare(a, b candidate, use usage, s Settings) int {
	for _, score := range scorers {
		if c := score(a, b, use, s); c != 0 {
			return c
		}
	}
	return 0
}

func earlierStage(a, b candidate, use usage, s Settings) int {
	return cmp.Compare(use.stage(a, s), use.stage(b, s))
}

// unusedDisk comes before the counts: where disk anti-affinity is soft, two replicas share a disk only if every
// available disk holds a replica of the volume.
func unusedDisk(a, b candidate, use usage, _ Settings) int {
	return cmp.Compare(min(1, use.disks[a.disk.UUID]), min(1, use.disks[b.disk.UUID]))
}

func fewerReplicasInZone(a, b candidate, use usage, _ Settings) int {
	return cmp.Compare(use.zones[a.node.Zone].all, use.zones[b.node.Zone].all)
}

func fewerReplicasOnNode(a, b candidate, use usage, _ Settings) int {
	return cmp.Compare(use.nodes[a.node.Name].all, use.nodes[b.node.Name].all)
}

func moreUsableStorage(a, b candidate, _ usage, _ Settings) int {
	return cmp.Compare(usable(*b.disk), usable(*a.disk))
}

// moreSchedulableStorage decides where over-provisioning has used up the real room everywhere. So volumes are still
// spread, and not all placed by the order of names.
func moreSchedulableStorage(a, b candidate, _ usage, s Settings) int {
	left := func(d *Disk) int64 { return schedulableMaximum(*d, s) - d.StorageScheduled }
	return cmp.Compare(left(b.disk), left(a.disk))
}

func nodeName(a, b candidate, _ usage, _ Settings) int {
	return strings.Compare(a.node.Name, b.node.Name)
}

func diskName(a, b candidate, _ usage, _ Settings) int {
	return strings.Compare(a.disk.Name, b.disk.Name)
}
