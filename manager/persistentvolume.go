package manager

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// PersistentVolumeRequest requests a PersistentVolume for a volume. Empty texts mean the default.
type PersistentVolumeRequest struct {
	// Name is the name of the PersistentVolume; default: the name of the volume.
	Name string
	// FSType is ext4 (default) or xfs.
	FSType string
	// Secret and SecretNamespace can only be empty.
	Secret, SecretNamespace string
	// StorageClass is the class of the PersistentVolume; default: the setting default-longhorn-static-storage-class. A
	// StorageClass of that name does not need to exist.
	StorageClass string
}

// modesOfClaims has the access mode in Kubernetes for each access mode.
var modesOfClaims = map[longhorn.AccessMode]corev1.PersistentVolumeAccessMode{
	longhorn.AccessModeReadWriteOnce:    corev1.ReadWriteOnce,
	longhorn.AccessModeReadWriteOncePod: corev1.ReadWriteOncePod,
	longhorn.AccessModeReadWriteMany:    corev1.ReadWriteMany,
}

// CreatePersistentVolume creates a PersistentVolume for a volume. The PersistentVolume is retained when its claim is
// deleted, because the volume was not created for the claim. CreatePersistentVolume fails with *Invalid if a field
// breaks a rule. It fails with ErrConflict if the volume has a PersistentVolume or is being deleted, or if the name is
// in use.
func (m *Manager) CreatePersistentVolume(ctx context.Context, volume string, req PersistentVolumeRequest) (VolumeView, error) {
	v, err := byName(ctx, m.deps.Volumes, volume)
	switch {
	case err != nil:
		return VolumeView{}, storeError("volume", volume, err)
	case v.DeletionTimestamp != nil:
		return VolumeView{}, conflict("volume %q is being deleted", volume)
	}
	if err := req.complete(volume, m.settings().Text(settings.DefaultStaticStorageClass)); err != nil {
		return VolumeView{}, err
	}
	switch has, err := m.persistentVolume(volume); {
	case err != nil:
		return VolumeView{}, err
	case has != nil:
		return VolumeView{}, conflict("volume %q already has the PersistentVolume %q", volume, has.Name)
	}
	if err := m.deps.Claims.CreatePersistentVolume(ctx, persistentVolumeOf(v, req)); err != nil {
		return VolumeView{}, storeError("persistentVolume", req.Name, err)
	}
	m.deps.Log.WithField("volume", volume).WithField("persistentVolume", req.Name).Info("PersistentVolume created on request")
	m.awaitCache(ctx, func() bool {
		has, err := m.persistentVolume(volume)
		return err != nil || has != nil
	})
	return m.view(v, nil)
}

// complete fills in defaults and refuses fields that break a rule.
func (r *PersistentVolumeRequest) complete(volume, class string) error {
	if r.Name == "" {
		r.Name = volume
	}
	if r.FSType == "" {
		r.FSType = types.FSTypeExt4
	}
	if r.StorageClass == "" {
		r.StorageClass = class
	}
	if problems := validation.IsDNS1123Subdomain(r.Name); len(problems) > 0 {
		return &Invalid{Field: "pvName", Value: r.Name, Rule: "is not a valid name: " + strings.Join(problems, "; ")}
	}
	if problems := validation.IsDNS1123Subdomain(r.StorageClass); r.StorageClass != "" && len(problems) > 0 {
		return &Invalid{Field: "storageClassName", Value: r.StorageClass, Rule: "is not a valid name: " + strings.Join(problems, "; ")}
	}
	if r.Secret != "" || r.SecretNamespace != "" {
		return &Invalid{Field: "secretName", Value: r.Secret, Rule: "must be empty, and secretNamespace too: encryption is not offered"}
	}
	filesystem := choice{"fsType", &r.FSType, []string{types.FSTypeExt4, types.FSTypeXFS}, ""}
	return filesystem.check()
}

func persistentVolumeOf(v *Volume, req PersistentVolumeRequest) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: req.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(int64(v.Spec.Size), resource.BinarySI)},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{accessModeOf(v)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              req.StorageClass,
			VolumeMode:                    &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: types.DriverName, VolumeHandle: v.Name, FSType: req.FSType,
				VolumeAttributes: map[string]string{
					"diskSelector":        strings.Join(v.Spec.DiskSelector, ","),
					"nodeSelector":        strings.Join(v.Spec.NodeSelector, ","),
					"numberOfReplicas":    strconv.Itoa(v.Spec.NumberOfReplicas),
					"staleReplicaTimeout": strconv.Itoa(v.Spec.StaleReplicaTimeout),
				},
			}},
		},
	}
}

// accessModeOf returns ReadWriteOnce for a volume of a release that did not record the access mode.
func accessModeOf(v *Volume) corev1.PersistentVolumeAccessMode {
	if mode, ok := modesOfClaims[v.Spec.AccessMode]; ok {
		return mode
	}
	return corev1.ReadWriteOnce
}

// CreateClaim creates a claim that is bound to the volume's PersistentVolume; its default name is the name of the
// volume. The PersistentVolume must not be bound. If its earlier claim released it, it is first reserved for the new
// claim, so that no third claim takes it. A call that was interrupted may be repeated.
//
// It fails with *Invalid if a name breaks a rule. It fails with ErrConflict if the volume has no PersistentVolume, if
// that is bound, or if the claim exists.
func (m *Manager) CreateClaim(ctx context.Context, volume, namespace, name string) (VolumeView, error) {
	v, err := byName(ctx, m.deps.Volumes, volume)
	if err != nil {
		return VolumeView{}, storeError("volume", volume, err)
	}
	if name == "" {
		name = volume
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return VolumeView{}, &Invalid{Field: "namespace", Value: namespace, Rule: "is not a valid name of a namespace: " + strings.Join(problems, "; ")}
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return VolumeView{}, &Invalid{Field: "pvcName", Value: name, Rule: "is not a valid name: " + strings.Join(problems, "; ")}
	}
	err = m.retry(ctx, func() error { return m.createClaim(ctx, volume, namespace, name) })
	if err != nil {
		return VolumeView{}, storeError("persistentVolumeClaim", namespace+"/"+name, err)
	}
	m.deps.Log.WithField("volume", volume).WithField("claim", namespace+"/"+name).Info("claim created on request")
	m.awaitCache(ctx, func() bool {
		bound, err := m.deps.Claims.Claims(volume)
		return err != nil || len(bound) > 0
	})
	return m.view(v, nil)
}

func (m *Manager) createClaim(ctx context.Context, volume, namespace, name string) error {
	cached, err := m.persistentVolume(volume)
	if err != nil {
		return err
	}
	if cached == nil {
		return conflict("volume %q has no PersistentVolume: create one with the action pvCreate first", volume)
	}
	pv, err := m.deps.Claims.PersistentVolume(ctx, cached.Name)
	if err != nil {
		return fmt.Errorf("get PersistentVolume %s: %w", cached.Name, err)
	}
	ref := pv.Spec.ClaimRef
	isReserved := ref != nil && ref.UID == "" && ref.Namespace == namespace && ref.Name == name
	switch phase := pv.Status.Phase; {
	case phase == corev1.VolumeBound || ref != nil && phase != corev1.VolumeReleased && !isReserved:
		return conflict("PersistentVolume %q of volume %q already belongs to claim %s/%s", pv.Name, volume, ref.Namespace, ref.Name)
	case !slices.Contains([]corev1.PersistentVolumePhase{"", corev1.VolumePending, corev1.VolumeAvailable, corev1.VolumeReleased}, phase):
		return conflict("PersistentVolume %q of volume %q is %s: it must be Available or Released", pv.Name, volume, phase)
	}
	switch _, err := m.deps.Claims.Claim(ctx, namespace, name); {
	case err == nil:
		return conflict("claim %s/%s already exists", namespace, name)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for claim %s/%s: %w", namespace, name, err)
	}
	if !isReserved {
		if err := m.deps.Claims.ReservePersistentVolume(ctx, pv, namespace, name); err != nil {
			return err
		}
	}
	return m.deps.Claims.CreateClaim(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      pv.Spec.AccessModes,
			StorageClassName: &pv.Spec.StorageClassName,
			VolumeMode:       pv.Spec.VolumeMode,
			VolumeName:       pv.Name,
			Resources:        corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity.DeepCopy()},
		},
	})
}
