package api

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestUnknownFieldsAreRefused(t *testing.T) {
	const node, vol = "/v1/nodes/node-1", "/v1/volumes"
	cases := map[string]struct{ method, path, body, want string }{
		"a new volume with a typing error": {"POST", vol, `{"name":"a","size":"1Gi","numberOfReplica":2}`, "numberOfReplica: is not a field of this resource; the fields that can be set are name, size"},
		"a new volume without a size":      {"POST", vol, `{"name":"a","numberOfReplicas":1}`, "size: is required: a number of bytes, or a quantity such as 10Gi or 100G"},
		"a new volume with an empty size":  {"POST", vol, `{"name":"a","size":""}`, "size: is required: a number of bytes, or a quantity such as 10Gi or 100G"},
		"a new volume with a null size":    {"POST", vol, `{"name":"a","size":null}`, "size: is required: a number of bytes, or a quantity such as 10Gi or 100G"},
		"a new volume, rebuilt offline":    {"POST", vol, `{"name":"a","size":"1Gi","offlineRebuilding":"enabled"}`, "offlineRebuilding: "},
		"a new volume with recurring jobs": {"POST", vol, `{"name":"a","size":"1Gi","recurringJobSelector":[{"name":"j"}]}`, "recurringJobSelector: "},
		"a new volume without a frontend":  {"POST", vol, `{"name":"a","size":"1Gi","disableFrontend":true}`, "disableFrontend: "},
		"a node with a typing error":       {"PUT", node, `{"allowSchedulling":true}`, "allowSchedulling: is not a field of this resource; the fields that can be set are allowScheduling, evictionRequested, tags"},
		"a disk with a typing error":       {"POST", node + "?action=diskUpdate", `{"disks":{"d":{"path":"/mnt/d","tag":["ssd"]}}}`, "disks.d.tag: is not a field of a disk; the fields that can be set are path"},
		"a setting with a typing error":    {"PUT", "/v1/settings/default-replica-count", `{"value":"2","values":"3"}`, "values: is not a field of this resource; the fields that can be set are value"},
		"an expansion without a size":      {"POST", vol + "/vol?action=expand", `{}`, "size: is required: a number of bytes, or a quantity such as 10Gi or 100G"},
	}
	for name, c := range cases {
		t.Run(name+" → refused", func(t *testing.T) {
			b := newBench(t, append(threeNodes(), detached("vol"), build.Setting(settings.DefaultReplicaCount, "3"))...)
			w := do(t, b.server, c.method, c.path, c.body)
			assert.Equal(t, 422, w.Code)
			assert.Contains(t, decoded[v1.Error](t, w).Message, c.want)
			b.ExpectWrites()
		})
	}
}

// TestWholeResourcesAreAccepted: Longhorn's clients send back what they read.
func TestWholeResourcesAreAccepted(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"), build.Setting(settings.DefaultReplicaCount, "3"))...)
	for _, path := range []string{"/v1/nodes/node-1", "/v1/settings/default-replica-count"} {
		w := do(t, b.server, "PUT", path, do(t, b.server, "GET", path, "").Body.String())
		assert.Equal(t, 200, w.Code, w.Body)
	}
	node := decoded[map[string]json.RawMessage](t, do(t, b.server, "GET", "/v1/nodes/node-1", ""))
	w := do(t, b.server, "POST", "/v1/nodes/node-1?action=diskUpdate", `{"disks":`+string(node["disks"])+`}`)
	assert.Equal(t, 200, w.Code, w.Body)

	volume := decoded[map[string]any](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
	volume["name"] = "copy"
	text, err := json.Marshal(volume)
	require.NoError(t, err)
	w = do(t, b.server, "POST", "/v1/volumes", string(text))
	assert.Equal(t, 201, w.Code, w.Body)
}

// TestFieldsWithoutEffectAreAccepted sends fields that users of Longhorn set in their manifests and that have
// no effect here.
func TestFieldsWithoutEffectAreAccepted(t *testing.T) {
	b := newBench(t, threeNodes()...)
	w := do(t, b.server, "POST", "/v1/volumes", `{"name":"jellyfin","size":"1073741824","accessMode":"rwo","backingImage":"","backupCompressionMethod":"gzip",
		"dataEngine":"v1","dataLocality":"best-effort","disableFrontend":false,"encrypted":false,"freezeFilesystemForSnapshot":"ignored","fromBackup":"",
		"frontend":"blockdev","migratable":false,"numberOfReplicas":2,"replicaAutoBalance":"ignored","replicaSoftAntiAffinity":"ignored",
		"restoreVolumeRecurringJob":"ignored","revisionCounterDisabled":true,"snapshotDataIntegrity":"ignored","snapshotMaxCount":250,"snapshotMaxSize":"0",
		"staleReplicaTimeout":2880,"unmapMarkSnapChainRemoved":"ignored","standby":false,"recurringJobSelector":[],"engineImage":"","ublkQueueDepth":0}`)
	assert.Equal(t, 201, w.Code, w.Body)
}

// TestFieldsOfUnsupportedFeatures is REST's test of a table: values that request no feature are accepted, and no value
// that requests one is ignored.
func TestFieldsOfUnsupportedFeatures(t *testing.T) {
	text, err := os.ReadFile("testdata/neutral.yaml")
	require.NoError(t, err)
	var fields []struct {
		Field   string
		Nothing []any
		Asks    any
	}
	require.NoError(t, yaml.Unmarshal(text, &fields))
	require.NotEmpty(t, fields)
	create := func(t *testing.T, field string, value any) *httptest.ResponseRecorder {
		t.Helper()
		body, err := json.Marshal(map[string]any{"name": "a", "size": "1Gi", field: value})
		require.NoError(t, err)
		return do(t, newBench(t, threeNodes()...).server, "POST", "/v1/volumes", string(body))
	}
	for _, f := range fields {
		t.Run(f.Field, func(t *testing.T) {
			for _, value := range append(f.Nothing, nil) {
				w := create(t, f.Field, value)
				assert.Equal(t, 201, w.Code, w.Body)
			}
			w := create(t, f.Field, f.Asks)
			assert.Equal(t, 422, w.Code)
			assert.Contains(t, decoded[v1.Error](t, w).Message, fmt.Sprintf("%s: %q is not offered; leave it out", f.Field, fmt.Sprint(f.Asks)))
		})
	}
}
