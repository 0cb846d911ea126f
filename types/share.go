package types

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsShared tells whether a volume is served over NFS, to pods of any number of nodes, by a share manager.
func IsShared(v *longhorn.Volume) bool {
	return v.Spec.AccessMode == longhorn.AccessModeReadWriteMany
}

// IsServed tells whether a shared volume can be mounted now.
func IsServed(v *longhorn.Volume) bool {
	return IsShared(v) && v.Status.ShareState == longhorn.ShareManagerStateRunning && v.Status.ShareEndpoint != ""
}

// ShareNameRule is the rule of CanBeShared; the CRD has it in the same words.
const ShareNameRule = "must begin with a letter where accessMode is rwx: the Service of a shared volume has the volume's name"

// CanBeShared tells whether a volume of that name can be a shared one.
func CanBeShared(name string) bool { return len(validation.IsDNS1035Label(name)) == 0 }

// ShareEndpoint is where clients mount a volume: nfs://<address>/<volume>, an IPv6 address in brackets; "" if the address is none.
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

// VolumeUIDEnv is the variable of a share manager's pod that has the UID of its Volume. It is no argument, because an image of an earlier release would
// not start with one that it does not know.
const VolumeUIDEnv = "LONGHORN_VOLUME_UID"

// ShareRecovery is what a share manager says of the recovery data of the server before it.
type ShareRecovery struct {
	// Incident is a random name of the loss of that data; "": it was not lost, or the share manager is of a release that cannot tell.
	Incident string
	// Reason is ReasonRecoveryDataMissing or ReasonRecoveryDataUnusable, and Message says more; both "" without an Incident.
	Reason, Message string
	// FoundAt is when the loss was found, by the clock of the share manager's node.
	FoundAt time.Time
	// NotGrown is why the file system does not fill its device; "": it does, or that is not known.
	NotGrown string
	// NotLimited is why the kernel does not limit clients as the list says; "": it does, or that is not known.
	NotLimited string
	// Dropped are the identifiers of NFS clients whose records the share manager has removed, or may have (LostClients).
	Dropped []string
	// PortGuarded: the NFS port closes by itself when the volume's engine is not confirmed. False for a release that does not say.
	PortGuarded bool
}

// Parameters of a StorageClass that a share manager reads, from the PersistentVolume of its volume.
const (
	ParameterFSType            = "fsType"
	ParameterMkfsParams        = "mkfsParams"
	ParameterNFSSquash         = "nfsSquash"
	ParameterShareNodeSelector = "shareManagerNodeSelector"
	ParameterShareTolerations  = "shareManagerTolerations"
)

// ShareParameters are these parameters.
var ShareParameters = []string{ParameterFSType, ParameterMkfsParams, ParameterNFSSquash, ParameterShareNodeSelector, ParameterShareTolerations}

// NFSSquash says as whom a share's server acts for the users of its clients.
type NFSSquash string

// The values of NFSSquash.
const (
	NFSSquashNone NFSSquash = "none" // as themselves, root included
	NFSSquashRoot NFSSquash = "root" // root is nobody
	NFSSquashAll  NFSSquash = "all"  // all are nobody
)

// ParseNFSSquash reads the parameter nfsSquash; nothing is NFSSquashNone. The error names the parameter, the value and the rule.
func ParseNFSSquash(text string) (NFSSquash, error) {
	switch squash := NFSSquash(strings.TrimSpace(text)); squash {
	case "":
		return NFSSquashNone, nil
	case NFSSquashNone, NFSSquashRoot, NFSSquashAll:
		return squash, nil
	}
	return "", fmt.Errorf("%s: %q must be %s, %s or %s", ParameterNFSSquash, text, NFSSquashNone, NFSSquashRoot, NFSSquashAll)
}

// ParseShareNodeSelector reads the parameter shareManagerNodeSelector, "key:value;key2:value2". Nothing is no selector. The
// error names the parameter, the value and the rule.
func ParseShareNodeSelector(text string) (map[string]string, error) {
	selector := map[string]string{}
	for _, part := range parts(text) {
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

// ParseShareTolerations reads the parameter shareManagerTolerations, "key=value:Effect;key:Effect". Without a value any value is
// tolerated, without an effect any effect. The error names the parameter, the value and the rule.
func ParseShareTolerations(text string) ([]corev1.Toleration, error) {
	list, err := parseTolerations(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %q must be key=value:Effect or key:Effect, separated by ';', with an effect of NoSchedule, PreferNoSchedule or NoExecute; it has %w",
			ParameterShareTolerations, text, err)
	}
	return list, nil
}

// parseToleration reads one entry. The error names the part of it that is wrong.
func parseToleration(text string) (corev1.Toleration, error) {
	taint, effect, _ := strings.Cut(text, ":")
	key, value, hasValue := strings.Cut(strings.TrimSpace(taint), "=")
	t := corev1.Toleration{Key: strings.TrimSpace(key), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(strings.TrimSpace(effect))}
	if hasValue {
		t.Operator, t.Value = corev1.TolerationOpEqual, strings.TrimSpace(value)
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		return t, fmt.Errorf("the invalid effect %q", t.Effect) // scripts look for "invalid effect"
	}
	if len(validation.IsQualifiedName(t.Key)) > 0 {
		return t, fmt.Errorf("the invalid key %q", t.Key)
	}
	if len(validation.IsValidLabelValue(t.Value)) > 0 {
		return t, fmt.Errorf("the invalid value %q", t.Value)
	}
	return t, nil
}

// parts of a text that ';' separates, without empty ones.
func parts(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ";"), func(part string) bool { return strings.TrimSpace(part) == "" })
}
