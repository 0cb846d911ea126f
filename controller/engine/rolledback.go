package engine

import (
	"encoding/json"
	"fmt"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// wayOut is what a person may do for an engine that does not start because its object is
// older than what a replica shows. Only a person can know that a backup of the cluster was
// restored, and whether the replica that shows most is the newest there is. "" for any
// other failure.
func wayOut(e *longhorn.Engine, o Observed) string {
	if o.Shown == nil {
		return ""
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"epoch": o.Shown}})
	if err != nil {
		return "" // cannot be: an Epoch has numbers and strings
	}
	return fmt.Sprintf(". Nothing is started while it is not known which is right. If the cluster was restored from an older backup and every replica"+
		" that is left is there, take over what they show: kubectl -n %s patch engines.longhorn.io %s --subresource=status --type=merge -p '%s'",
		e.Namespace, e.Name, patch)
}
