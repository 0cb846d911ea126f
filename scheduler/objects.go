package scheduler

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Objects are the API objects of the cluster from which a snapshot is created.
type Objects struct {
	Nodes            []*longhorn.Node
	InstanceManagers []*longhorn.InstanceManager
	// Replicas of all volumes. From them the snapshot counts the bytes that are promised on a disk. It does not read
	// these from the disk's status, which lags behind the replicas that were just placed.
	Replicas []*longhorn.Replica
}

// Snapshot returns the cluster in the form that the scheduler needs for a replica of the given volume. An object that
// is being deleted still takes its room.
func (o Objects) Snapshot(volume string, settings Settings) Snapshot {
	running := map[string]bool{}
	for _, im := range o.InstanceManagers {
		if im.Status.CurrentState == longhorn.InstanceManagerStateRunning {
			running[im.Spec.NodeID] = true
		}
	}
	promised := map[string]int64{}
	dependents := o.dependentVolumes(volume)
	s := Snapshot{Settings: settings}
	for _, r := range o.Replicas {
		if r.Spec.DiskID == "" {
			continue
		}
		promised[r.Spec.DiskID] += int64(r.Spec.VolumeSize)
		if r.Spec.VolumeName == volume && r.DeletionTimestamp == nil {
			s.Replicas = append(s.Replicas, Replica{Node: r.Spec.NodeID, DiskUUID: r.Spec.DiskID})
		}
	}
	for _, n := range o.Nodes {
		s.Nodes = append(s.Nodes, nodeOf(n, running[n.Name], promised, dependents))
	}
	return s
}

// SettingsOf reads the scheduler's settings, and the volume's own values, which override them.
func SettingsOf(values settings.Values, v *longhorn.VolumeSpec) Settings {
	soft := func(own longhorn.AntiAffinity, setting settings.Name) bool {
		if own == longhorn.AntiAffinityEnabled || own == longhorn.AntiAffinityDisabled {
			return own == longhorn.AntiAffinityEnabled
		}
		return values.Bool(setting)
	}
	return Settings{
		MinimalAvailablePercent: values.Int(settings.MinimalAvailablePercentage),
		OverProvisioningPercent: values.Int(settings.OverProvisioningPercentage),
		NodeSoftAntiAffinity:    soft(v.ReplicaSoftAntiAffinity, settings.ReplicaSoftAntiAffinity),
		ZoneSoftAntiAffinity:    soft(v.ReplicaZoneSoftAntiAffinity, settings.ReplicaZoneSoftAntiAffinity),
		DiskSoftAntiAffinity:    soft(v.ReplicaDiskSoftAntiAffinity, settings.ReplicaDiskSoftAntiAffinity),
		AllowEmptyNodeSelector:  values.Bool(settings.AllowEmptyNodeSelectorVolume),
		AllowEmptyDiskSelector:  values.Bool(settings.AllowEmptyDiskSelectorVolume),
	}
}

func nodeOf(n *longhorn.Node, instanceManager bool, promised map[string]int64, dependents map[string]bool) Node {
	node := Node{
		Name:                   n.Name,
		Zone:                   n.Status.Zone,
		Tags:                   n.Spec.Tags,
		Ready:                  types.IsConditionTrue(n.Status.Conditions, types.ConditionReady),
		Schedulable:            types.IsConditionTrue(n.Status.Conditions, types.ConditionSchedulable),
		AllowScheduling:        n.Spec.AllowScheduling,
		Deleting:               n.DeletionTimestamp != nil,
		InstanceManagerRunning: instanceManager,
	}
	for name, spec := range n.Spec.Disks {
		status := n.Status.DiskStatus[name]
		node.Disks = append(node.Disks, Disk{
			Name:              name,
			UUID:              status.DiskUUID,
			Path:              spec.Path,
			Tags:              spec.Tags,
			AllowScheduling:   spec.AllowScheduling,
			EvictionRequested: spec.EvictionRequested || n.Spec.EvictionRequested,
			Ready:             types.IsConditionTrue(status.Conditions, types.ConditionReady),
			Schedulable:       types.IsConditionTrue(status.Conditions, types.ConditionSchedulable),
			OnVolume:          status.OnVolume,
			Circular:          dependents[status.OnVolume],
			StorageMaximum:    status.StorageMaximum,
			StorageAvailable:  status.StorageAvailable,
			StorageReserved:   spec.StorageReserved,
			StorageScheduled:  promised[status.DiskUUID],
		})
	}
	return node
}
