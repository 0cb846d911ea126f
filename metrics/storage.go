package metrics

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// storage are the four families of a disk, or of all disks of a node.
type storage struct{ capacity, usage, reservation, scheduled *Family }

// space has the values of a storage, in bytes.
type space struct{ capacity, usage, reservation, scheduled int64 }

func (a space) plus(b space) space {
	return space{a.capacity + b.capacity, a.usage + b.usage, a.reservation + b.reservation, a.scheduled + b.scheduled}
}

func (s series) space(f storage, sp space, labels ...string) {
	s.bytes(f.capacity, sp.capacity, labels...)
	s.bytes(f.usage, sp.usage, labels...)
	s.bytes(f.scheduled, sp.scheduled, labels...)
}

// node sends the conditions and the space of a node and of its disks. The status of a disk that is not ready has no
// sizes (controller/node). They are omitted, not exported as 0. So the sums of a node contain its ready disks only.
// The exception is the reservation, which the user sets: it contains all disks.
func (s series) node(n *longhorn.Node) {
	s.conditions(nodeStatus, n.Status.Conditions, n.Name)
	s.allowScheduling(nodeStatus, n.Spec.AllowScheduling, n.Name)
	var sum space
	for name, spec := range n.Spec.Disks {
		s.allowScheduling(diskStatus, spec.AllowScheduling, n.Name, name)
		s.bytes(diskStorage.reservation, spec.StorageReserved, n.Name, name)
		sum.reservation += spec.StorageReserved
	}
	for name, status := range n.Status.DiskStatus {
		s.conditions(diskStatus, status.Conditions, n.Name, name)
		if !types.IsConditionTrue(status.Conditions, types.ConditionReady) || status.StorageMaximum == 0 {
			continue
		}
		disk := space{
			capacity: status.StorageMaximum, usage: status.StorageMaximum - status.StorageAvailable, scheduled: status.StorageScheduled,
		}
		s.space(diskStorage, disk, n.Name, name)
		sum = sum.plus(disk)
	}
	s.space(nodeStorage, sum, n.Name)
	s.bytes(nodeStorage.reservation, sum.reservation, n.Name)
}
