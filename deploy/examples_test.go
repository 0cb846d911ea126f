package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// examples are all objects of the directory examples, decoded strictly.
type examples struct {
	claims   map[string]corev1.PersistentVolumeClaim
	pods     map[string]corev1.PodSpec // by the name of the object; includes the pods of templates
	classes  []storagev1.StorageClass
	nodes    []corev1.Node
	settings []longhorn.Setting
}

func readExamples(t *testing.T) examples {
	t.Helper()
	files, err := filepath.Glob("examples/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 6, "the examples are not found")
	e := examples{claims: map[string]corev1.PersistentVolumeClaim{}, pods: map[string]corev1.PodSpec{}}
	known := []string{
		"PersistentVolumeClaim", "Pod", "Deployment", "StatefulSet", "Service", "StorageClass", "Node", "Setting",
		"ServiceAccount", "Role", "RoleBinding", // app/page reads them
	}
	for _, file := range files {
		docs := documentsOf(t, file)
		require.NotEmpty(t, docs, file)
		for _, doc := range docs {
			var kind struct{ Kind string }
			require.NoError(t, yaml.Unmarshal([]byte(doc), &kind), file)
			require.Contains(t, known, kind.Kind, "%s: no test reads this kind", file)
		}
		for _, c := range decoded[corev1.PersistentVolumeClaim](t, docs, "PersistentVolumeClaim") {
			e.claims[c.Name] = c
		}
		for _, p := range decoded[corev1.Pod](t, docs, "Pod") {
			e.pods[p.Name] = p.Spec
		}
		for _, d := range decoded[appsv1.Deployment](t, docs, "Deployment") {
			assert.Equal(t, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, file)
			e.pods[d.Name] = d.Spec.Template.Spec
		}
		for _, s := range decoded[appsv1.StatefulSet](t, docs, "StatefulSet") {
			assert.Equal(t, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels, file)
			e.pods[s.Name] = s.Spec.Template.Spec
			for _, c := range s.Spec.VolumeClaimTemplates {
				e.claims[c.Name] = c
			}
		}
		decoded[corev1.Service](t, docs, "Service")
		e.classes = append(e.classes, decoded[storagev1.StorageClass](t, docs, "StorageClass")...)
		e.nodes = append(e.nodes, decoded[corev1.Node](t, docs, "Node")...)
		e.settings = append(e.settings, decoded[longhorn.Setting](t, docs, "Setting")...)
	}
	return e
}

// TestPodsOfExamplesUseTheirClaims checks that each claim has a class of the product, and each volume of a pod has a
// claim.
func TestPodsOfExamplesUseTheirClaims(t *testing.T) {
	e := readExamples(t)
	classes := []string{"longhorn"}
	for _, c := range e.classes {
		classes = append(classes, c.Name)
	}
	for name, c := range e.claims {
		if assert.NotNil(t, c.Spec.StorageClassName, name) {
			assert.Contains(t, classes, *c.Spec.StorageClassName, name)
		}
		isBlock := c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock
		assert.False(t, isBlock && slices.Contains(c.Spec.AccessModes, corev1.ReadWriteMany), "%s: a shared volume has a file system", name)
	}
	for name, pod := range e.pods {
		claims := map[string]string{} // the claims by the volume's name in the pod
		for _, v := range pod.Volumes {
			require.NotNil(t, v.PersistentVolumeClaim, "%s: volume %s", name, v.Name)
			claims[v.Name] = v.PersistentVolumeClaim.ClaimName
		}
		for _, c := range pod.Containers {
			assert.NotEmpty(t, len(c.VolumeMounts)+len(c.VolumeDevices), name)
			for _, m := range c.VolumeMounts {
				checkUse(t, e, name, m.Name, claims, corev1.PersistentVolumeFilesystem)
			}
			for _, d := range c.VolumeDevices {
				checkUse(t, e, name, d.Name, claims, corev1.PersistentVolumeBlock)
			}
		}
	}
}

// checkUse checks that a container uses a volume as its claim offers it. A volume of a StatefulSet has no entry in
// claims: it has the name of its template.
func checkUse(t *testing.T, e examples, pod, volume string, claims map[string]string, mode corev1.PersistentVolumeMode) {
	t.Helper()
	name, ok := claims[volume]
	if !ok {
		name = volume
	}
	claim, ok := e.claims[name]
	require.True(t, ok, "%s: volume %s has no claim", pod, volume)
	offered := corev1.PersistentVolumeFilesystem
	if claim.Spec.VolumeMode != nil {
		offered = *claim.Spec.VolumeMode
	}
	assert.Equal(t, offered, mode, "%s: volume %s", pod, volume)
}

// TestClassesOfExamplesAreAccepted checks that the driver accepts each parameter, and acts on it.
func TestClassesOfExamplesAreAccepted(t *testing.T) {
	classes := readExamples(t).classes
	require.NotEmpty(t, classes)
	for _, c := range classes {
		assert.Equal(t, types.DriverName, c.Provisioner, c.Name)
		assert.Empty(t, types.ParametersWithoutEffect(c.Parameters), c.Name)
		for name, value := range c.Parameters {
			_, err := types.CheckClassParameter(name, value)
			assert.NoError(t, err, c.Name)
		}
		_, err := types.ParseMkfsParams(c.Parameters[types.ParameterFSType], c.Parameters[types.ParameterMkfsParams])
		assert.NoError(t, err, c.Name)
	}
}

// TestTheExplainedClassHasAllParameters checks that the example explains each parameter of a StorageClass, some of them
// in comments, and that the driver accepts the values in comments.
func TestTheExplainedClassHasAllParameters(t *testing.T) {
	text, err := os.ReadFile("examples/storageclass.yaml")
	require.NoError(t, err)
	values := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  (?:# )?([a-zA-Z]+): "?([^"\n]+)"?$`).FindAllStringSubmatch(string(text), -1) {
		values[m[1]] = m[2]
	}
	for _, p := range types.ClassParameters {
		if p.Offered && assert.Contains(t, values, p.Name) {
			_, err := types.CheckClassParameter(p.Name, values[p.Name])
			assert.NoError(t, err)
		}
	}
	_, err = mount.ParseNFSOptions(values["nfsOptions"])
	assert.NoError(t, err)
	_, err = types.ParseShareNodeSelector(values[types.ParameterShareNodeSelector])
	assert.NoError(t, err)
	_, err = types.ParseShareTolerations(values[types.ParameterShareTolerations])
	assert.NoError(t, err)
}

// TestNodesOfExamplesGetTheirDisks checks that the manager reads the label and the annotations, and that the setting
// that it needs is on. The package that reads the annotations tests their content.
func TestNodesOfExamplesGetTheirDisks(t *testing.T) {
	e := readExamples(t)
	require.NotEmpty(t, e.nodes)
	for _, n := range e.nodes {
		assert.Equal(t, types.CreateDefaultDiskConfig, n.Labels[types.LabelCreateDefaultDisk], n.Name)
		for _, annotation := range []string{types.AnnotationDefaultDisksConfig, types.AnnotationDefaultNodeTags} {
			assert.True(t, json.Valid([]byte(n.Annotations[annotation])), "%s: %s", n.Name, annotation)
		}
	}
	on := false
	for _, s := range e.settings {
		assert.NoError(t, settings.Check(settings.Name(s.Name), s.Value), s.Name)
		on = on || s.Name == string(settings.CreateDefaultDiskLabeled) && s.Value == "true"
	}
	assert.True(t, on, "the setting that makes the manager read the annotation is off")
}
