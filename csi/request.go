package csi

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// Sizes in bytes.
const (
	mebibyte       = int64(1) << 20
	sizeUnit       = 2 * mebibyte
	minimumSize    = 10 * mebibyte
	minimumXFSSize = 300 * mebibyte
	maximumSize    = math.MaxInt64 / sizeUnit * sizeUnit
)

// capability is the part of a volume capability that the driver uses.
type capability struct {
	block bool
	// fsType is empty when the request leaves it open, and for block volumes.
	fsType     string
	mountFlags []string
	accessMode string
	// readOnly: the nodes may only read.
	readOnly bool
}

// isShared reports whether several nodes may have the volume at the same time.
func (c capability) isShared() bool { return c.accessMode == accessModeRWX }

// readCapability checks one capability. The error names the unsupported part.
func readCapability(c *csipb.VolumeCapability) (capability, error) {
	var result capability
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		result.accessMode = accessModeRWO
	case csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		result.accessMode = accessModeRWOP
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		result.accessMode = accessModeRWX
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		result.accessMode, result.readOnly = accessModeRWX, true
	default:
		return capability{}, fmt.Errorf("access mode %s is not supported", modeName(mode))
	}
	switch access := c.GetAccessType().(type) {
	case *csipb.VolumeCapability_Block:
		if result.isShared() {
			return capability{}, fmt.Errorf("access mode %s is not supported for a block volume: several nodes share a volume over NFS, and NFS has no block devices",
				modeName(c.GetAccessMode().GetMode()))
		}
		result.block = true
	case *csipb.VolumeCapability_Mount:
		result.fsType, result.mountFlags = access.Mount.GetFsType(), access.Mount.GetMountFlags()
		if result.fsType == "" {
			break
		}
		if err := types.CheckFSType(result.fsType); err != nil {
			return capability{}, fmt.Errorf("parameter %s: value %q %w", paramFSType, result.fsType, err)
		}
	default:
		return capability{}, fmt.Errorf("the volume capability must be of type block or mount")
	}
	return result, nil
}

// modeName is the name of an access mode in claims, followed by the name in CSI.
func modeName(mode csipb.VolumeCapability_AccessMode_Mode) string {
	switch mode {
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return "ReadWriteMany (" + mode.String() + ")"
	case csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return "ReadOnlyMany (" + mode.String() + ")"
	}
	return mode.String()
}

// readCapabilities checks them all; at least one is required. The volume is shared if one of them requests that.
// Otherwise it gets the strictest access mode among them. It gets the file system that one of them names.
func readCapabilities(list []*csipb.VolumeCapability) (capability, error) {
	if len(list) == 0 {
		return capability{}, fmt.Errorf("volume capabilities are missing")
	}
	result := capability{block: true, accessMode: accessModeRWO}
	exclusive, shared := false, false
	for _, c := range list {
		one, err := readCapability(c)
		if err != nil {
			return capability{}, err
		}
		if one.fsType != "" && result.fsType != "" && one.fsType != result.fsType {
			return capability{}, fmt.Errorf("the volume capabilities must name one file system, not %s and %s", result.fsType, one.fsType)
		}
		if one.fsType != "" {
			result.fsType = one.fsType
		}
		result.mountFlags = append(result.mountFlags, one.mountFlags...)
		exclusive, shared = exclusive || one.accessMode == accessModeRWOP, shared || one.isShared()
		result.block = result.block && one.block
	}
	switch {
	case exclusive && shared:
		return capability{}, fmt.Errorf("the volume capabilities contradict each other: they request a volume for one pod only, and for several nodes")
	case exclusive:
		result.accessMode = accessModeRWOP
	case shared:
		result.accessMode = accessModeRWX
	}
	return result, nil
}

// errOutOfRange: no size satisfies the request.
type errOutOfRange struct{ text string }

func (e errOutOfRange) Error() string { return e.text }

// volumeSize chooses the size in bytes. It is at least the required size and 10 MiB, or 300 MiB if xfs will be created.
// It is a multiple of 2 MiB. It is at most the limit (0: none).
func volumeSize(r *csipb.CapacityRange, fsType string) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if required < 0 || limit < 0 {
		return 0, fmt.Errorf("capacity range: required %d and limit %d must not be negative", required, limit)
	}
	if limit > 0 && limit < required {
		return 0, fmt.Errorf("capacity range: the limit %s is less than the required size %s", types.ExactSizeText(limit), types.ExactSizeText(required))
	}
	size := max(required, minimumSize)
	if fsType == types.FSTypeXFS {
		size = max(size, minimumXFSSize)
	}
	if size > maximumSize {
		return 0, errOutOfRange{fmt.Sprintf("capacity range: the required size %s is more than the largest possible size, %s", types.ExactSizeText(required), types.ExactSizeText(maximumSize))}
	}
	size = (size + sizeUnit - 1) / sizeUnit * sizeUnit
	if limit > 0 && size > limit {
		return 0, errOutOfRange{fmt.Sprintf("capacity range: the smallest possible size is %s, which is more than the limit %s", types.ExactSizeText(size), types.ExactSizeText(limit))}
	}
	return size, nil
}

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
