package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// readSettings fills in the values of the settings.
func (in *Input) readSettings(s settings.Values) {
	in.DefaultReplicaCount = int(s.Int(settings.DefaultReplicaCount))
	in.DefaultLocality = longhorn.DataLocality(s.Text(settings.DefaultDataLocality))
	in.AutoBalance = longhorn.AutoBalance(s.Text(settings.ReplicaAutoBalance))
	in.DiskPressure = s.Int(settings.ReplicaAutoBalanceDiskPressurePercentage)
	in.ReplenishmentWait = time.Duration(s.Int(settings.ReplenishmentWaitIntervalS)) * time.Second
	in.RebuildLimit = rebuildLimit(s)
	in.AllowDegraded = s.Bool(settings.AllowVolumeCreationWithDegradedAvailability)
}

// rebuildLimit is the number of rebuilds that may run at once towards the disks of one node; 0 turns rebuilds off.
func rebuildLimit(s settings.Values) int {
	return int(s.Int(settings.ConcurrentReplicaRebuildPerNodeLimit))
}
