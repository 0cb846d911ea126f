package sharemanager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Parameters of a share are the parameters of the StorageClass, as stored in the PersistentVolume of its volume. A
// volume without a PersistentVolume has none.
type Parameters struct {
	// Class is the name of that StorageClass, which may no longer exist; "": there was none.
	Class              string
	FSType, MkfsParams string
	NodeSelector       map[string]string
	Tolerations        []corev1.Toleration
	// Squash is "" if the StorageClass does not set it.
	Squash types.NFSSquash
	// ClientsReadOnly: no claim lets its pods write. ClientsWrite: a claim lets them. Without a claim, neither is
	// known.
	ClientsReadOnly, ClientsWrite bool
}

// parametersOf reads the parameters of the first claim by name. refused says which of them breaks a rule. MkfsParams
// are not checked here: they matter only where a file system is created, and the share manager knows where.
func parametersOf(claims []*corev1.PersistentVolume) (p Parameters, refused string) {
	if len(claims) == 0 {
		return p, ""
	}
	first := slices.MinFunc(claims, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	if first.Spec.CSI == nil {
		return p, ""
	}
	csi := first.Spec.CSI
	given := csi.VolumeAttributes
	p.Class = first.Spec.StorageClassName
	p.FSType, p.MkfsParams = csi.FSType, given[types.ParameterMkfsParams]
	if p.FSType == "" {
		p.FSType = given[types.ParameterFSType]
	}
	p.ClientsWrite = slices.ContainsFunc(claims, isWritable)
	p.ClientsReadOnly = !p.ClientsWrite
	var refusals []string
	refuse := func(err error) {
		if err != nil {
			refusals = append(refusals, err.Error())
		}
	}
	if p.FSType != "" {
		if err := types.CheckFSType(p.FSType); err != nil {
			refuse(fmt.Errorf("%s: %q %w", types.ParameterFSType, p.FSType, err))
		}
	}
	var err error
	if squash := strings.TrimSpace(given[types.ParameterNFSSquash]); squash != "" {
		p.Squash, err = types.ParseNFSSquash(squash)
		refuse(err)
	}
	p.NodeSelector, err = types.ParseShareNodeSelector(given[types.ParameterShareNodeSelector])
	refuse(err)
	p.Tolerations, err = types.ParseShareTolerations(given[types.ParameterShareTolerations])
	refuse(err)
	return p, strings.Join(refusals, "; ")
}

// isWritable reports whether pods may write through a claim. A PersistentVolume without an access mode counts as
// writable.
func isWritable(pv *corev1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 0 ||
		slices.ContainsFunc(pv.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
}
