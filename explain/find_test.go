package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// manyNames makes a world in which names are used more than once.
func manyNames() *world {
	w := newWorld()
	w.claimed()
	w.Settings = append(w.Settings, build.Setting(settings.DefaultReplicaCount, "3"))
	same, other := &corev1.PersistentVolume{}, &corev1.PersistentVolume{}
	same.Name, same.Spec.CSI = "v", &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "v"}
	other.Name, other.Spec.CSI = "other", &corev1.CSIPersistentVolumeSource{Driver: "other.example", VolumeHandle: "x"}
	w.PersistentVolumes = append(w.PersistentVolumes, same, other)
	for namespace, name := range map[string]string{"bar": "data", "shop": "n1"} {
		c := &corev1.PersistentVolumeClaim{}
		c.Namespace, c.Name = namespace, name
		w.Claims = append(w.Claims, c)
	}
	return w
}

func TestANameIsFound(t *testing.T) {
	w := manyNames()
	for _, tc := range []struct {
		about, namespace, name string
		want                   []string
	}{
		{"a volume, with its PersistentVolume of the same name", "", "v", []string{"volume v"}},
		{"an engine → its volume", "", "v-e-0", []string{"volume v"}},
		{"a replica → its volume", "", "v-r-2", []string{"volume v"}},
		{"a PersistentVolume of another name", "", "pv-1", []string{"pv pv-1"}},
		{"a PersistentVolume of another driver", "", "other", nil},
		{"a node and a claim", "", "n1", []string{"node n1", "claim shop/n1"}},
		{"a node", "", "n2", []string{"node n2"}},
		{"an instance manager → its node", "", types.InstanceManagerName("n2"), []string{"node n2"}},
		{"a disk on each node → once", "", "disk-1", []string{"disk disk-1"}},
		{"a disk of a node", "", "n2/disk-1", []string{"disk disk-1 --node n2"}},
		{"claims of two namespaces", "", "data", []string{"claim bar/data", "claim shop/data"}},
		{"a claim in one namespace", "shop", "data", []string{"claim shop/data"}},
		{"a claim by its whole name", "", "bar/data", []string{"claim bar/data"}},
		{"a claim by its whole name, in another namespace", "shop", "bar/data", nil},
		{"a node, with a namespace", "bar", "n1", []string{"node n1"}},
		{"a pod", "", "db", []string{"pod shop/db"}},
		{"a pod by its whole name", "", "shop/db", []string{"pod shop/db"}},
		{"a setting", "", "default-replica-count", []string{"setting default-replica-count"}},
		{"nothing", "", "x", nil},
		{"no name", "", "", nil},
	} {
		var words []string
		for _, m := range Find(&w.Snapshot, tc.namespace, tc.name) {
			words = append(words, m.Words())
		}
		assert.Equal(t, tc.want, words, tc.about)
	}
}

func TestASimilarNameIsFound(t *testing.T) {
	w := manyNames()
	for _, tc := range []struct{ namespace, name, want string }{
		{"", "dtaa", "explain claim bar/data, or: explain claim shop/data"},
		{"shop", "dtaa", "explain claim shop/data"},
		{"", "default-replica-cuont", "explain setting default-replica-count"},
		{"", "shop/bd", "explain pod shop/db"},
		{"", "shop/dat", "explain claim shop/data"},
		{"", "frobnicate", ""},
		{"", "", ""},
	} {
		assert.Equal(t, tc.want, Choices("explain", Similar(&w.Snapshot, tc.namespace, tc.name)), "%q in %q", tc.name, tc.namespace)
	}
}

func TestManyObjectsAreNotAllListed(t *testing.T) {
	var many []Match
	for range maxFits + 2 {
		many = append(many, Match{Kind: KindPod, Name: "a/b"})
	}
	assert.True(t, strings.HasSuffix(Choices("explain", many), "explain pod a/b, and 2 more"))
}
