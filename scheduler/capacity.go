package scheduler

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The reasons of a Schedulable condition that is False.
const (
	ConditionReasonDiskPressure = "DiskPressure"
	ConditionReasonDiskNotReady = "DiskNotReady"
)

// DiskSchedulable decides the Schedulable condition of a disk of that node: whether the disk has room for any replica
// at all. If it has, the reason is empty. If it has not, the message shows the numbers. It ignores the user's
// permissions, eviction and tags.
func DiskSchedulable(node string, d Disk, s Settings) (schedulable bool, reason, message string) {
	if !d.Ready {
		return false, ConditionReasonDiskNotReady,
			fmt.Sprintf("Disk %s(%s) on node %s is not ready", d.Name, d.Path, node)
	}
	if shortage := shortage(d, s, 0, 0); shortage != "" {
		return false, ConditionReasonDiskPressure,
			fmt.Sprintf("Disk %s(%s) on the node %s is not schedulable for more replica; %s", d.Name, d.Path, node, shortage)
	}
	return true, "", fmt.Sprintf("Disk %s(%s) on node %s is schedulable", d.Name, d.Path, node)
}

// shortage returns "" if the disk can take a replica of the nominal size that writes required bytes at once. Otherwise
// it describes the shortage. The two rules:
//
//	physical: available - required  must stay above   maximum * minimal%
//	virtual:  scheduled + size      must not exceed   (maximum - reserved) * overProvisioning%
//
// Equality blocks only on the physical side.
func shortage(d Disk, s Settings, size, required int64) string {
	switch {
	case d.StorageMaximum <= 0:
		return fmt.Sprintf("its size is unknown: storageMaximum is %s", types.SizeText(d.StorageMaximum))
	case d.StorageAvailable <= 0:
		return fmt.Sprintf("it is full: storageAvailable is %s of storageMaximum %s", types.SizeText(d.StorageAvailable), types.SizeText(d.StorageMaximum))
	}
	minimum := percentOf(d.StorageMaximum, s.MinimalAvailablePercent)
	if d.StorageAvailable-required <= minimum {
		return fmt.Sprintf("storageAvailable %s - required %s must be more than %s (%d%% of storageMaximum %s, setting %s)",
			types.SizeText(d.StorageAvailable), types.SizeText(required), types.SizeText(minimum), s.MinimalAvailablePercent, types.SizeText(d.StorageMaximum),
			settings.MinimalAvailablePercentage)
	}
	maximum := schedulableMaximum(d, s)
	if d.StorageScheduled > maximum-size { // not scheduled+size, which could overflow
		return fmt.Sprintf("storageScheduled %s + size %s must not exceed %s (%d%% of storageMaximum %s - storageReserved %s, setting %s)",
			types.SizeText(d.StorageScheduled), types.SizeText(size), types.SizeText(maximum), s.OverProvisioningPercent, types.SizeText(d.StorageMaximum), types.SizeText(d.StorageReserved),
			settings.OverProvisioningPercentage)
	}
	return ""
}

func schedulableMaximum(d Disk, s Settings) int64 {
	return percentOf(d.StorageMaximum-d.StorageReserved, s.OverProvisioningPercent)
}

// usable returns the room that placement prefers: free space that is neither reserved nor promised to replicas on the
// disk.
func usable(d Disk) int64 {
	return max(0, max(0, d.StorageAvailable-d.StorageReserved)-d.StorageScheduled)
}

// UsesAtLeast reports whether at least that percentage of a disk is in use, by replicas or by other data. It returns
// false while the disk's size is unknown.
func UsesAtLeast(percent, maximum, available int64) bool {
	return maximum > 0 && maximum-available >= percentOf(maximum, percent)
}

// percentOf returns v*percent/100, rounded toward zero, limited to the range of int64. A percentage below zero counts
// as zero.
func percentOf(v, percent int64) int64 {
	negative := v < 0
	if negative {
		v = -v
	}
	hi, lo := bits.Mul64(uint64(v), uint64(max(0, percent)))
	result := int64(math.MaxInt64)
	if hi < 100 { // otherwise the quotient has more than 64 bits
		if q, _ := bits.Div64(hi, lo, 100); q < math.MaxInt64 {
			result = int64(q)
		}
	}
	if negative {
		return -result
	}
	return result
}
