package v1beta2

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEvictionRequestedIsWrittenWhenFalse: clients read the field without looking whether it is there.
func TestEvictionRequestedIsWrittenWhenFalse(t *testing.T) {
	for _, spec := range []any{ReplicaSpec{}, NodeSpec{}, DiskSpec{}} {
		text, err := json.Marshal(spec)
		require.NoError(t, err)
		assert.Contains(t, string(text), `"evictionRequested":false`, "%T", spec)
	}
}
