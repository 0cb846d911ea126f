package policy

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
)

// neutralFields are those of a Volume for what is not offered, each with values that ask for nothing, one that asks for something, and the rule.
var neutralFields = map[string]struct {
	nothing []string
	asks    string
	rule    string
}{
	"backingImage":                {[]string{"''"}, "alpine", "backingImage must be empty or left out: backing images are not offered"},
	"backupCompressionMethod":     {[]string{"''", "lz4", "none"}, "gzip", "backupCompressionMethod must be lz4, none or left out: backups are not offered"},
	"backupTargetName":            {[]string{"''", "default"}, "other", "backupTargetName must be default or left out: backups are not offered"},
	"backendStoreDriver":          {[]string{"''", "v1"}, "v2", "backendStoreDriver must be v1 or left out"},
	"cloneMode":                   {[]string{"''"}, "linked-clone", "cloneMode must be empty or left out: clones are not offered"},
	"dataSource":                  {[]string{"''"}, "'vol://v'", "dataSource must be empty or left out: clones are not offered"},
	"encrypted":                   {[]string{"false"}, "true", "encrypted must be false or left out: encryption of a volume's data on disks is not offered"},
	"freezeFilesystemForSnapshot": {[]string{"''", "ignored", "disabled"}, "enabled", "freezeFilesystemForSnapshot must be ignored, disabled or left out: snapshots are not offered"},
	"fromBackup":                  {[]string{"''"}, "'s3://b'", "fromBackup must be empty or left out: backups are not offered"},
	"image":                       {[]string{"''"}, "longhornio/longhorn-engine", "image must be empty or left out: every volume is served by the image of the daemons"},
	"migratable":                  {[]string{"false"}, "true", "migratable must be false or left out: live migration is not offered"},
	"migrationNodeID":             {[]string{"''"}, "node-1", "migrationNodeID must be empty or left out: live migration is not offered"},
	"offlineRebuilding":           {[]string{"''", "ignored", "disabled"}, "enabled", "offlineRebuilding must be ignored, disabled or left out: replicas are rebuilt when the volume is attached"},
	"offlineReplicaRebuilding":    {[]string{"''", "ignored", "disabled"}, "enabled", "offlineReplicaRebuilding must be ignored, disabled or left out: replicas are rebuilt when the volume is attached"},
	"rebuildConcurrentSyncLimit":  {[]string{"0"}, "2", "rebuildConcurrentSyncLimit must be 0 or left out: it is not offered"},
	"restoreVolumeRecurringJob":   {[]string{"''", "ignored", "disabled"}, "enabled", "restoreVolumeRecurringJob must be ignored, disabled or left out: recurring jobs are not offered"},
	"snapshotDataIntegrity":       {[]string{"''", "ignored", "disabled"}, "fast-check", "snapshotDataIntegrity must be ignored, disabled or left out: snapshots are not offered"},
	"snapshotMaxCount":            {[]string{"0", "250"}, "10", "snapshotMaxCount must be 0, 250 or left out: snapshots are not offered"},
	"snapshotMaxSize":             {[]string{"'0'"}, "'4194304'", `snapshotMaxSize must be "0" or left out: snapshots are not offered`},
	"Standby":                     {[]string{"false"}, "true", "Standby must be false or left out: standby volumes are not offered"},
	"unmapMarkSnapChainRemoved":   {[]string{"''", "ignored", "disabled"}, "enabled", "unmapMarkSnapChainRemoved must be ignored, disabled or left out: snapshots are not offered"},
}

// TestTheRulesOfTheDefinitions has these, too.
func init() {
	for _, name := range slices.Sorted(maps.Keys(neutralFields)) {
		f := neutralFields[name]
		rule := "Volume spec." + name + ": " + f.rule
		for _, value := range f.nothing {
			crdCases = append(crdCases, crdCase{rule: rule, name: value + " → accepted", object: of("v", "size: '2097152', "+name+": "+value, "")})
		}
		crdCases = append(crdCases, crdCase{rule: rule, name: f.asks + " → refused", object: of("v", "size: '2097152', "+name+": "+f.asks, ""), refused: true})
	}
}

// TestObjectsKeptInGitAreTakenAsTheyAre: what Longhorn's users keep has no field that is dropped or refused.
func TestObjectsKeptInGitAreTakenAsTheyAre(t *testing.T) {
	for file, kind := range map[string]string{"testdata/volume-in-git.yaml": "Volume", "testdata/node-in-git.yaml": "Node"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		d := definitions(t)[kind]
		given := object(t, string(text))
		kept := given.DeepCopy()
		pruning.Prune(kept.Object, d.defaults, true)
		assert.Equal(t, given.Object, kept.Object, "%s: fields that the definition does not have", file)
		assert.Empty(t, d.refusals(t, "", string(text)), file)
	}
}
