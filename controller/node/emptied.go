package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// namedAtMost limits how many volumes a message names.
const namedAtMost = 5

// withEmptied returns the conditions of an accepted disk, with the progress of its eviction. If no eviction is
// requested, it returns them without that condition.
func withEmptied(in Input, name string, status longhorn.DiskStatus, now time.Time) []longhorn.Condition {
	if !in.Node.Spec.EvictionRequested && !in.Node.Spec.Disks[name].EvictionRequested {
		return slices.DeleteFunc(slices.Clone(status.Conditions), func(c longhorn.Condition) bool { return c.Type == types.ConditionEmptied })
	}
	c := longhorn.Condition{
		Type: types.ConditionEmptied, Status: longhorn.ConditionTrue,
		Message: fmt.Sprintf("disk %s on node %s is empty: no volume has a replica on it", name, in.Node.Name),
	}
	if left := volumesOn(in.Replicas, status.DiskUUID); len(left) > 0 {
		c.Status, c.Reason = longhorn.ConditionFalse, types.ReasonReplicasLeft
		c.Message = fmt.Sprintf("replicas that remain on disk %s of node %s: %d, with %d bytes in all, of volumes %s. The conditions %s, %s and %s of each volume say what its replica waits for",
			name, in.Node.Name, len(left), status.StorageScheduled, enumerate(left), types.ConditionScheduled, types.ConditionEvictionWaits, types.ConditionDeviceInUse)
	}
	conditions, _ := types.SetCondition(status.Conditions, c, now)
	return conditions
}

// volumesOn has the volume of each replica on a disk, sorted.
func volumesOn(replicas []*longhorn.Replica, diskUUID string) []string {
	var names []string
	for _, r := range replicas {
		if r.Spec.DiskID == diskUUID {
			names = append(names, r.Spec.VolumeName)
		}
	}
	slices.Sort(names)
	return names
}

func enumerate(names []string) string {
	if more := len(names) - namedAtMost; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedAtMost], ", "), more)
	}
	return strings.Join(names, ", ")
}
