package sharemanager

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Parameters of a share are those of the StorageClass, as the PersistentVolume of its volume carries them. A volume without
// one has none.
type Parameters struct {
	FSType, MkfsParams string
	NodeSelector       map[string]string
	Tolerations        []corev1.Toleration
}

// parametersOf reads the parameters of the first claim; refused says which of them breaks a rule.
func parametersOf(claims []*corev1.PersistentVolume) (p Parameters, refused string) {
	if len(claims) == 0 || claims[0].Spec.CSI == nil {
		return p, ""
	}
	csi := claims[0].Spec.CSI
	given := csi.VolumeAttributes
	p.FSType, p.MkfsParams = csi.FSType, given[types.ParameterMkfsParams]
	if p.FSType == "" {
		p.FSType = given[types.ParameterFSType]
	}
	var refusals []string
	var err error
	if p.NodeSelector, err = types.ParseShareNodeSelector(given[types.ParameterShareNodeSelector]); err != nil {
		refusals = append(refusals, err.Error())
	}
	if p.Tolerations, err = types.ParseShareTolerations(given[types.ParameterShareTolerations]); err != nil {
		refusals = append(refusals, err.Error())
	}
	return p, strings.Join(refusals, "; ")
}
