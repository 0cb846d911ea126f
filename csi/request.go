package csi

import (
	"fmt"
	"maps"
	"math"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/longhorn-lep/longhorn-manager/types"
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

// volumeRequest converts a CreateVolumeRequest into the volume to create.
func volumeRequest(req *csipb.CreateVolumeRequest) (VolumeRequest, error) {
	if req.GetName() == "" {
		return VolumeRequest{}, fmt.Errorf("name is missing")
	}
	name, err := types.VolumeName(req.GetName())
	if err != nil {
		return VolumeRequest{}, err
	}
	if req.GetVolumeContentSource() != nil {
		return VolumeRequest{}, fmt.Errorf("volume content source: creating a volume from a snapshot or another volume is not supported")
	}
	c, err := readCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return VolumeRequest{}, err
	}
	p, err := parseParameters(withFSType(req.GetParameters(), c.fsType))
	if err != nil {
		return VolumeRequest{}, err
	}
	fsType := p.fsType
	if c.block {
		fsType = ""
	}
	size, err := volumeSize(req.GetCapacityRange(), fsType)
	if err != nil {
		return VolumeRequest{}, err
	}
	if c.accessMode, err = p.accessMode(c); err != nil {
		return VolumeRequest{}, err
	}
	if c.accessMode == accessModeRWX {
		if err := checkShareMountOptions(c.mountFlags); err != nil {
			return VolumeRequest{}, err
		}
	}
	r := p.volume(c.accessMode)
	r.Name, r.SizeBytes = name, size
	if preferred := req.GetAccessibilityRequirements().GetPreferred(); len(preferred) > 0 {
		r.FirstNode, err = nodeOfTopology(preferred[0])
	}
	return r, err
}

// withFSType are the parameters with the type of the file system in the capability, which takes precedence; "": the
// capability names none.
func withFSType(params map[string]string, fsType string) map[string]string {
	if fsType == "" {
		return params
	}
	result := maps.Clone(params)
	if result == nil {
		result = map[string]string{}
	}
	result[paramFSType] = fsType
	return result
}

// volume is the volume that the parameters request, without a name and a size.
func (p parameters) volume(accessMode string) VolumeRequest {
	return VolumeRequest{
		NumberOfReplicas:           p.replicas,
		StaleReplicaTimeoutMinutes: p.staleMinutes,
		DataLocality:               p.locality,
		AccessMode:                 accessMode,
		VolumeOptions:              p.options,
		DiskSelector:               p.diskSelector,
		NodeSelector:               p.nodeSelector,
	}
}
