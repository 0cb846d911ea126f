package types

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsShared reports whether a share manager serves the volume over NFS, to pods on any number of nodes.
func IsShared(v *longhorn.Volume) bool {
	return v.Spec.AccessMode == longhorn.AccessModeReadWriteMany
}

// IsServed reports whether a shared volume can be mounted now.
func IsServed(v *longhorn.Volume) bool {
	return IsShared(v) && v.Status.ShareState == longhorn.ShareManagerStateRunning && v.Status.ShareEndpoint != ""
}

// ShareNameRule is the rule of CanBeShared. The CRD has the same text.
const ShareNameRule = "must start with a letter if accessMode is rwx: the Service of a shared volume has the volume's name"

// CanBeShared reports whether a volume with this name can be shared.
func CanBeShared(name string) bool { return len(validation.IsDNS1035Label(name)) == 0 }

// ShareEndpoint returns the endpoint that clients mount: nfs://<address>/<volume>, with an IPv6 address in brackets.
// It is "" if the address is invalid.
func ShareEndpoint(address, volume string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	host := ip.String()
	if ip.Is6() {
		host = "[" + host + "]"
	}
	return "nfs://" + host + "/" + volume
}

// VolumeUIDEnv is the environment variable of a share manager's pod that has the UID of its Volume. It is not an
// argument, because an image of an earlier release would not start with an unknown argument.
const VolumeUIDEnv = "LONGHORN_VOLUME_UID"

// ShareRecovery is a share manager's report about the recovery data of the previous server.
type ShareRecovery struct {
	// Incident is a random name of the loss of that data. "": the data was not lost, or the release of the share
	// manager cannot tell.
	Incident string
	// Reason is ReasonRecoveryDataMissing or ReasonRecoveryDataUnusable, and Message has the details. Both are ""
	// without an Incident.
	Reason, Message string
	// FoundAt is the time at which the loss was found, by the clock of the share manager's node.
	FoundAt time.Time
	// NotGrown is the reason why the file system does not fill its device. "": it does, or that is unknown.
	NotGrown string
	// NotLimited is the reason why the kernel does not limit clients to those on the list. "": it does, or that is
	// unknown.
	NotLimited string
	// Dropped are the identifiers of NFS clients whose records the share manager has removed, or may have removed
	// (LostClients).
	Dropped []string
	// PortGuarded: the NFS port closes automatically if the volume's engine is not confirmed. It is false for a
	// release that does not report it.
	PortGuarded bool
}

// Parameters of a StorageClass that a share manager reads from the PersistentVolume of its volume.
const (
	ParameterFSType            = "fsType"
	ParameterMkfsParams        = "mkfsParams"
	ParameterNFSSquash         = "nfsSquash"
	ParameterShareNodeSelector = "shareManagerNodeSelector"
	ParameterShareTolerations  = "shareManagerTolerations"
)

// ShareParameters lists these parameters.
var ShareParameters = []string{ParameterFSType, ParameterMkfsParams, ParameterNFSSquash, ParameterShareNodeSelector, ParameterShareTolerations}

// NFSSquash determines the user IDs with which a share's server acts for users of its clients.
type NFSSquash string

// The values of NFSSquash.
const (
	NFSSquashNone NFSSquash = "none" // their own user IDs, including root
	NFSSquashRoot NFSSquash = "root" // root becomes the user 65534
	NFSSquashAll  NFSSquash = "all"  // all users become the user 65534
)

// ParseNFSSquash reads the parameter nfsSquash. An empty text is NFSSquashNone. The error names the parameter, the
// value and the rule.
func ParseNFSSquash(text string) (NFSSquash, error) {
	switch squash := NFSSquash(strings.TrimSpace(text)); squash {
	case "":
		return NFSSquashNone, nil
	case NFSSquashNone, NFSSquashRoot, NFSSquashAll:
		return squash, nil
	}
	return "", fmt.Errorf("%s: %q must be %s, %s or %s", ParameterNFSSquash, text, NFSSquashNone, NFSSquashRoot, NFSSquashAll)
}

// ParseShareNodeSelector reads the parameter shareManagerNodeSelector, "key:value;key2:value2". An empty text gives a
// nil selector. The error names the parameter, the value and the rule.
func ParseShareNodeSelector(text string) (map[string]string, error) {
	selector := map[string]string{}
	for _, part := range Entries(text) {
		key, value, found := strings.Cut(part, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !found || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, fmt.Errorf("%s: %q must be key:value pairs of node labels, separated by ';'; %q is none", ParameterShareNodeSelector, text, part)
		}
		if _, twice := selector[key]; twice {
			return nil, fmt.Errorf("%s: %q has the label %q twice", ParameterShareNodeSelector, text, key)
		}
		selector[key] = value
	}
	if len(selector) == 0 {
		return nil, nil
	}
	return selector, nil
}

// ParseShareTolerations reads the parameter shareManagerTolerations, "key=value:Effect;key:Effect". Without a value any
// value is tolerated, without an effect any effect. The error names the parameter, the value and the rule.
func ParseShareTolerations(text string) ([]corev1.Toleration, error) {
	list, err := ParseTolerations(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %q must be key=value:Effect or key:Effect, separated by ';', with an effect of NoSchedule, PreferNoSchedule or NoExecute; it has %w",
			ParameterShareTolerations, text, err)
	}
	return list, nil
}
