package csi

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// The keys of a StorageClass's parameters that have an effect.
const (
	paramNumberOfReplicas            = "numberOfReplicas"
	paramStaleReplicaTimeout         = "staleReplicaTimeout"
	paramFSType                      = types.ParameterFSType
	paramMkfsParams                  = types.ParameterMkfsParams
	paramDataLocality                = "dataLocality"
	paramDiskSelector                = "diskSelector"
	paramNodeSelector                = "nodeSelector"
	paramReplicaSoftAntiAffinity     = "replicaSoftAntiAffinity"
	paramReplicaZoneSoftAntiAffinity = "replicaZoneSoftAntiAffinity"
	paramReplicaDiskSoftAntiAffinity = "replicaDiskSoftAntiAffinity"
	paramReplicaAutoBalance          = "replicaAutoBalance"
	paramShare                       = "share"
	paramExclusive                   = "exclusive"
	paramNFSOptions                  = "nfsOptions"
)

// supported are all of the above.
var supported = []string{
	paramNumberOfReplicas, paramStaleReplicaTimeout, paramFSType, paramMkfsParams, paramDataLocality,
	paramDiskSelector, paramNodeSelector, paramReplicaSoftAntiAffinity, paramReplicaZoneSoftAntiAffinity, paramReplicaDiskSoftAntiAffinity, paramReplicaAutoBalance,
	paramShare, paramExclusive, paramNFSOptions, types.ParameterNFSSquash, types.ParameterShareNodeSelector, types.ParameterShareTolerations,
}

// reservedPrefix begins the keys that belong to the side-cars, not to the driver.
const reservedPrefix = "csi.storage.k8s.io/"

const (
	defaultFSType              = types.FSTypeExt4
	defaultStaleReplicaMinutes = 2880
	maxReplicas                = 20
)

// unsupported are Longhorn's parameters for what this driver cannot do, each with the
// values that ask for nothing (the empty text is always one). It refuses any other value: a
// volume that silently is not encrypted, or not restored from its backup, is worse than
// none. It ignores a key that is neither here nor above.
var unsupported = map[string][]string{
	"fromBackup":                  nil,
	"backingImage":                nil,
	"backingImageDataSourceType":  nil,
	"dataSource":                  nil,
	"cloneMode":                   nil,
	"recurringJobSelector":        {"[]"},
	"volumeTopology":              nil,
	"migratable":                  {"false"},
	"encrypted":                   {"false"},
	"standby":                     {"false"},
	"strictTopology":              {"false"},
	"dataEngine":                  {dataEngineV1},
	"dataLayout":                  nil,
	"unmapMarkSnapChainRemoved":   {"ignored", "disabled"},
	"snapshotDataIntegrity":       {"ignored", "disabled"},
	"freezeFilesystemForSnapshot": {"ignored", "disabled"},
	"backupCompressionMethod":     {"lz4"},
	"backupTargetName":            {"default"},
}

// parameters is a StorageClass, read.
type parameters struct {
	replicas                                                     int
	staleMinutes                                                 int
	fsType                                                       string
	mkfsParams                                                   string
	softAntiAffinity, zoneSoftAntiAffinity, diskSoftAntiAffinity string
	autoBalance                                                  string
	// locality is empty where the setting default-data-locality decides.
	locality     string
	diskSelector []string
	nodeSelector []string
	// exclusive asks for ReadWriteOncePod, and share for ReadWriteMany, whatever the capability says.
	exclusive, share bool
}

// parseParameters reads a StorageClass's parameters. An error names the key, the value and the rule of each that is
// wrong, in order of the keys.
func parseParameters(params map[string]string) (parameters, error) {
	p := parameters{
		staleMinutes:         defaultStaleReplicaMinutes,
		fsType:               defaultFSType,
		softAntiAffinity:     antiAffinityIgnored,
		zoneSoftAntiAffinity: antiAffinityIgnored,
		diskSoftAntiAffinity: antiAffinityIgnored,
		autoBalance:          autoBalances[0],
	}
	keys := make([]string, 0, len(params))
	for key := range params {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var wrong []string
	for _, key := range keys {
		value := strings.TrimSpace(params[key])
		if value == "" {
			continue
		}
		if err := checkShareParameter(key, value); err != nil {
			wrong = append(wrong, err.Error())
		}
		if err := p.set(key, value); err != nil {
			wrong = append(wrong, fmt.Sprintf("parameter %s: value %q %v", key, value, err))
		}
	}
	if types.CheckFSType(p.fsType) == nil { // else nobody knows what its mkfs takes
		if err := p.checkMkfs(p.fsType); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return parameters{}, errors.New(strings.Join(wrong, "; "))
	}
	return p, nil
}

// checkMkfs checks the options of mkfs against the type of the file system to be made; the
// type is empty where none is made.
func (p parameters) checkMkfs(fsType string) error {
	if fsType == "" {
		return nil
	}
	_, err := types.ParseMkfsParams(fsType, p.mkfsParams)
	return err
}

// checkShareParameter checks what is for the volume's share manager, who reads it in the
// PersistentVolume.
func checkShareParameter(key, value string) (err error) {
	switch key {
	case types.ParameterShareNodeSelector:
		_, err = types.ParseShareNodeSelector(value)
	case types.ParameterShareTolerations:
		_, err = types.ParseShareTolerations(value)
	case types.ParameterNFSSquash:
		_, err = types.ParseNFSSquash(value)
	}
	if err != nil {
		return fmt.Errorf("parameter %w", err)
	}
	return nil
}

// accessMode is what the volume gets by the parameters and by the capabilities.
func (p parameters) accessMode(c capability) (string, error) {
	shared := p.share || c.isShared()
	switch {
	case p.exclusive && shared, p.share && c.accessMode == accessModeRWOP:
		return "", fmt.Errorf("parameter %s, parameter %s and the access modes contradict each other: one pod alone, and several nodes", paramExclusive, paramShare)
	case p.share && c.block:
		return "", fmt.Errorf("parameter %s: value \"true\" asks for a volume that several nodes share over NFS, which cannot be a block volume", paramShare)
	case shared && p.locality == localityStrict:
		return "", fmt.Errorf("parameter %s: value %q is for a volume that is used on the node of its data alone, and several nodes share this one",
			paramDataLocality, localityStrict)
	case shared:
		return accessModeRWX, nil
	case p.exclusive:
		return accessModeRWOP, nil
	}
	return c.accessMode, nil
}

func (p *parameters) set(key, value string) (err error) {
	switch key {
	case paramNumberOfReplicas:
		p.replicas, err = parseReplicas(value)
	case paramStaleReplicaTimeout:
		p.staleMinutes, err = parseMinutes(value)
	case paramFSType:
		p.fsType, err = value, types.CheckFSType(value)
	case paramMkfsParams:
		p.mkfsParams = value
	case paramReplicaSoftAntiAffinity:
		p.softAntiAffinity, err = parseAntiAffinity(value)
	case paramReplicaZoneSoftAntiAffinity:
		p.zoneSoftAntiAffinity, err = parseAntiAffinity(value)
	case paramReplicaDiskSoftAntiAffinity:
		p.diskSoftAntiAffinity, err = parseAntiAffinity(value)
	case paramReplicaAutoBalance:
		p.autoBalance, err = value, checkAutoBalance(value)
	case paramDataLocality:
		p.locality, err = value, checkLocality(value)
	case paramDiskSelector:
		p.diskSelector, err = parseTags(value)
	case paramNodeSelector:
		p.nodeSelector, err = parseTags(value)
	case paramExclusive:
		p.exclusive, err = parseBool(value)
	case paramShare:
		p.share, err = parseBool(value)
	case paramNFSOptions:
		_, err = mount.ParseNFSOptions(value)
	default:
		if neutral, known := unsupported[key]; known && !slices.Contains(neutral, value) {
			err = fmt.Errorf("asks for something that is not offered; leave the parameter out%s", orOneOf(neutral))
		}
	}
	return err
}

// isKnownParameter tells whether this driver knows a key, even if only to refuse it. It
// ignores unknown keys.
func isKnownParameter(key string) bool {
	if slices.Contains(supported, key) {
		return true
	}
	_, known := unsupported[key]
	return known
}

func orOneOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return " or set it to " + strings.Join(values, " or ")
}

func parseReplicas(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxReplicas {
		return 0, fmt.Errorf("is not a whole number from 1 to %d", maxReplicas)
	}
	return n, nil
}

// parseMinutes reads a timeout; zero and less mean the default, as Longhorn's users expect.
func parseMinutes(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("is not a whole number of minutes")
	}
	if n <= 0 {
		return defaultStaleReplicaMinutes, nil
	}
	return n, nil
}

func parseBool(value string) (bool, error) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("is neither true nor false")
	}
	return b, nil
}

func parseAntiAffinity(value string) (string, error) {
	switch value {
	case antiAffinityIgnored, antiAffinityEnabled, antiAffinityDisabled:
		return value, nil
	}
	return "", fmt.Errorf("is none of ignored, enabled, disabled")
}

// autoBalances are the values of the parameter; the first, the default, follows the setting.
var autoBalances = []string{"ignored", "disabled", "least-effort", "best-effort"}

func checkAutoBalance(value string) error {
	if !slices.Contains(autoBalances, value) {
		return fmt.Errorf("is none of %s", strings.Join(autoBalances, ", "))
	}
	return nil
}

func checkLocality(value string) error {
	switch value {
	case localityDisabled, localityBestEffort, localityStrict:
		return nil
	}
	return fmt.Errorf("is none of %s, %s, %s", localityDisabled, localityBestEffort, localityStrict)
}

// parseTags reads a comma-separated list; spaces around a tag are not part of it.
func parseTags(value string) ([]string, error) {
	var tags []string
	for _, tag := range strings.Split(value, ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			return nil, fmt.Errorf("has an empty tag")
		}
		tags = append(tags, tag)
	}
	return tags, nil
}
