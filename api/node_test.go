package api

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// TestChangesOfAVersionOfANode: a client that sends the version that it read changes only this version. Longhorn's
// clients do not send the parameter, although they send back all fields.
func TestChangesOfAVersionOfANode(t *testing.T) {
	b := newBench(t, threeNodes()...)
	read := func() v1.Node { return decoded[v1.Node](t, do(t, b.server, "GET", "/v1/nodes/node-1", "")) }
	first := read()
	body, err := json.Marshal(first)
	require.NoError(t, err)
	disks := `{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":true}}}`
	const put, update = "/v1/nodes/node-1", "/v1/nodes/node-1?action=diskUpdate"
	w := do(t, b.server, "PUT", put+"?ifSpecVersion="+first.SpecVersion, `{"allowScheduling":true,"tags":["new"]}`)
	require.Equal(t, 200, w.Code, w.Body)
	second := decoded[v1.Node](t, w)
	assert.NotEqual(t, first.SpecVersion, second.SpecVersion)
	for _, w := range []*httptest.ResponseRecorder{
		do(t, b.server, "PUT", put+"?ifSpecVersion="+first.SpecVersion, `{"allowScheduling":true}`),
		do(t, b.server, "POST", update+"&ifSpecVersion="+first.SpecVersion, disks),
	} {
		assert.Equal(t, 412, w.Code, w.Body)
		assert.Equal(t, `node "node-1" has changed since the client read it; read it again`, decoded[v1.Error](t, w).Message)
	}
	b.CatchUp()
	assert.Equal(t, second.SpecVersion, read().SpecVersion)
	assert.Equal(t, 200, do(t, b.server, "POST", update+"&ifSpecVersion="+second.SpecVersion, disks).Code)
	assert.Equal(t, 200, do(t, b.server, "PUT", put, string(body)).Code, "a client that sends back what it read")
}
