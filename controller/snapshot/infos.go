package snapshot

import (
	"slices"
	"strconv"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// infos returns the snapshots of a volume under the names that Longhorn's clients know, and volume-head. A deleted
// snapshot is shown until no replica has its space, unless a later one has its name. The result is nil for a volume
// that never had a snapshot.
//
// Sizes come from one member, and change only with its status: at most every 30 s, by a significant amount.
func infos(in Input, l *longhorn.Line) map[string]longhorn.SnapshotInfo {
	if l == nil {
		return nil
	}
	sizes, known := sizesOf(in)
	before := in.Engine.Status.Snapshots
	list, parent := map[string]longhorn.SnapshotInfo{}, ""
	add := func(info longhorn.SnapshotInfo, number int64) {
		info.Size = "0"
		if known {
			info.Size = strconv.FormatInt(sizes[number], 10)
		} else if old, ok := before[info.Name]; ok {
			info.Size = old.Size
		}
		info.Parent = parent
		if info.Children == nil {
			info.Children = map[string]bool{}
		}
		if p, ok := list[parent]; ok {
			p.Children[info.Name] = true
		}
		list[info.Name], parent = info, info.Name
	}
	for i, p := range l.Points {
		if p.State == longhorn.PointStateIntended || p.Name == "" || p.State == longhorn.PointStateDeleted && isTaken(l, i) {
			continue
		}
		info := longhorn.SnapshotInfo{
			Name: p.Name, Removed: p.State == longhorn.PointStateDeleted, UserCreated: true, Created: p.CreatedAt, Labels: before[p.Name].Labels,
		}
		if s := in.snapshot(p.Name); s != nil && !info.Removed {
			info.Labels = s.Status.Labels
			if info.Labels == nil {
				info.Labels = s.Spec.Labels
			}
		}
		if info.Labels == nil {
			info.Labels = map[string]longhorn.SnapshotLabel{}
		}
		add(info, p.Number)
	}
	add(longhorn.SnapshotInfo{Name: types.VolumeHead, Labels: map[string]longhorn.SnapshotLabel{}}, headNumber)
	return list
}

// isTaken reports whether another point has the name of the point with an index: a ready one, or a later one.
func isTaken(l *longhorn.Line, index int) bool {
	name := l.Points[index].Name
	for i, p := range l.Points {
		if i != index && p.Name == name && (p.State == longhorn.PointStateReady || i > index) {
			return true
		}
	}
	return false
}

// headNumber stands for the head in sizesOf: no point has it.
const headNumber = 0

// sizesOf returns the space of each point and of the head on one member: the first that reports them.
func sizesOf(in Input) (sizes map[int64]int64, known bool) {
	members := slices.Clone(in.Replicas)
	slices.SortFunc(members, func(a, b *longhorn.Replica) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range members {
		reported := types.CurrentLayers(r)
		if reported == nil || !in.isMember(r) {
			continue
		}
		sizes = map[int64]int64{headNumber: reported.HeadBytes}
		for _, p := range reported.Points {
			sizes[p.Number] = p.AllocatedBytes
		}
		return sizes, true
	}
	return nil, false
}

func sizeOf(info longhorn.SnapshotInfo) int64 {
	n, err := strconv.ParseInt(info.Size, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
