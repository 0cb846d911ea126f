package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

func TestCapacityIsAnswered(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.RunningInstanceManager("node-1", "10.0.0.1", "im-1"))
	w := do(t, b.server, "GET", "/v1/storagecapacities?numberOfReplicas=1&node=node-1&dataLocality=strict-local", "")
	require.Equal(t, 200, w.Code, w.Body)
	got := decoded[v1.StorageCapacity](t, w)
	assert.Equal(t, "storageCapacity", got.Type)
	assert.Regexp(t, `/v1/storagecapacities\?dataLocality=strict-local&node=node-1&numberOfReplicas=1$`, got.Links["self"])
	assert.Regexp(t, `^[1-9][0-9]*$`, got.MaximumSize)
	w = do(t, b.server, "GET", "/v1/storagecapacities?node=other", "")
	require.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, "0", decoded[v1.StorageCapacity](t, w).MaximumSize)
	b.ExpectWrites()
}

func TestCapacityRefusesUnknownParameters(t *testing.T) {
	b := newBench(t)
	for query, want := range map[string]string{
		"size=1":               "query",
		"numberOfReplicas=two": "numberOfReplicas",
		"numberOfReplicas=21":  "numberOfReplicas",
		"dataLocality=near":    "dataLocality",
		"diskSelector=a,,b":    "diskSelector",
	} {
		w := do(t, b.server, "GET", "/v1/storagecapacities?"+query, "")
		assert.Equal(t, 422, w.Code, query)
		assert.Contains(t, w.Body.String(), want, query)
	}
}
