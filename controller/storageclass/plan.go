package storageclass

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// parse reads the text of the ConfigMap. It fills in the same defaults as the API server.
func parse(text string) (*storagev1.StorageClass, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("it is missing or empty; to stop managing a StorageClass, delete the ConfigMaps longhorn-default-storageclass and longhorn-storageclass")
	}
	sc := &storagev1.StorageClass{}
	if err := yaml.UnmarshalStrict([]byte(text), sc); err != nil {
		return nil, fmt.Errorf("it is not the YAML of a StorageClass: %w", err)
	}
	for _, rule := range []struct {
		broken bool
		field  string
		value  string
		must   string
	}{
		{sc.APIVersion != "" && sc.APIVersion != storagev1.SchemeGroupVersion.String(), "apiVersion", sc.APIVersion, "be storage.k8s.io/v1"},
		{sc.Kind != "" && sc.Kind != "StorageClass", "kind", sc.Kind, "be StorageClass"},
		{sc.Name == "", "metadata.name", "", "be set"},
		{sc.Namespace != "", "metadata.namespace", sc.Namespace, "not be set: a StorageClass has no namespace"},
		{sc.Provisioner != types.DriverName, "provisioner", sc.Provisioner, "be " + types.DriverName},
	} {
		if rule.broken {
			return nil, fmt.Errorf("%s: value %q must %s", rule.field, rule.value, rule.must)
		}
	}
	if sc.ReclaimPolicy == nil {
		sc.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
	}
	if sc.VolumeBindingMode == nil {
		sc.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
	}
	return sc, nil
}

// Plan is what to do; at most one of its fields is set.
type Plan struct {
	Create *storagev1.StorageClass
	Update *storagev1.StorageClass
	// Replace is created in place of the present one, which is deleted first.
	Replace *storagev1.StorageClass
	// Problem is the reason why nothing is done.
	Problem string
}

// plan compares the StorageClass that the text describes with the present one, which is nil if there is none.
func plan(text string, wanted, present *storagev1.StorageClass) Plan {
	if present == nil {
		return Plan{Create: described(text, wanted, metav1.ObjectMeta{})}
	}
	if !isOurs(present) {
		return Plan{Problem: fmt.Sprintf(
			"StorageClass %s was not created by this installation (it has no label %s=%s) and is left unchanged; delete it so that the manager creates it from the ConfigMap",
			present.Name, types.InstallationLabel, types.InstallationValue)}
	}
	if present.DeletionTimestamp != nil {
		return Plan{} // its deletion event causes another sync
	}
	next := described(text, wanted, present.ObjectMeta)
	switch {
	case equality.Semantic.DeepEqual(withoutKind(present), next):
		return Plan{}
	case sameForLife(present, next):
		return Plan{Update: next}
	}
	next.ObjectMeta = metav1.ObjectMeta{Name: next.Name, Labels: next.Labels, Annotations: next.Annotations}
	return Plan{Replace: next}
}

// isOurs reports whether the StorageClass belongs to this installation.
func isOurs(sc *storagev1.StorageClass) bool {
	return sc.Labels[types.InstallationLabel] == types.InstallationValue
}

// described is the wanted StorageClass, together with additional metadata of the present one.
func described(text string, wanted *storagev1.StorageClass, present metav1.ObjectMeta) *storagev1.StorageClass {
	sc := withoutKind(wanted)
	meta := *present.DeepCopy()
	meta.Name = wanted.Name
	before := lastApplied(present)
	meta.Labels = merged(meta.Labels, before.Labels, wanted.Labels, map[string]string{types.InstallationLabel: types.InstallationValue})
	meta.Annotations = merged(meta.Annotations, before.Annotations, wanted.Annotations, map[string]string{types.AnnotationLastAppliedConfigMap: text})
	sc.ObjectMeta = meta
	return sc
}

// lastApplied is the metadata in the text from which the present StorageClass was created.
func lastApplied(present metav1.ObjectMeta) metav1.ObjectMeta {
	sc, err := parse(present.Annotations[types.AnnotationLastAppliedConfigMap])
	if err != nil {
		return metav1.ObjectMeta{}
	}
	return sc.ObjectMeta
}

// merged removes the entries of the former text, and adds the wanted entries and ours.
func merged(present, former, wanted, ours map[string]string) map[string]string {
	m := maps.Clone(present)
	if m == nil {
		m = map[string]string{}
	}
	maps.DeleteFunc(m, func(key, _ string) bool { _, ok := former[key]; return ok })
	maps.Copy(m, wanted)
	maps.Copy(m, ours)
	return m
}

// sameForLife compares the fields that the API server does not allow to change.
func sameForLife(a, b *storagev1.StorageClass) bool {
	return a.Provisioner == b.Provisioner && maps.Equal(a.Parameters, b.Parameters) &&
		equality.Semantic.DeepEqual(a.ReclaimPolicy, b.ReclaimPolicy) && equality.Semantic.DeepEqual(a.VolumeBindingMode, b.VolumeBindingMode)
}

func withoutKind(sc *storagev1.StorageClass) *storagev1.StorageClass {
	c := sc.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{}
	return c
}
