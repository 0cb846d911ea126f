package engine

import (
	"encoding/json"
	"fmt"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// wayOut says what a user may do for an engine that does not start because its object is older than the epoch that a
// replica shows. Only a person can know that a backup of the cluster was restored, and whether the replica with the
// newest epoch is the newest one that exists. "" for any other failure.
func wayOut(e *longhorn.Engine, o Observed) string {
	if o.Shown == nil {
		return ""
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"epoch": o.Shown}})
	if err != nil {
		return "" // impossible: an Epoch has only numbers and strings
	}
	return fmt.Sprintf(". The engine does not start because it is not known which epoch is right. If the cluster was restored from an older backup and every"+
		" remaining replica is available, accept the epoch that they show: kubectl -n %s patch engines.longhorn.io %s --subresource=status --type=merge -p '%s'",
		e.Namespace, e.Name, patch)
}
