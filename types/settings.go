package types

import (
	"fmt"
	"path"
	"sort"
	"strconv"
)

// SettingName names a global setting.
type SettingName string

// The settings that exist; any other name is refused by the API.
const (
	SettingDefaultReplicaCount        SettingName = "default-replica-count"
	SettingDefaultDataPath            SettingName = "default-data-path"
	SettingOverProvisioningPercentage SettingName = "storage-over-provisioning-percentage"
	SettingMinimalAvailablePercentage SettingName = "storage-minimal-available-percentage"
	SettingReservedPercentage         SettingName = "storage-reserved-percentage-for-default-disk"
	SettingReplicaSoftAntiAffinity    SettingName = "replica-soft-anti-affinity"
	SettingReplenishmentWaitIntervalS SettingName = "replica-replenishment-wait-interval"
	SettingRebuildingBandwidthMiBps   SettingName = "replica-rebuilding-bandwidth-limit"
	SettingCreateDefaultDiskLabeled   SettingName = "create-default-disk-labeled-nodes"
)

// SettingType says how a setting's text is read.
type SettingType string

// The types of settings, as they stand on the wire.
const (
	SettingTypeString SettingType = "string"
	SettingTypeInt    SettingType = "int"
	SettingTypeBool   SettingType = "bool"
)

// SettingDefinition describes a setting for people and programs.
type SettingDefinition struct {
	DisplayName string
	Description string
	Category    string
	Type        SettingType
	Default     string
	// Minimum and Maximum bound a SettingTypeInt; a nil bound is open.
	Minimum, Maximum *int64
	// check adds a rule beyond the type and bounds.
	check func(value string) error
}

var settingDefinitions = map[SettingName]SettingDefinition{
	SettingDefaultReplicaCount: {
		DisplayName: "Default Replica Count", Category: "general", Type: SettingTypeInt, Default: "3",
		Minimum: bound(1), Maximum: bound(20),
		Description: "How many replicas a volume gets whose request does not say.",
	},
	SettingDefaultDataPath: {
		DisplayName: "Default Data Path", Category: "general", Type: SettingTypeString, Default: "/var/lib/longhorn",
		Description: "The directory on a new node that becomes its default disk. Existing disks are not touched.",
		check:       checkDataPath,
	},
	SettingCreateDefaultDiskLabeled: {
		DisplayName: "Create Default Disk on Labeled Nodes", Category: "general", Type: SettingTypeBool, Default: "false",
		Description: "Let the label node.longhorn.io/create-default-disk of a Kubernetes node say which disks the node gets whenever it has none. " +
			"Otherwise every node gets one default disk when it is first seen, and never again.",
	},
	SettingOverProvisioningPercentage: {
		DisplayName: "Storage Over Provisioning Percentage", Category: "scheduling", Type: SettingTypeInt, Default: "100",
		Minimum:     bound(0),
		Description: "How much of a disk, less what is reserved, may be promised to replicas, in percent.",
	},
	SettingMinimalAvailablePercentage: {
		DisplayName: "Storage Minimal Available Percentage", Category: "scheduling", Type: SettingTypeInt, Default: "25",
		Minimum: bound(0), Maximum: bound(100),
		Description: "A disk with no more than this part free, in percent, gets no new replica.",
	},
	SettingReservedPercentage: {
		DisplayName: "Storage Reserved Percentage For Default Disk", Category: "scheduling", Type: SettingTypeInt, Default: "30",
		Minimum: bound(0), Maximum: bound(100),
		Description: "The part of a new default disk that is left to others, in percent.",
	},
	SettingReplicaSoftAntiAffinity: {
		DisplayName: "Replica Node Level Soft Anti-Affinity", Category: "scheduling", Type: SettingTypeBool, Default: "false",
		Description: "Allow two replicas of a volume on one node when there is no other.",
	},
	SettingRebuildingBandwidthMiBps: {
		DisplayName: "Replica Rebuilding Bandwidth Limit", Category: "general", Type: SettingTypeInt, Default: "0",
		Minimum:     bound(0),
		Description: "How fast a replica may be rebuilt, in MiB per second; 0: as fast as foreground writes allow.",
	},
	SettingReplenishmentWaitIntervalS: {
		DisplayName: "Replica Replenishment Wait Interval", Category: "general", Type: SettingTypeInt, Default: "600",
		Minimum:     bound(0),
		Description: "How long, in seconds, a lost replica may come back before a new one is made in its place.",
	},
}

// Settings lists the names of all settings, sorted.
func Settings() []SettingName {
	names := make([]SettingName, 0, len(settingDefinitions))
	for name := range settingDefinitions {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return names[i] < names[j] })
	return names
}

// DefinitionOf returns a setting's definition and whether the setting exists.
func DefinitionOf(name SettingName) (SettingDefinition, bool) {
	d, ok := settingDefinitions[name]
	return d, ok
}

// CheckSetting returns an error that names the setting, the value and the rule broken,
// or nil. An empty value is valid: it means the default.
func CheckSetting(name SettingName, value string) error {
	d, ok := settingDefinitions[name]
	if !ok {
		return fmt.Errorf("setting %q does not exist", name)
	}
	if value == "" {
		return nil
	}
	if err := d.checkValue(value); err != nil {
		return fmt.Errorf("setting %s: value %q %w", name, value, err)
	}
	return nil
}

func (d SettingDefinition) checkValue(value string) error {
	switch d.Type {
	case SettingTypeInt:
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
			return fmt.Errorf("is not a whole number")
		case d.Minimum != nil && n < *d.Minimum:
			return fmt.Errorf("is less than %d", *d.Minimum)
		case d.Maximum != nil && n > *d.Maximum:
			return fmt.Errorf("is more than %d", *d.Maximum)
		}
	case SettingTypeBool:
		if value != "true" && value != "false" {
			return fmt.Errorf("is neither true nor false")
		}
	}
	if d.check != nil {
		return d.check(value)
	}
	return nil
}

// SettingInt reads a value of a SettingTypeInt; an invalid or empty one reads as the default.
func SettingInt(name SettingName, value string) int64 {
	n, _ := strconv.ParseInt(effective(name, value), 10, 64)
	return n
}

// SettingBool reads a value of a SettingTypeBool; an invalid or empty one reads as the default.
func SettingBool(name SettingName, value string) bool { return effective(name, value) == "true" }

// SettingString reads a value of a SettingTypeString; an invalid or empty one reads as the default.
func SettingString(name SettingName, value string) string { return effective(name, value) }

func effective(name SettingName, value string) string {
	if value == "" || CheckSetting(name, value) != nil {
		return settingDefinitions[name].Default
	}
	return value
}

func checkDataPath(value string) error {
	if !path.IsAbs(value) || path.Clean(value) == "/" {
		return fmt.Errorf("is not an absolute path below the root directory")
	}
	return nil
}

func bound(n int64) *int64 { return &n }
