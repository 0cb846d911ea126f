package types

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/util/spelling"
)

// ClassParameter is a parameter of a StorageClass that this driver or Longhorn knows. An empty value requests
// nothing, for every parameter.
type ClassParameter struct {
	Name string
	// Offered: the driver acts on the parameter. Of the other fields about values, only Values and IsBool apply to an
	// offered parameter.
	Offered bool
	// IsBool: the value must be a boolean as Go reads it ("true", "1", "F", ...).
	IsBool bool
	// Values are the only allowed values; nil: other rules decide.
	Values []string
	// Neutral are the values that request nothing. For a boolean, "true" or "false" stands for all its spellings.
	Neutral []string
	// Moot: all other values only adjust a feature that is not offered, such as the compression of a backup. The
	// driver accepts them and reports that they have no effect. For a parameter that is not moot, the driver refuses
	// these values. Without the refusal, a volume would silently not be encrypted, or not be restored from its
	// backup.
	Moot bool
	// AsksFor is the feature that the parameter requests, as the object of a sentence.
	AsksFor string
}

// The values of a volume's fields that override settings.
var (
	ignoredOrSwitch = []string{"ignored", "enabled", "disabled"}
	ignoredOrOff    = []string{"ignored", "disabled"}
)

// ClassParameters are all known parameters: first the offered ones, then Longhorn's other parameters. The schema of
// the Helm chart may be generated from them.
var ClassParameters = slices.Concat([]ClassParameter{
	{Name: "numberOfReplicas", Offered: true},
	{Name: "staleReplicaTimeout", Offered: true},
	{Name: ParameterFSType, Offered: true, Values: fsTypes},
	{Name: ParameterMkfsParams, Offered: true},
	{Name: "dataLocality", Offered: true, Values: []string{"disabled", "best-effort", "strict-local"}},
	{Name: "diskSelector", Offered: true},
	{Name: "nodeSelector", Offered: true},
}, optionParameters(), []ClassParameter{
	{Name: "share", Offered: true, IsBool: true},
	{Name: "exclusive", Offered: true, IsBool: true},
	{Name: "nfsOptions", Offered: true},
	{Name: ParameterNFSSquash, Offered: true, Values: []string{string(NFSSquashNone), string(NFSSquashRoot), string(NFSSquashAll)}},
	{Name: ParameterShareNodeSelector, Offered: true},
	{Name: ParameterShareTolerations, Offered: true},

	// The driver refuses values that would change the data, its protection or its place.
	{Name: "encrypted", IsBool: true, Neutral: []string{"false"}, AsksFor: "encryption"},
	{Name: "fromBackup", AsksFor: "a restore from a backup"},
	{Name: "dataSource", AsksFor: "a clone of another volume or of a snapshot"},
	{Name: "backingImage", AsksFor: "a backing image"},
	{Name: "backingImageDataSourceType", AsksFor: "a backing image"},
	{Name: "backingImageDataSourceParameters", AsksFor: "a backing image"},
	{Name: "backingImageChecksum", AsksFor: "a backing image"},
	{Name: "baseImage", AsksFor: "a base image"},
	{Name: "recurringJobSelector", Neutral: []string{"[]"}, AsksFor: "recurring snapshots or backups"},
	{Name: "recurringJobs", Neutral: []string{"[]"}, AsksFor: "recurring snapshots or backups"},
	{Name: "migratable", IsBool: true, Neutral: []string{"false"}, AsksFor: "live migration"},
	{Name: "standby", IsBool: true, Neutral: []string{"false"}, AsksFor: "a standby volume"},
	{Name: "strictTopology", IsBool: true, Neutral: []string{"false"}, AsksFor: "volumes that are bound to a topology"},
	{Name: "volumeTopology", AsksFor: "volumes that are bound to a topology"},
	{Name: "dataEngine", Neutral: []string{"v1"}, AsksFor: "another data engine"},
	{Name: "dataLayout", AsksFor: "another layout of the data"},
	{Name: "frontend", Neutral: []string{"blockdev"}, AsksFor: "another frontend"},
	{Name: "offlineRebuilding", Values: ignoredOrSwitch, Neutral: ignoredOrOff, AsksFor: "rebuilds while the volume is detached"},

	// The driver accepts values that adjust a feature that is not offered.
	{Name: "cloneMode", Values: []string{"full-copy", "linked-clone"}, Neutral: []string{"full-copy", "linked-clone"}},
	{Name: "unmapMarkSnapChainRemoved", Values: ignoredOrSwitch, Neutral: ignoredOrSwitch},
	{Name: "restoreVolumeRecurringJob", Values: ignoredOrSwitch, Neutral: ignoredOrSwitch},
	{Name: "backupCompressionMethod", Values: []string{"none", "lz4", "gzip"}, Neutral: []string{"none", "lz4", "gzip"}},
	{Name: "backupBlockSize", Neutral: []string{"0", "2097152", "16777216", "2Mi", "16Mi"}, Moot: true},
	{Name: "backupTargetName", Neutral: []string{"default"}, Moot: true},
	{Name: "freezeFilesystemForSnapshot", Values: ignoredOrSwitch, Neutral: ignoredOrOff, Moot: true},
	{Name: "snapshotDataIntegrity", Values: []string{"ignored", "disabled", "enabled", "fast-check"}, Neutral: ignoredOrOff, Moot: true},
	{Name: "snapshotMaxCount", Neutral: []string{"0", "250"}, Moot: true},
	{Name: "snapshotMaxSize", Neutral: []string{"0"}, Moot: true},
	{Name: "disableRevisionCounter", IsBool: true, Neutral: []string{"true"}, Moot: true},
	{Name: "accessMode", Values: []string{"rwo", "rwop", "rwx"}, Neutral: []string{"rwo"}, Moot: true}, // the claim decides
	{Name: "storageCapacityMode", Values: []string{"node", "zone"}, Neutral: []string{"node"}, Moot: true},
	{Name: "rebuildConcurrentSyncLimit", Neutral: []string{"0"}, Moot: true},
	{Name: "replicaRebuildingBandwidthLimit", Neutral: []string{"0"}, Moot: true},
	{Name: "ublkQueueDepth", Neutral: []string{"0"}, Moot: true},
	{Name: "ublkNumberOfQueue", Neutral: []string{"0"}, Moot: true},
})

// optionParameters are the options of VolumeOptionTable.
func optionParameters() []ClassParameter {
	parameters := make([]ClassParameter, len(VolumeOptionTable))
	for i, o := range VolumeOptionTable {
		parameters[i] = ClassParameter{Name: o.Name, Offered: true, Values: o.Values}
	}
	return parameters
}

// ClassParameterNames are the names of ClassParameters, in the same order.
func ClassParameterNames() []string {
	names := make([]string, len(ClassParameters))
	for i, p := range ClassParameters {
		names[i] = p.Name
	}
	return names
}

// CheckClassParameter checks one parameter of a StorageClass against ClassParameters. The error names the parameter
// and the rule. hasEffect is false if the parameter requests something, but the driver accepts it and does not act on
// it. The caller should then inform the author of the class. A name that resembles a known one is an error. Other
// unknown names are accepted without effect, as in Longhorn, because classes have keys that other tools read.
func CheckClassParameter(name, value string) (hasEffect bool, err error) {
	value = strings.TrimSpace(value)
	i := slices.IndexFunc(ClassParameters, func(p ClassParameter) bool {
		return p.Name == name || p.Name == ParameterFSType && strings.EqualFold(name, ParameterFSType) // as Kubernetes reads it
	})
	switch {
	case i < 0 && value == "":
		return false, nil
	case i < 0:
		if near := spelling.Nearest(name, ClassParameterNames()); near != "" {
			return false, fmt.Errorf("parameter %s: there is no parameter of this name; did you mean %s?", name, near)
		}
		return false, nil
	case value == "":
		return true, nil
	}
	hasEffect, err = ClassParameters[i].check(value)
	if err != nil {
		err = fmt.Errorf("parameter %s: value %q %w", name, value, err)
	}
	return hasEffect, err
}

// ReservedParameterPrefix is the prefix of the StorageClass parameters that belong to the side-cars, not to the
// driver.
const ReservedParameterPrefix = "csi.storage.k8s.io/"

// ParametersWithoutEffect lists the parameters of a StorageClass that request something and that the driver accepts
// but ignores. The list is sorted, and each entry contains the value.
func ParametersWithoutEffect(params map[string]string) []string {
	var list []string
	for key, value := range params {
		if strings.HasPrefix(key, ReservedParameterPrefix) {
			continue
		}
		if hasEffect, err := CheckClassParameter(key, value); err == nil && !hasEffect {
			list = append(list, fmt.Sprintf("%s (%q)", key, value))
		}
	}
	slices.Sort(list)
	return list
}

func (p ClassParameter) check(value string) (hasEffect bool, err error) {
	if p.IsBool {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return false, fmt.Errorf("is neither true nor false")
		}
		value = strconv.FormatBool(b)
	}
	switch {
	case p.Values != nil && !slices.Contains(p.Values, value):
		return false, fmt.Errorf("must be one of %s", strings.Join(p.Values, ", "))
	case p.Offered, slices.Contains(p.Neutral, value):
		return true, nil
	case p.Moot:
		return false, nil
	}
	rule := "leave the parameter out"
	if len(p.Neutral) > 0 {
		rule += " or set it to " + strings.Join(p.Neutral, " or ")
	}
	return false, fmt.Errorf("asks for %s, which is not offered; %s", p.AsksFor, rule)
}
