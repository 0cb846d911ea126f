package v1beta2

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEvictionRequestedIsWrittenWhenFalse checks that evictionRequested is written also when it is false. Clients read
// the field without checking whether it exists.
func TestEvictionRequestedIsWrittenWhenFalse(t *testing.T) {
	for _, spec := range []any{ReplicaSpec{}, NodeSpec{}, DiskSpec{}} {
		text, err := json.Marshal(spec)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"evictionRequested":false`, "%T", spec)
	}
}
