package types

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestCheckClassParameter checks how the driver treats each value of a parameter that it does not act on.
func TestCheckClassParameter(t *testing.T) {
	const (
		neutral   = "neutral"
		noEffect  = "no effect" // accepted; the author of the class is informed
		oneOf     = "must be one of "
		notOffers = "which is not offered"
	)
	for _, c := range []struct{ name, value, want string }{
		{"numberOfReplicas", "3", neutral}, // the driver acts on it, and has its own rule
		{"dataLocality", "near", `parameter dataLocality: value "near" must be one of disabled, best-effort, strict-local`},
		{"share", "yes", `parameter share: value "yes" is neither true nor false`},
		{"fstype", "xfs", neutral},
		{"FSTYPE", "btrfs", `value "btrfs" must be one of ext4, xfs`},

		{"encrypted", "", neutral},
		{"encrypted", " false ", neutral},
		{"encrypted", "F", neutral},
		{"encrypted", "true", `parameter encrypted: value "true" asks for encryption, which is not offered; leave the parameter out or set it to false`},
		{"encrypted", "1", "asks for encryption"},
		{"encrypted", "no", "is neither true nor false"},
		{"fromBackup", "", neutral},
		{"fromBackup", "s3://b@r/?volume=v", "asks for a restore from a backup, which is not offered; leave the parameter out"},
		{"dataSource", "vol://v", notOffers},
		{"backingImage", "parrot", notOffers},
		{"backingImageDataSourceType", "download", notOffers},
		{"backingImageDataSourceParameters", "{}", notOffers},
		{"backingImageChecksum", "abc", notOffers},
		{"baseImage", "x", notOffers},
		{"recurringJobSelector", "[]", neutral},
		{"recurringJobSelector", `[{"name":"daily","isGroup":true}]`, "asks for recurring snapshots or backups"},
		{"recurringJobs", `[{"name":"daily"}]`, notOffers},
		{"migratable", "false", neutral},
		{"migratable", "true", notOffers},
		{"standby", "true", notOffers},
		{"strictTopology", "False", neutral},
		{"strictTopology", "true", notOffers},
		{"volumeTopology", "zonal", notOffers},
		{"dataEngine", "v1", neutral},
		{"dataEngine", "v2", notOffers},
		{"dataLayout", "x", notOffers},
		{"frontend", "blockdev", neutral},
		{"frontend", "iscsi", notOffers},
		{"offlineRebuilding", "ignored", neutral},
		{"offlineRebuilding", "disabled", neutral},
		{"offlineRebuilding", "enabled", notOffers},
		{"offlineRebuilding", "true", oneOf + "ignored, enabled, disabled"},

		{"cloneMode", "full-copy", neutral},
		{"cloneMode", "linked-clone", neutral},
		{"unmapMarkSnapChainRemoved", "enabled", neutral},
		{"restoreVolumeRecurringJob", "enabled", neutral},
		{"backupCompressionMethod", "none", neutral},
		{"backupCompressionMethod", "lz4", neutral},
		{"backupCompressionMethod", "gzip", neutral},
		{"backupCompressionMethod", "zip", oneOf + "none, lz4, gzip"},
		{"backupBlockSize", "2097152", neutral},
		{"backupBlockSize", "4194304", noEffect},
		{"backupTargetName", "default", neutral},
		{"backupTargetName", "offsite", noEffect},
		{"freezeFilesystemForSnapshot", "disabled", neutral},
		{"freezeFilesystemForSnapshot", "enabled", noEffect},
		{"snapshotDataIntegrity", "ignored", neutral},
		{"snapshotDataIntegrity", "fast-check", noEffect},
		{"snapshotDataIntegrity", "slow-check", oneOf},
		{"snapshotMaxCount", "250", neutral},
		{"snapshotMaxCount", "7", noEffect},
		{"snapshotMaxSize", "0", neutral},
		{"snapshotMaxSize", "1073741824", noEffect},
		{"disableRevisionCounter", "true", neutral},
		{"disableRevisionCounter", "false", noEffect},
		{"accessMode", "rwo", neutral},
		{"accessMode", "rwx", noEffect},
		{"storageCapacityMode", "node", neutral},
		{"storageCapacityMode", "zone", noEffect},
		{"rebuildConcurrentSyncLimit", "0", neutral},
		{"rebuildConcurrentSyncLimit", "3", noEffect},
		{"replicaRebuildingBandwidthLimit", "100", noEffect},
		{"ublkQueueDepth", "128", noEffect},
		{"ublkNumberOfQueue", "2", noEffect},

		{"colour", "blue", noEffect},
		{"colour", "", noEffect},
		{"example.com/owner", "team-a", noEffect},
		{"numberOfReplica", "2", "parameter numberOfReplica: there is no parameter of this name; did you mean numberOfReplicas?"},
		{"numberofreplicas", "2", "did you mean numberOfReplicas?"},
		{"encryptd", "true", "did you mean encrypted?"},
		{"data-locality", "strict-local", "did you mean dataLocality?"},
		{"numberOfReplica", "", noEffect}, // it requests nothing
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			hasEffect, err := CheckClassParameter(c.name, c.value)
			switch c.want {
			case neutral, noEffect:
				require.NoError(t, err)
				assert.Equal(t, c.want == neutral, hasEffect)
			default:
				assert.ErrorContains(t, err, c.want)
			}
		})
	}
}

// TestClassParameters checks that every row of the table is sound.
func TestClassParameters(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range ClassParameters {
		assert.False(t, seen[p.Name], "%s is there twice", p.Name)
		seen[p.Name] = true
		if p.Offered {
			assert.Empty(t, p.Neutral, p.Name)
			assert.False(t, p.Moot, p.Name)
		}
		for _, value := range p.Neutral {
			if p.Values != nil {
				assert.Contains(t, p.Values, value, p.Name)
			}
		}
		canBeRefused := !p.Offered && !p.Moot && (p.Values == nil || len(p.Neutral) < len(p.Values))
		assert.Equal(t, canBeRefused, p.AsksFor != "", "%s: a refusal, and nothing else, says what is not offered", p.Name)
	}
	assert.Equal(t, len(ClassParameters), len(ClassParameterNames()))
}

// TestNeutralValuesOfAClass has a table of classes. A value that requests something is refused, or the author of the
// class is informed that it has no effect.
func TestNeutralValuesOfAClass(t *testing.T) {
	text, err := os.ReadFile("../api/testdata/neutral.yaml")
	require.NoError(t, err)
	var fields []struct {
		Field   string
		Nothing []any
		Asks    any
	}
	require.NoError(t, yaml.Unmarshal(text, &fields))
	require.NotEmpty(t, fields)
	for _, f := range fields {
		for _, value := range f.Nothing {
			hasEffect, err := CheckClassParameter(f.Field, fmt.Sprint(value))
			assert.NoError(t, err)
			assert.True(t, hasEffect, "%s=%v asks for nothing, so nothing is to be said of it", f.Field, value)
		}
		hasEffect, err := CheckClassParameter(f.Field, fmt.Sprint(f.Asks))
		assert.False(t, hasEffect && err == nil, "%s=%v is dropped in silence", f.Field, f.Asks)
	}
}

func TestParametersWithoutEffect(t *testing.T) {
	assert.Equal(t, []string{`colour ("blue")`, `snapshotMaxCount ("7")`}, ParametersWithoutEffect(map[string]string{
		"numberOfReplicas": "2", "fstype": "xfs", "backupCompressionMethod": "gzip", "colour": "blue", "snapshotMaxCount": "7",
		"csi.storage.k8s.io/pvc/name": "data", "encrypted": "true", // another function refuses it
	}))
}
