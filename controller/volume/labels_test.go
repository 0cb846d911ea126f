package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

func TestChildrenOnANodeWithALongNameHaveValidLabels(t *testing.T) {
	node := strings.Repeat("n", 63) + ".example.com"
	v := build.Volume("vol")
	r := newReplica(v, ReplicaNames{"vol-r-1", "dir"}, scheduler.Placement{Node: node, DiskUUID: "u", DiskPath: "/d"})
	e := newEngine(v)
	setEngineNode(e, node)
	assert.Equal(t, node, r.Spec.NodeID)
	assert.Equal(t, node, e.Spec.NodeID)
	for _, labels := range []map[string]string{r.Labels, e.Labels} {
		assert.NotEmpty(t, labels["longhornnode"])
		for key, value := range labels {
			assert.Empty(t, validation.IsValidLabelValue(value), key)
		}
	}
}
