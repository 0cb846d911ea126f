package csi

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// The keys of a StorageClass's parameters that this package uses, besides those of types.VolumeOptionTable.
// types.ClassParameters has all known keys.
const (
	paramNumberOfReplicas    = "numberOfReplicas"
	paramStaleReplicaTimeout = "staleReplicaTimeout"
	paramFSType              = types.ParameterFSType
	paramMkfsParams          = types.ParameterMkfsParams
	paramDataLocality        = "dataLocality"
	paramDiskSelector        = "diskSelector"
	paramNodeSelector        = "nodeSelector"
	paramShare               = "share"
	paramExclusive           = "exclusive"
	paramNFSOptions          = "nfsOptions"
)

const (
	defaultFSType              = types.FSTypeExt4
	defaultStaleReplicaMinutes = 2880
	maxReplicas                = 20
)

// parameters are the parsed parameters of a StorageClass.
type parameters struct {
	replicas     int
	staleMinutes int
	fsType       string
	mkfsParams   string
	options      types.VolumeOptions
	// locality is empty if the setting default-data-locality decides.
	locality     string
	diskSelector []string
	nodeSelector []string
	// exclusive requests ReadWriteOncePod, and share requests ReadWriteMany, whatever the capability says.
	exclusive, share bool
}

// parseParameters parses a StorageClass's parameters. An error names the key, the value and the rule of each invalid
// parameter, in order of the keys.
func parseParameters(params map[string]string) (parameters, error) {
	p := parameters{staleMinutes: defaultStaleReplicaMinutes, fsType: defaultFSType}
	types.FillVolumeOptions(&p.options)
	keys := make([]string, 0, len(params))
	for key := range params {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var wrong []string
	for _, key := range keys {
		value := strings.TrimSpace(params[key])
		if value == "" || strings.HasPrefix(key, types.ReservedParameterPrefix) {
			continue
		}
		if err := p.read(key, value); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	// otherwise it is not known which arguments its mkfs accepts
	if types.CheckFSType(p.fsType) == nil {
		if err := p.checkMkfs(p.fsType); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return parameters{}, errors.New(strings.Join(wrong, "; "))
	}
	return p, nil
}

// CheckParameters returns the same error about the parameters of a StorageClass as CreateVolume would.
func CheckParameters(params map[string]string) error {
	_, err := parseParameters(params)
	return err
}

// read checks one parameter and stores its value.
func (p *parameters) read(key, value string) error {
	if err := checkShareParameter(key, value); err != nil {
		return err
	}
	if _, err := types.CheckClassParameter(key, value); err != nil {
		return err
	}
	if err := p.set(key, value); err != nil {
		return fmt.Errorf("parameter %s: value %q %w", key, value, err)
	}
	return nil
}

// checkMkfs checks the options of mkfs against the type of the file system to create. The type is empty if none is
// created.
func (p parameters) checkMkfs(fsType string) error {
	if fsType == "" {
		return nil
	}
	_, err := types.ParseMkfsParams(fsType, p.mkfsParams)
	return err
}

// checkShareParameter checks the parameters for the volume's share manager, which are read from the PersistentVolume.
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

// accessMode is the access mode that the parameters and the capabilities give the volume.
func (p parameters) accessMode(c capability) (string, error) {
	shared := p.share || c.isShared()
	switch {
	case p.exclusive && shared, p.share && c.accessMode == accessModeRWOP:
		return "", fmt.Errorf("parameter %s, parameter %s and the access modes contradict each other: they request a volume for one pod only, and for several nodes", paramExclusive, paramShare)
	case p.share && c.block:
		return "", fmt.Errorf("parameter %s: value \"true\" requests a volume that several nodes share over NFS, and NFS has no block devices", paramShare)
	case shared && p.locality == localityStrict:
		return "", fmt.Errorf("parameter %s: value %q requests a volume that can be used only on the node with its data, but several nodes share this volume",
			paramDataLocality, localityStrict)
	case shared:
		return accessModeRWX, nil
	case p.exclusive:
		return accessModeRWOP, nil
	}
	return c.accessMode, nil
}

// set stores a value that types.CheckClassParameter accepts.
func (p *parameters) set(key, value string) (err error) {
	switch key {
	case paramNumberOfReplicas:
		p.replicas, err = parseReplicas(value)
	case paramStaleReplicaTimeout:
		p.staleMinutes, err = parseMinutes(value)
	case paramFSType:
		p.fsType = value
	case paramMkfsParams:
		p.mkfsParams = value
	case paramDataLocality:
		p.locality = value
	case paramDiskSelector:
		p.diskSelector, err = parseTags(value)
	case paramNodeSelector:
		p.nodeSelector, err = parseTags(value)
	case paramExclusive:
		p.exclusive, err = strconv.ParseBool(value)
	case paramShare:
		p.share, err = strconv.ParseBool(value)
	case paramNFSOptions:
		_, err = mount.ParseNFSOptions(value)
	default:
		if option, ok := types.FindVolumeOption(key); ok {
			option.Set(&p.options, value)
		}
	}
	return err
}

func parseReplicas(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxReplicas {
		return 0, fmt.Errorf("must be a whole number from 1 to %d", maxReplicas)
	}
	return n, nil
}

// parseMinutes reads a timeout; zero and less mean the default, as Longhorn's users expect.
func parseMinutes(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("must be a whole number of minutes")
	}
	if n <= 0 {
		return defaultStaleReplicaMinutes, nil
	}
	return n, nil
}

// parseTags reads a comma-separated list; spaces around a tag are not part of it.
func parseTags(value string) ([]string, error) {
	var tags []string
	for _, tag := range strings.Split(value, ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			return nil, fmt.Errorf("must not contain an empty tag")
		}
		tags = append(tags, tag)
	}
	return tags, nil
}
