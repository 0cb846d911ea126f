package volume

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// readSettings fills in the values of the settings.
func (in *Input) readSettings(s types.SettingValues) {
	in.DefaultReplicaCount = int(s.Int(types.SettingDefaultReplicaCount))
	in.DefaultLocality = longhorn.DataLocality(s.Text(types.SettingDefaultDataLocality))
	in.AutoBalance = longhorn.AutoBalance(s.Text(types.SettingReplicaAutoBalance))
	in.DiskPressure = s.Int(types.SettingReplicaAutoBalanceDiskPressurePercentage)
	in.ReplenishmentWait = time.Duration(s.Int(types.SettingReplenishmentWaitIntervalS)) * time.Second
	in.RebuildLimit = rebuildLimit(s)
	in.AllowDegraded = s.Bool(types.SettingAllowVolumeCreationWithDegradedAvailability)
}

// rebuildLimit is the number of rebuilds that may run at once towards the disks of one node; 0 turns rebuilds off.
func rebuildLimit(s types.SettingValues) int {
	return int(s.Int(types.SettingConcurrentReplicaRebuildPerNodeLimit))
}
