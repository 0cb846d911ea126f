package api

import (
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// absentInputs are the schemas, with their fields, of inputs that only actions of Longhorn take which this system does
// not have. Clients search for these schemas by name when they start.
var absentInputs = map[string]string{
	"UpdateBackupTargetInput":                "backupTargetName:string",
	"UpdateFreezeFilesystemForSnapshotInput": "freezeFilesystemForSnapshot:string",
	"UpdateOfflineRebuildingInput":           "offlineRebuilding:string",
	"UpdateSnapshotDataIntegrityInput":       "snapshotDataIntegrity:string",
	"UpdateUnmapMarkSnapChainRemovedInput":   "unmapMarkSnapChainRemoved:string",
	"activateInput":                          "frontend:string",
	"backupInput":                            "name:string",
	"engineUpgradeInput":                     "image:string",
	"snapshotCRInput":                        "name:string labels:map[string]",
	"snapshotInput":                          "name:string labels:map[string] backupMode:string",
	"volumeRecurringJobInput":                "name:string isGroup:bool",
}

func absentInputSchemas() []v1.Schema {
	var schemas []v1.Schema
	for id, text := range absentInputs {
		fields := map[string]v1.Field{}
		for _, field := range strings.Fields(text) {
			name, kind, _ := strings.Cut(field, ":")
			fields[name] = v1.Field{Type: kind, Create: true}
		}
		schemas = append(schemas, v1.Schema{Resource: v1.Resource{ID: id}, PluralName: plural(id), ResourceFields: fields})
	}
	return schemas
}
