package types

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNodeLabel(t *testing.T) {
	long := "worker-1.rack-17.row-b.hall-3.building-9.campus-north.example.company.internal"
	assert.Equal(t, "", NodeLabel(""))
	assert.Equal(t, "node-1", NodeLabel("node-1"))
	assert.Equal(t, strings.Repeat("n", 63), NodeLabel(strings.Repeat("n", 63)))
	got := NodeLabel(long)
	assert.Equal(t, got, NodeLabel(long))
	assert.Len(t, got, 63)
	assert.True(t, strings.HasPrefix(got, "worker-1.rack-17.row-b.hall-3."), got)
	assert.NotEqual(t, got, NodeLabel(long+"2"))
	for _, node := range []string{long, strings.Repeat("a", 253), strings.Repeat("a.", 60) + "a", strings.Repeat("a", 51) + "." + strings.Repeat("a", 20)} {
		assert.Empty(t, validation.IsValidLabelValue(NodeLabel(node)), node)
	}
}
