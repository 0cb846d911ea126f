package volume

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

func TestChildrenOnANodeWithALongNameHaveValidLabels(t *testing.T) {
	node := strings.Repeat("n", 63) + ".example.com"
	v := build.Volume("vol")
	r := children.NewReplica(v, children.ReplicaNames{Replica: "vol-r-1", Directory: "dir"}, scheduler.Placement{Node: node, DiskUUID: "u", DiskPath: "/d"})
	e := children.NewEngine(v)
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
