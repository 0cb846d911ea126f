package sidecar

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/spelling"
)

// reservedPrefix is the start of the keys of a StorageClass's parameters that are for the provisioner. They are not
// passed to the driver.
const reservedPrefix = types.ReservedParameterPrefix

const (
	keyFSType = reservedPrefix + "fstype"
	// plainFSType is the older spelling, in any case; it is passed to the driver as well.
	plainFSType = "fstype"

	// Keys of the information about the claim that the driver gets for its log.
	keyPVCName      = reservedPrefix + "pvc/name"
	keyPVCNamespace = reservedPrefix + "pvc/namespace"
	keyPVName       = reservedPrefix + "pv/name"
)

// classParameters are the parsed parameters of a StorageClass.
type classParameters struct {
	fsType string
	// driver are the parameters that are passed to the driver.
	driver map[string]string
}

// readParameters separates the parameters for the provisioner. It refuses a reserved key that has no meaning here and
// is not empty. References to secrets are among them: the driver accepts none, and a volume that should be encrypted
// must not be created without encryption.
func readParameters(params map[string]string) (classParameters, error) {
	result := classParameters{driver: map[string]string{}}
	prefixed, plain := "", ""
	for key, value := range params {
		switch {
		case key == keyFSType:
			prefixed = value
		case strings.HasPrefix(key, reservedPrefix):
			if value != "" {
				return classParameters{}, refuseReserved(key)
			}
		case strings.EqualFold(key, plainFSType):
			if plain != "" && value != "" && plain != value {
				return classParameters{}, fmt.Errorf("parameter fsType is given twice, as %s and %s", min(plain, value), max(plain, value))
			}
			plain = max(plain, value)
			result.driver[key] = value
		default:
			result.driver[key] = value
		}
	}
	if prefixed != "" && plain != "" && prefixed != plain {
		return classParameters{}, fmt.Errorf("parameters %s (%s) and fsType (%s) contradict each other", keyFSType, prefixed, plain)
	}
	result.fsType = max(prefixed, plain)
	if result.fsType == "" {
		result.fsType = defaultFSType
	}
	return result, nil
}

// refuseReserved says why a reserved key is refused.
func refuseReserved(key string) error {
	name := strings.TrimPrefix(key, reservedPrefix)
	switch nearest := spelling.Nearest(name, []string{strings.TrimPrefix(keyFSType, reservedPrefix)}); {
	case nearest != "":
		return fmt.Errorf("parameter %s: there is no parameter of this name; did you mean %s?", key, reservedPrefix+nearest)
	case strings.HasSuffix(name, "-secret-name"), strings.HasSuffix(name, "-secret-namespace"):
		return fmt.Errorf("parameter %s: the driver uses no secrets, because encryption is not supported; leave the parameter out", key)
	}
	return fmt.Errorf("parameter %s: the driver does not know this parameter; leave it out", key)
}

// checked are the parameters as the driver will check them, with the type of the file system that the claim gets.
func (p classParameters) checked() map[string]string {
	result := maps.Clone(p.driver)
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.EqualFold(key, plainFSType) })
	result["fsType"] = p.fsType
	return result
}

// describe adds the information about the claim for the driver.
func (p classParameters) describe(claim *corev1.PersistentVolumeClaim, pvName string) map[string]string {
	result := map[string]string{keyPVCName: claim.Name, keyPVCNamespace: claim.Namespace, keyPVName: pvName}
	for key, value := range p.driver {
		result[key] = value
	}
	return result
}
