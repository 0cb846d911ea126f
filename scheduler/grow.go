package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// GrowthShortage returns the reason why the replicas of a volume cannot take more bytes on their disks, keyed by disk
// UUID. It names the first disk, by UUID, that lacks room. It returns "" if all disks have room. It ignores disks that
// the snapshot does not have.
//
// A disk must be able to hold the bytes, which the placement of a replica does not require. It must also be possible to
// promise the bytes:
//
//	physical: available + reserved - delta  must leave  maximum * minimal%
//	virtual:  as for a replica of delta bytes that writes nothing at once
func GrowthShortage(s Snapshot, delta map[string]int64) string {
	for _, uuid := range slices.Sorted(maps.Keys(delta)) {
		for i := range s.Nodes {
			n := &s.Nodes[i]
			for _, d := range n.Disks {
				if d.UUID != uuid || uuid == "" {
					continue
				}
				if lack := growthShortage(d, s.Settings, delta[uuid]); lack != "" {
					return fmt.Sprintf("%s more do not fit on disk %s (%s) of node %s: %s", types.SizeText(delta[uuid]), uuid, d.Path, n.Name, lack)
				}
			}
		}
	}
	return ""
}

func growthShortage(d Disk, s Settings, delta int64) string {
	if lack := shortage(d, s, delta, 0); lack != "" {
		return lack
	}
	minimum := percentOf(d.StorageMaximum, s.MinimalAvailablePercent)
	if d.StorageAvailable+d.StorageReserved-delta < minimum {
		return fmt.Sprintf("storageAvailable %s + storageReserved %s - required %s must be at least %s (%d%% of storageMaximum %s, setting %s)",
			types.SizeText(d.StorageAvailable), types.SizeText(d.StorageReserved), types.SizeText(delta), types.SizeText(minimum),
			s.MinimalAvailablePercent, types.SizeText(d.StorageMaximum), settings.MinimalAvailablePercentage)
	}
	return ""
}
