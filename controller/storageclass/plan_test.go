package storageclass

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// small is a text with only the required fields.
const small = "metadata: {name: longhorn}\nprovisioner: driver.longhorn.io\n"

func TestParse(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing but name and provisioner → accepted", small, ""},
		{"all that stands in a manifest → accepted", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\n" + small + "parameters: {numberOfReplicas: \"2\"}\nreclaimPolicy: Retain\n", ""},
		{"empty → refused", " \n", "it is missing or empty; to stop managing a StorageClass, delete the ConfigMaps longhorn-default-storageclass and longhorn-storageclass"},
		{"another kind → refused", "kind: VolumeSnapshotClass\n" + small, `kind: value "VolumeSnapshotClass" must be StorageClass`},
		{"another version → refused", "apiVersion: storage.k8s.io/v2\n" + small, `apiVersion: value "storage.k8s.io/v2" must be storage.k8s.io/v1`},
		{"no name → refused", "provisioner: driver.longhorn.io\n", `metadata.name: value "" must be set`},
		{"a namespace → refused", "metadata: {name: a, namespace: b}\nprovisioner: driver.longhorn.io\n", `metadata.namespace: value "b" must not be set: a StorageClass has no namespace`},
		{"another driver's → refused", "metadata: {name: a}\nprovisioner: nfs.csi.k8s.io\n", `provisioner: value "nfs.csi.k8s.io" must be driver.longhorn.io`},
		{"an unknown field → refused, with its name", small + "paramters: {a: b}\n", `unknown field "paramters"`},
		{"no YAML → refused", "a: b: c", "it is not the YAML of a StorageClass: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(tc.text)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTheConfigMapOfTheManifestIsRead(t *testing.T) {
	text, err := os.ReadFile("../../deploy/longhorn.yaml")
	require.NoError(t, err)
	docs := slices.DeleteFunc(strings.Split(string(text), "\n---\n"), func(doc string) bool {
		return !strings.Contains(doc, "\nkind: ConfigMap\n") || !strings.Contains(doc, "\n  name: longhorn-default-storageclass\n")
	})
	require.Len(t, docs, 1, "a ConfigMap of this name in the manifests")
	var cm corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(docs[0]), &cm))
	sc, err := parse(cm.Data["storageclass.yaml"])
	require.NoError(t, err)
	assert.Equal(t, "longhorn", sc.Name)
	assert.Equal(t, "3", sc.Parameters["numberOfReplicas"])
}

// class is the StorageClass that results from a text, as on the API server.
func class(t *testing.T, text string, changes ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	t.Helper()
	wanted, err := parse(text)
	require.NoError(t, err)
	sc := plan(text, wanted, nil).Create
	sc.UID, sc.ResourceVersion = "uid-longhorn", "5"
	for _, change := range changes {
		change(sc)
	}
	return sc
}

func TestPlan(t *testing.T) {
	const two = small + "parameters: {numberOfReplicas: \"2\"}\n"
	const isDefault = "storageclass.kubernetes.io/is-default-class"
	const marked = "metadata: {name: longhorn, annotations: {" + isDefault + ": \"true\"}, labels: {team: a}}\nprovisioner: driver.longhorn.io\n"
	annotate := func(sc *storagev1.StorageClass) { sc.Annotations[isDefault] = "true" }
	for _, tc := range []struct {
		name    string
		text    string
		present *storagev1.StorageClass
		want    string // create, update, replace, problem or nothing
	}{
		{"none there → made", small, nil, "create"},
		{"as the text says → nothing", small, class(t, small), "nothing"},
		{"as the text says, and somebody made it the default class → nothing", small, class(t, small, annotate), "nothing"},
		{"of an earlier release, the same but for the record of the text → updated", small, class(t, small, func(sc *storagev1.StorageClass) { sc.Annotations = nil }), "update"},
		{"somebody allowed expansion → brought back", small, class(t, small, func(sc *storagev1.StorageClass) { sc.AllowVolumeExpansion = new(true) }), "update"},
		{"the text has other parameters → made anew", two, class(t, small), "replace"},
		{"the text has another reclaim policy → made anew", small + "reclaimPolicy: Retain\n", class(t, small), "replace"},
		{"the text has another binding mode → made anew", small + "volumeBindingMode: WaitForFirstConsumer\n", class(t, small), "replace"},
		{"somebody's own of that name → left as it is", two, class(t, small, func(sc *storagev1.StorageClass) { delete(sc.Labels, "longhorn.io/installation") }), "problem"},
		{"it is being deleted → waits", two, class(t, small, func(sc *storagev1.StorageClass) { sc.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), "nothing"},
		{"the text makes it the default class → updated", marked, class(t, small), "update"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wanted, err := parse(tc.text)
			require.NoError(t, err)
			p, got := plan(tc.text, wanted, tc.present), "nothing"
			switch {
			case p.Create != nil:
				got = "create"
			case p.Update != nil:
				got = "update"
			case p.Replace != nil:
				got = "replace"
			case p.Problem != "":
				got = "problem"
			}
			assert.Equal(t, tc.want, got)
		})
	}

	t.Run("what others put on it stays, in an update and when it is made anew", func(t *testing.T) {
		wanted, err := parse(two)
		require.NoError(t, err)
		p := plan(two, wanted, class(t, small, annotate))
		assert.Equal(t, map[string]string{isDefault: "true", "longhorn.io/last-applied-configmap": two}, p.Replace.Annotations)
		assert.Empty(t, p.Replace.UID)
		assert.Empty(t, p.Replace.ResourceVersion)
		assert.Equal(t, "2", p.Replace.Parameters["numberOfReplicas"])
	})
	t.Run("what the former text put on it goes with that text", func(t *testing.T) {
		wanted, err := parse(small)
		require.NoError(t, err)
		p := plan(small, wanted, class(t, marked, func(sc *storagev1.StorageClass) { sc.Labels["mine"] = "1" }))
		assert.Equal(t, map[string]string{"longhorn.io/last-applied-configmap": small}, p.Update.Annotations)
		assert.Equal(t, map[string]string{"longhorn.io/installation": "lep", "mine": "1"}, p.Update.Labels)
		assert.Equal(t, "5", p.Update.ResourceVersion, "a later version is a conflict")
	})
}
