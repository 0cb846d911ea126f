package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/types"
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

// candidate is a disk with its node, both unchanged from the snapshot.
type candidate struct {
	node *Node
	disk *Disk
}

// filter returns the reason why a disk cannot take the replica of the request, or two empty strings. A filter checks
// one disk alone; anti-affinity checks the relation between replicas.
type filter func(c candidate, req Request, s Settings) (reason, message string)

// filters run in this order. The first filter that objects rejects the disk.
var filters = []filter{
	nodeAvailable,
	hardNodeAffinity,
	instanceManagerRunning,
	diskAvailable,
	notOnItself,
	nodeTags,
	diskTags,
	enoughStorage,
	usedBelow,
}

func nodeAvailable(c candidate, _ Request, _ Settings) (reason, message string) {
	switch n := c.node; {
	case n.Deleting:
		return ReasonNodesUnavailable, "the node is being deleted"
	case !n.Ready:
		return ReasonNodesUnavailable, "the node is not ready"
	case !n.Schedulable:
		return ReasonNodesUnavailable, "the node is not schedulable: its condition Schedulable is not True"
	case !n.AllowScheduling:
		return ReasonNodesUnavailable, "allowScheduling of the node is false"
	}
	return "", ""
}

func hardNodeAffinity(c candidate, req Request, _ Settings) (reason, message string) {
	if req.HardNodeAffinity != "" && req.HardNodeAffinity != c.node.Name {
		return ReasonHardAffinity, "the replica must be on node " + req.HardNodeAffinity
	}
	return "", ""
}

func instanceManagerRunning(c candidate, _ Request, _ Settings) (reason, message string) {
	if !c.node.InstanceManagerRunning {
		return ReasonNodesUnavailable, "the node's instance manager is not running"
	}
	return "", ""
}

func diskAvailable(c candidate, _ Request, _ Settings) (reason, message string) {
	switch d := c.disk; {
	case !d.AllowScheduling:
		return ReasonDisksUnavailable, "allowScheduling of the disk is false"
	case d.EvictionRequested:
		return ReasonDisksUnavailable, "the disk is being evicted"
	case !d.Ready:
		return ReasonDisksUnavailable, "the disk is not ready"
	case d.UUID == "":
		return ReasonDisksUnavailable, "the disk has no UUID yet"
	}
	return "", ""
}

func notOnItself(c candidate, _ Request, _ Settings) (reason, message string) {
	if c.disk.Circular {
		return ReasonOnItself, fmt.Sprintf("the disk is stored on volume %s: with a replica of this volume on the disk, the volume would depend on itself", c.disk.OnVolume)
	}
	return "", ""
}

func nodeTags(c candidate, req Request, s Settings) (reason, message string) {
	return tags("node", c.node.Tags, req.NodeSelector, s.AllowEmptyNodeSelector)
}

func diskTags(c candidate, req Request, s Settings) (reason, message string) {
	return tags("disk", c.disk.Tags, req.DiskSelector, s.AllowEmptyDiskSelector)
}

func tags(kind string, have, selector []string, allowEmptySelector bool) (reason, message string) {
	if len(selector) == 0 {
		if len(have) > 0 && !allowEmptySelector {
			return ReasonTagsNotFulfilled,
				fmt.Sprintf("the volume has no %s selector, the %s has tags [%s], and setting allow-empty-%s-selector-volume is false", kind, kind, join(have), kind)
		}
		return "", ""
	}
	var lacking []string
	for _, tag := range selector {
		if !slices.Contains(have, tag) {
			lacking = append(lacking, tag)
		}
	}
	if len(lacking) > 0 {
		return ReasonTagsNotFulfilled, fmt.Sprintf("the %s lacks tags [%s]", kind, join(lacking))
	}
	return "", ""
}

func join(list []string) string {
	return strings.Join(slices.Sorted(slices.Values(list)), ", ")
}

// enoughStorage applies the rules of shortage again, with the request's sizes and the placements of this pass. It
// checks the disk's Schedulable condition last. The condition is the result of the same rule without sizes, at an
// earlier time, so the present numbers explain more.
func enoughStorage(c candidate, req Request, s Settings) (reason, message string) {
	if lack := shortage(*c.disk, s, req.SizeBytes, req.ActualSizeBytes); lack != "" {
		return ReasonInsufficientStorage, lack
	}
	if !c.disk.Schedulable {
		return ReasonDisksUnavailable, "the disk is not schedulable: its condition Schedulable is not True"
	}
	return "", ""
}

// usedBelow applies to a replica that leaves a disk because too much of it is in use. It rejects a disk that would then
// be in the same state.
func usedBelow(c candidate, req Request, _ Settings) (reason, message string) {
	d := c.disk
	if req.UsedBelowPercent > 0 && UsesAtLeast(req.UsedBelowPercent, d.StorageMaximum, d.StorageAvailable-req.ActualSizeBytes) {
		return ReasonInsufficientStorage, fmt.Sprintf("storageAvailable %s - required %s must leave more than %d%% of storageMaximum %s",
			types.SizeText(d.StorageAvailable), types.SizeText(req.ActualSizeBytes), 100-req.UsedBelowPercent, types.SizeText(d.StorageMaximum))
	}
	return "", ""
}

// replicaUse is the degree to which the volume's replicas take a node or zone.
type replicaUse int

const (
	unused       replicaUse = iota // no replica
	onlyEvicting                   // replicas, all of which must leave
	used                           // a replica that stays
)

// usage counts the volume's replicas by node, zone and disk.
type usage struct {
	nodes, zones map[string]replicaCount
	disks        map[string]int // by UUID
}

type replicaCount struct{ all, staying int }

func (t replicaCount) use() replicaUse {
	switch {
	case t.all == 0:
		return unused
	case t.staying == 0:
		return onlyEvicting
	}
	return used
}

func (t replicaCount) add(r Replica) replicaCount {
	t.all++
	if !r.Evicting {
		t.staying++
	}
	return t
}

func usageOf(s Snapshot) usage {
	u := usage{nodes: map[string]replicaCount{}, zones: map[string]replicaCount{}, disks: map[string]int{}}
	zoneOf := make(map[string]string, len(s.Nodes))
	for _, n := range s.Nodes {
		zoneOf[n.Name] = n.Zone
	}
	for _, r := range s.Replicas {
		u.nodes[r.Node] = u.nodes[r.Node].add(r)
		u.disks[r.DiskUUID]++
		if zone, ok := zoneOf[r.Node]; ok {
			u.zones[zone] = u.zones[zone].add(r)
		}
	}
	return u
}

// forbidden is the stage of a place that anti-affinity does not allow.
const forbidden = -1

// stage returns the stage of a candidate's node in the order in which anti-affinity tries nodes. A lower stage is
// exhausted before the next one is tried.
//
//	             stage 0            stage 1                    stage 2
//	zone hard    both unused        node unused, zone only
//	                                with evicting replicas
//	zone soft,   both unused        node unused                node only with
//	node hard                                                  evicting replicas
//	both soft    both unused        node unused                any node
func (u usage) stage(c candidate, s Settings) int {
	node := u.nodes[c.node.Name].use()
	zone := u.zones[c.node.Zone].use()
	switch {
	case node == unused && zone == unused:
		return 0
	case !s.ZoneSoftAntiAffinity:
		if node == unused && zone == onlyEvicting {
			return 1
		}
		return forbidden
	case node == unused:
		return 1
	case s.NodeSoftAntiAffinity || node == onlyEvicting:
		return 2
	}
	return forbidden
}

// antiAffinity returns the reason why the volume's other replicas forbid a place, or two empty strings.
func (u usage) antiAffinity(c candidate, s Settings) (reason, message string) {
	if u.stage(c, s) == forbidden {
		if !s.ZoneSoftAntiAffinity && u.nodes[c.node.Name].use() == unused {
			return ReasonAntiAffinity, "another replica of the volume is in the node's zone " + zoneName(c.node.Zone)
		}
		return ReasonAntiAffinity, "another replica of the volume is on the node"
	}
	if !s.DiskSoftAntiAffinity && u.disks[c.disk.UUID] > 0 {
		return ReasonAntiAffinity, "another replica of the volume is on the disk"
	}
	return "", ""
}

func zoneName(zone string) string {
	if zone == "" {
		return "(all nodes without a zone label form one zone)"
	}
	return zone
}
