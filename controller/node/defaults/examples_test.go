package defaults

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTheExampleIsAccepted: the annotations of the node in deploy/examples give it disks and tags.
func TestTheExampleIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/examples/node-with-disks.yaml")
	require.NoError(t, err)
	found := 0
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if !strings.Contains(doc, "\nkind: Node\n") {
			continue
		}
		found++
		var node corev1.Node
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &node))
		disks, err := ParseDisks(node.Annotations[types.AnnotationDefaultDisksConfig])
		require.NoError(t, err)
		there := map[string]Found{}
		for i, d := range disks {
			there[d.Path] = Found{Exists: true, Filesystem: uint64(i + 1), FSID: d.Path, MaximumBytes: 100 * gib}
		}
		specs, err := Check(disks, there, 30)
		require.NoError(t, err)
		assert.Len(t, specs, 2)
		tags, err := ParseTags(node.Annotations[types.AnnotationDefaultNodeTags])
		require.NoError(t, err)
		assert.NotEmpty(t, tags)
	}
	assert.Equal(t, 1, found, "the example has no node")
}
