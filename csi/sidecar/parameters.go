package sidecar

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reservedPrefix begins the keys of a StorageClass's parameters that are for the
// provisioner; they are not passed on to the driver.
const reservedPrefix = "csi.storage.k8s.io/"

const (
	keyFSType = reservedPrefix + "fstype"
	// plainFSType is the older spelling, in any case; it is passed on as well.
	plainFSType = "fstype"

	// What the driver learns of the claim, for its log.
	keyPVCName      = reservedPrefix + "pvc/name"
	keyPVCNamespace = reservedPrefix + "pvc/namespace"
	keyPVName       = reservedPrefix + "pv/name"
)

// classParameters are a StorageClass's parameters, read.
type classParameters struct {
	fsType string
	// driver are those passed on.
	driver map[string]string
}

// readParameters separates what is for the provisioner. It refuses a reserved key that
// means nothing here, references to secrets among them: the driver takes none, and a
// volume that was to be encrypted must not be made in the clear.
func readParameters(params map[string]string) (classParameters, error) {
	result := classParameters{driver: map[string]string{}}
	prefixed, plain := "", ""
	for key, value := range params {
		switch {
		case key == keyFSType:
			prefixed = value
		case strings.HasPrefix(key, reservedPrefix):
			return classParameters{}, fmt.Errorf("parameter %s: the driver does not know it", key)
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

// describe adds what the driver learns of the claim.
func (p classParameters) describe(claim *corev1.PersistentVolumeClaim, pvName string) map[string]string {
	result := map[string]string{keyPVCName: claim.Name, keyPVCNamespace: claim.Namespace, keyPVName: pvName}
	for key, value := range p.driver {
		result[key] = value
	}
	return result
}

// unknown lists the keys, sorted, that neither the provisioner nor the driver acts on.
// isKnown says which the driver does; nil: all.
func (p classParameters) unknown(isKnown func(string) bool) []string {
	if isKnown == nil {
		return nil
	}
	var keys []string
	for key := range p.driver {
		if !isKnown(key) && !strings.EqualFold(key, plainFSType) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
