package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestAShareManagerShowsItsEndpoint(t *testing.T) {
	idle := &longhorn.ShareManager{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "idle"}}
	served := &longhorn.ShareManager{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol"},
		Spec:       longhorn.ShareManagerSpec{Image: "image:2"},
		Status: longhorn.ShareManagerStatus{
			OwnerID: "node-1", State: longhorn.ShareManagerStateRunning, Endpoint: "nfs://10.0.0.9/vol", CurrentNode: "node-2", CurrentImage: "image:1",
			Conditions: []longhorn.Condition{{Type: "Ready", Status: longhorn.ConditionTrue, Reason: "PodRunning", Message: "the share's pod serves the volume on node node-2"}},
		},
	}
	b := newBench(t, served, idle)
	want := &v1.ShareManager{
		Resource: v1.Resource{
			ID: "vol", Type: "shareManager", Actions: map[string]string{},
			Links: map[string]string{"self": "http://example.com/v1/sharemanagers/vol", "volume": "http://example.com/v1/volumes/vol"},
		},
		Name: "vol", State: "running", Endpoint: "nfs://10.0.0.9/vol", Image: "image:2", CurrentImage: "image:1", NodeID: "node-2",
		Conditions: map[string]v1.Condition{"Ready": {Type: "Ready", Status: "True", Reason: "PodRunning", Message: "the share's pod serves the volume on node node-2"}},
	}
	got := decoded[v1.ShareManager](t, do(t, b.server, "GET", "/v1/sharemanagers/vol", ""))
	assert.Equal(t, want, &got)

	c := decoded[v1.Collection[v1.ShareManager]](t, do(t, b.server, "GET", "/v1/sharemanagers", ""))
	assert.Equal(t, "shareManager", c.ResourceType)
	require.Len(t, c.Data, 2)
	assert.Equal(t, "idle", c.Data[0].ID)
	assert.Equal(t, *want, c.Data[1])

	assert.Equal(t, 404, do(t, b.server, "GET", "/v1/sharemanagers/nix", "").Code)
	for _, method := range []string{"PUT", "DELETE", "POST"} {
		assert.Equal(t, 405, do(t, b.server, method, "/v1/sharemanagers/vol", "{}").Code, "the volume's access mode says whether there is a share: %s", method)
	}
}
