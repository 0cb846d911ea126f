package api

import (
	"context"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// unsupportedTypes are types of Longhorn that this system lacks. Its clients still list them all.
var unsupportedTypes = []string{
	"backingImage", "backup", "backupBackingImage", "backupTarget", "backupVolume", "orphan", "recurringJob", "supportBundle", "systemBackup", "systemRestore",
}

// unsupportedKinds returns kinds with empty collections, in which nothing can be created.
func unsupportedKinds() []kind {
	kinds := make([]kind, 0, len(unsupportedTypes))
	for _, id := range unsupportedTypes {
		kinds = append(kinds, kind{
			id: id, plural: plural(id), wire: v1.Absent{},
			list: func(context.Context) ([]v1.Object, error) { return []v1.Object{}, nil },
			get:  func(_ context.Context, name string) (v1.Object, error) { return nil, notFound(id, name) },
		})
	}
	return kinds
}

// unsupportedInputs are the schemas, with their fields, of inputs that only actions of Longhorn take which this system
// does not have. Clients search for these schemas by name when they start.
var unsupportedInputs = map[string]string{
	"UpdateBackupTargetInput":                "backupTargetName:string",
	"UpdateFreezeFilesystemForSnapshotInput": "freezeFilesystemForSnapshot:string",
	"UpdateOfflineRebuildingInput":           "offlineRebuilding:string",
	"UpdateSnapshotDataIntegrityInput":       "snapshotDataIntegrity:string",
	"UpdateUnmapMarkSnapChainRemovedInput":   "unmapMarkSnapChainRemoved:string",
	"activateInput":                          "frontend:string",
	"backupInput":                            "name:string",
	"engineUpgradeInput":                     "image:string",
	"volumeRecurringJobInput":                "name:string isGroup:bool",
}

func unsupportedInputSchemas() []v1.Schema {
	var schemas []v1.Schema
	for id, text := range unsupportedInputs {
		fields := map[string]v1.Field{}
		for _, field := range strings.Fields(text) {
			name, kind, _ := strings.Cut(field, ":")
			fields[name] = v1.Field{Type: kind, Create: true}
		}
		schemas = append(schemas, v1.Schema{Resource: v1.Resource{ID: id}, PluralName: plural(id), ResourceFields: fields})
	}
	return schemas
}
