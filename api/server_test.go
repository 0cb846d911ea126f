package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// The paths of the objects in the requests below.
const volumes, node, setting = "/v1/volumes", "/v1/nodes/node-1", "/v1/settings/default-replica-count"

// refusals are requests that must change nothing, with the expected answers.
var refusals = map[string]struct {
	method, path, body string
	status             int
	code, message      string
}{
	"broken JSON → the place": {
		"POST", volumes, "{\"name\": \"vol\",\n  \"size\" \"1\"}", 400, "Bad Request",
		`the body is not valid JSON: line 2 column 10: invalid character '"' after object key`,
	},
	"JSON cut off → the place": {
		"POST", volumes, `{"name"`, 400, "Bad Request",
		"the body is not valid JSON: line 1 column 7: unexpected end of JSON input",
	},
	"text after the JSON → refused": {
		"POST", volumes, `{} {}`, 400, "Bad Request",
		"the body is not valid JSON: line 1 column 4: invalid character '{' after top-level value",
	},
	"a list → refused": {
		"POST", volumes, `[]`, 400, "Bad Request", "the body must be a JSON object, not a JSON array",
	},
	"a text where a number belongs → the field": {
		"POST", volumes, `{"name":"vol","numberOfReplicas":"3"}`, 422, "Unprocessable Entity",
		"numberOfReplicas: must be of type int, not a JSON string (line 1 column 36)",
	},
	"a number where an option belongs → the field": {
		"POST", volumes, `{"name":"vol","replicaAutoBalance":7}`, 422, "Unprocessable Entity",
		"replicaAutoBalance: must be of type string, not a JSON number (line 1 column 36)",
	},
	"a size that is a list → the field": {
		"POST", volumes, `{"name":"vol","size":[1]}`, 422, "Unprocessable Entity",
		"size: [1] is not a string or a number",
	},
	"no body → the first field missing": {
		"POST", volumes, "", 422, "Unprocessable Entity",
		"name: must be a DNS label of at most 40 characters: lower-case letters, digits and '-', with a letter or digit at both ends",
	},
	"a bad size → field, value, rule": {
		"POST", volumes, `{"name":"vol","size":"1 potato"}`, 422, "Unprocessable Entity",
		`size: "1 potato" must be a number of bytes, or a quantity such as 10Gi or 100G`,
	},
	"a shared volume whose data stays on one node → refused": {
		"POST", volumes, `{"name":"vol","size":"1Gi","accessMode":"rwx","dataLocality":"strict-local","numberOfReplicas":1}`, 422, "Unprocessable Entity",
		`accessMode: "rwx" must not be rwx with dataLocality strict-local: a shared volume is used on many nodes`,
	},
	"an encrypted volume → not made without encryption": {
		"POST", volumes, `{"name":"vol","size":"1Gi","encrypted":true}`, 422, "Unprocessable Entity",
		`encrypted: "true" is not offered; leave it out, or set it to false`,
	},
	"an encrypted volume in other letters → not made without encryption": {
		"POST", volumes, `{"name":"vol","size":"1Gi","Encrypted":true}`, 422, "Unprocessable Entity",
		`encrypted: "true" is not offered; leave it out, or set it to false`,
	},
	"from a backup → not made empty": {
		"POST", volumes, `{"name":"vol","size":"1Gi","fromBackup":"s3://b"}`, 422, "Unprocessable Entity",
		`fromBackup: "s3://b" is not offered; leave it out`,
	},
	"an unknown tag → does not exist": {
		"POST", volumes, `{"name":"vol","size":"1Gi","nodeSelector":["gpu"]}`, 422, "Unprocessable Entity",
		`nodeSelector: "gpu" does not exist: no node has this tag`,
	},
	"no room → its own code": {
		"POST", volumes, `{"name":"vol","size":"1Ti","mustFit":true}`, 422, "Insufficient Storage",
		`volume "vol": size 1 TiB with numberOfReplicas 3 does not fit on the disks: replica scheduling failed: 0 of 3 replicas fit: insufficient storage (3 disks)`,
	},
	"a taken name → conflict": {
		"POST", volumes, `{"name":"there","size":"1Gi"}`, 409, "Conflict", `volume "there" already exists`,
	},
	"a volume that is not there → not found": {
		"GET", volumes + "/nix", "", 404, "Not Found", `volume "nix" does not exist`,
	},
	"its deletion → not found": {
		"DELETE", volumes + "/nix", "", 404, "Not Found", `volume "nix" does not exist`,
	},
	"an unknown action → the known ones": {
		"POST", volumes + "/there?action=explode", "", 422, "Unprocessable Entity",
		`action: "explode" must be one of attach, detach, salvage, expand, cancelExpansion, trimFilesystem, updateReplicaCount, updateDataLocality, updateAccessMode, updateReplicaSoftAntiAffinity, updateReplicaZoneSoftAntiAffinity, updateReplicaDiskSoftAntiAffinity, updateReplicaAutoBalance, updateNodeSelector, updateDiskSelector, pvCreate, pvcCreate, replicaRemove, snapshotCRCreate, snapshotCRList, snapshotCRGet, snapshotCRDelete, snapshotCreate, snapshotList, snapshotGet, snapshotDelete, snapshotRevert, snapshotPurge`,
	},
	"attach without a node → the field": {
		"POST", volumes + "/there?action=attach", "", 422, "Unprocessable Entity", "hostId: must name a node",
	},
	"attach with a key that it has not → the key": {
		"POST", volumes + "/there?action=attach", `{"hostId":"node-1","hostID2":"node-2"}`, 422, "Unprocessable Entity",
		"hostID2: is not a field of this action; the fields that can be set are hostId, disableFrontend, attachedBy, attacherType, attachmentID",
	},
	"detach with a slip of the pen → the key, and nothing is detached": {
		"POST", volumes + "/there?action=detach", `{"attachmentId ":"csi-1"}`, 422, "Unprocessable Entity",
		"attachmentId : is not a field of this action; the fields that can be set are attachmentID, hostId, forceDetach",
	},
	"another action's key → the key": {
		"POST", volumes + "/there?action=updateReplicaCount", `{"replicaCount":2,"numberOfReplicas":3}`, 422, "Unprocessable Entity",
		"numberOfReplicas: is not a field of this action; the fields that can be set are replicaCount",
	},
	"diskUpdate with a key that it has not → the key": {
		"POST", node + "?action=diskUpdate", `{"disks":{},"disk":{}}`, 422, "Unprocessable Entity", "disk: is not a field of this action; the fields that can be set are disks",
	},
	"a known key in other letters, and an envelope → accepted, as far as the value goes": {
		"POST", volumes + "/there?action=updateReplicaCount", `{"ReplicaCount":0,"type":"x","links":{},"actions":{},"id":""}`, 422, "Unprocessable Entity",
		`replicaCount: "0" must be 1 to 20`,
	},
	"a name with a slash → not found": {
		"POST", volumes + "/a%2fb?action=detach", "", 404, "Not Found", `volume "a/b" does not exist`,
	},
	"no number of replicas → the field": {
		"POST", volumes + "/there?action=updateReplicaCount", `null`, 422, "Unprocessable Entity", `replicaCount: "0" must be 1 to 20`,
	},
	"replicas as a text → the field": {
		"POST", volumes + "/there?action=updateReplicaCount", `{"replicaCount":"3"}`, 422, "Unprocessable Entity",
		"replicaCount: must be of type int, not a JSON string (line 1 column 19)",
	},
	"half a replica → the field": {
		"POST", volumes + "/there?action=updateReplicaCount", `{"replicaCount":2.5}`, 422, "Unprocessable Entity",
		"replicaCount: must be of type int, not a JSON number 2.5 (line 1 column 19)",
	},
	"more replicas than can be counted → the field": {
		"POST", volumes + "/there?action=updateReplicaCount", `{"replicaCount":99999999999999999999}`, 422, "Unprocessable Entity",
		"replicaCount: must be of type int, not a JSON number 99999999999999999999 (line 1 column 36)",
	},
	"a list for an input → not an object": {
		"POST", volumes + "/there?action=updateDataLocality", `["best-effort"]`, 400, "Bad Request", "the body must be a JSON object, not a JSON array",
	},
	"no locality → the field": {
		"POST", volumes + "/there?action=updateDataLocality", `{"dataLocality":null}`, 422, "Unprocessable Entity", "dataLocality: is required",
	},
	"no anti-affinity → the field": {
		"POST", volumes + "/there?action=updateReplicaSoftAntiAffinity", ``, 422, "Unprocessable Entity", "replicaSoftAntiAffinity: is required",
	},
	"no zone anti-affinity → the field": {
		"POST", volumes + "/there?action=updateReplicaZoneSoftAntiAffinity", `{}`, 422, "Unprocessable Entity", "replicaZoneSoftAntiAffinity: is required",
	},
	"disk anti-affinity of no known word → the field": {
		"POST", volumes + "/there?action=updateReplicaDiskSoftAntiAffinity", `{"replicaDiskSoftAntiAffinity":"soft"}`, 422, "Unprocessable Entity",
		`replicaDiskSoftAntiAffinity: "soft" must be ignored or enabled or disabled`,
	},
	"no balance → the field": {
		"POST", volumes + "/there?action=updateReplicaAutoBalance", `{}`, 422, "Unprocessable Entity", "replicaAutoBalance: is required",
	},
	"no node selector → the field": {
		"POST", volumes + "/there?action=updateNodeSelector", `{}`, 422, "Unprocessable Entity", "nodeSelector: is required; an empty list requests no tag",
	},
	"a disk selector that no disk fulfils → the field": {
		"POST", volumes + "/there?action=updateDiskSelector", `{"diskSelector":["nvme"]}`, 422, "Unprocessable Entity",
		`diskSelector: "nvme" does not exist: no disk has this tag`,
	},
	"removal of no replica → the field": {
		"POST", volumes + "/there?action=replicaRemove", ``, 422, "Unprocessable Entity", `name: is not a replica of volume "there"`,
	},
	"removal of a replica by a path → the field": {
		"POST", volumes + "/there?action=replicaRemove", `{"name":"../volumes/there"}`, 422, "Unprocessable Entity",
		`name: "../volumes/there" is not a replica of volume "there"`,
	},
	"pvCreate with an unknown file system → the field": {
		"POST", volumes + "/there?action=pvCreate", `{"fsType":"btrfs"}`, 422, "Unprocessable Entity", `fsType: "btrfs" must be ext4 or xfs`,
	},
	"pvCreate with a key → not made without encryption": {
		"POST", volumes + "/there?action=pvCreate", `{"secretName":"key","secretNamespace":"ns"}`, 422, "Unprocessable Entity",
		`secretName: "key" must be empty, and secretNamespace too: encryption is not offered`,
	},
	"pvCreate for a volume that is not there → not found": {
		"POST", volumes + "/nix?action=pvCreate", `{}`, 404, "Not Found", `volume "nix" does not exist`,
	},
	"pvcCreate before pvCreate → conflict": {
		"POST", volumes + "/there?action=pvcCreate", `{"namespace":"default"}`, 409, "Conflict",
		`volume "there" has no PersistentVolume: create one with the action pvCreate first`,
	},
	"pvcCreate without a namespace → the field": {
		"POST", volumes + "/there?action=pvcCreate", `{}`, 422, "Unprocessable Entity",
		"namespace: is not a valid name of a namespace: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
	},
	"pvcCreate for a volume that is not there → not found": {
		"POST", volumes + "/nix?action=pvcCreate", `{"namespace":"default"}`, 404, "Not Found", `volume "nix" does not exist`,
	},
	"an action in other letters → unknown": {
		"POST", volumes + "/there?action=replicaremove", `{"name":"r"}`, 422, "Unprocessable Entity",
		`action: "replicaremove" must be one of attach, detach, salvage, expand, cancelExpansion, trimFilesystem, updateReplicaCount, updateDataLocality, updateAccessMode, updateReplicaSoftAntiAffinity, updateReplicaZoneSoftAntiAffinity, updateReplicaDiskSoftAntiAffinity, updateReplicaAutoBalance, updateNodeSelector, updateDiskSelector, pvCreate, pvcCreate, replicaRemove, snapshotCRCreate, snapshotCRList, snapshotCRGet, snapshotCRDelete, snapshotCreate, snapshotList, snapshotGet, snapshotDelete, snapshotRevert, snapshotPurge`,
	},
	"a second attach elsewhere → conflict": {
		"POST", volumes + "/taken?action=attach", `{"hostId":"node-1"}`, 409, "Conflict",
		`hostId: "node-1" is refused: volume "taken" is attached to node "node-2", and a volume can be attached to only one node at a time`,
	},
	"attach of a volume that is not there → not found": {
		"POST", volumes + "/nix?action=attach", `{"hostId":"node-1"}`, 404, "Not Found", `volume "nix" does not exist`,
	},
	"attach to an unknown node → the field": {
		"POST", volumes + "/there?action=attach", `{"hostId":"node-9"}`, 422, "Unprocessable Entity",
		`hostId: "node-9" does not exist: no node has this name`,
	},
	"attach with a wrong type → the field": {
		"POST", volumes + "/there?action=attach", `{"hostId":5}`, 422, "Unprocessable Entity",
		"hostId: must be of type string, not a JSON number (line 1 column 11)",
	},
	"disks as a list → the field": {
		"POST", node + "?action=diskUpdate", `{"disks":[]}`, 422, "Unprocessable Entity",
		"disks: must be of type object (a map by name), not a JSON array (line 1 column 10)",
	},
	"no disks at all → not taken for none": {
		"POST", node + "?action=diskUpdate", `{}`, 422, "Unprocessable Entity",
		"disks: is required: a map of all disks of the node by name",
	},
	"a setting without a value → the field": {
		"PUT", setting, `{}`, 422, "Unprocessable Entity", "value: is required; an empty value means the default",
	},
	"a setting with a list → the field": {
		"PUT", setting, `{"value":["2"]}`, 422, "Unprocessable Entity", `value: ["2"] is not a string, a number, a boolean or an object`,
	},
	"a setting out of bounds → the rule": {
		"PUT", setting, `{"value":"0"}`, 422, "Unprocessable Entity",
		`value: setting default-replica-count with invalid value "0": it should be greater than or equal to 1`,
	},
	"an unknown setting → not found": {
		"PUT", "/v1/settings/nix", `{"value":"0"}`, 404, "Not Found", `setting "nix" does not exist`,
	},
	"a method that a list lacks → the ones it has": {
		"DELETE", volumes, "", 405, "Method Not Allowed", "method DELETE is not allowed for this path; allowed methods: GET, POST",
	},
	"a method that a resource lacks → the ones it has": {
		"PUT", volumes + "/there", "", 405, "Method Not Allowed", "method PUT is not allowed for this path; allowed methods: GET, DELETE, POST",
	},
	"an action on what has none → the methods it has": {
		"POST", setting + "?action=attach", "", 405, "Method Not Allowed", "method POST is not allowed for this path; allowed methods: GET, PUT",
	},
	"nothing there → not found": {
		"GET", "/v1/nix", "", 404, "Not Found", "the API has no path /v1/nix",
	},
	"a body of more than 1 MiB → too large": {
		"POST", volumes, `{"name":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "Request Entity Too Large",
		"the body must be at most 1 MiB long",
	},
}

func TestErrors(t *testing.T) {
	taken := build.Volume("taken", func(v *longhorn.Volume) {
		v.Spec.NodeID = "node-2"
		v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = "attached", "node-2", "healthy"
	})
	b := newBench(t, append(threeNodes(), detached("there"), taken)...)
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			w := do(t, b.server, c.method, c.path, c.body)
			e := decoded[v1.Error](t, w)
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.status, e.Status)
			assert.Equal(t, c.code, e.Code)
			assert.Equal(t, c.message, e.Message)
			assert.Equal(t, "error", e.Type, "envelope %+v", e.Resource)
			assert.NotNil(t, e.Links)
			assert.NotNil(t, e.Actions)
			b.ExpectWrites()
		})
	}
}

func TestInternalErrorsAreNotShown(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	b.Fail("get", "volumes", errBehindTheScenes)
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "")
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 500, w.Code)
	assert.Equal(t, "the request failed; the logs of the longhorn-manager pods contain the cause", e.Message)
	assert.NotContains(t, w.Body.String(), "secret")
}

func TestALostRaceIsAConflict(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.Fail("create", "volumes", apierrors.NewConflict(longhorn.Resource("volumes"), "vol", errors.New("newer")))
	w := do(t, b.server, "POST", "/v1/volumes", `{"name":"vol","size":"1Gi"}`)
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 409, w.Code, w.Body)
	assert.Equal(t, `other clients changed volume "vol" at the same time; try again`, e.Message)
}

func TestInsufficientStorageNamesEachDisk(t *testing.T) {
	w := do(t, newBench(t, threeNodes()...).server, "POST", "/v1/volumes", `{"name":"vol","size":"1Ti","mustFit":true}`)
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 3, strings.Count(e.Detail, "disk disk-1: insufficient storage"), "detail %q", e.Detail)
}

func TestCreatingAVolumeAnswersWithIt(t *testing.T) {
	b := newBench(t, threeNodes()...)
	w := do(t, b.server, "POST", "/v1/volumes", `{"name":"vol","size":1073741824,"replicaZoneSoftAntiAffinity":"ignored","encrypted":false,"snapshotMaxCount":250}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body)
	b.ExpectWrites("create volumes/vol")
	v := decoded[v1.Volume](t, w)
	assert.Equal(t, "vol", v.ID)
	assert.Equal(t, "volume", v.Type)
	assert.Equal(t, "1073741824", v.Size)
	assert.Equal(t, 3, v.NumberOfReplicas)
	assert.Equal(t, 2880, v.StaleReplicaTimeout)
	assert.Equal(t, "http://example.com/v1/volumes/vol", v.Links["self"])
	assert.Equal(t, "http://example.com/v1/volumes/vol?action=attach", v.Actions["attach"])
	assert.Len(t, v.Actions, 18)
	assert.Equal(t, "2030-01-02 03:04:05 +0000 UTC", v.Created)
	for _, empty := range []string{`"replicas":[]`, `"controllers":[]`, `"conditions":{}`, `"diskSelector":[]`, `"attachments":{}`} {
		assert.Contains(t, w.Body.String(), empty)
	}
}

func TestDeletingAnswersWithNothing(t *testing.T) {
	b := newBench(t, detached("vol"))
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "")
	assert.Equal(t, http.StatusNoContent, w.Code, w.Body)
	assert.Zero(t, w.Body.Len())
	b.ExpectWrites("delete volumes/vol")
}

func TestANodeIsDeletedOnlyWithoutItsKubernetesNode(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.KubeNode("node-1"), build.ReadyNode("node-2", "uuid-2"))
	w := do(t, b.server, "DELETE", "/v1/nodes/node-1", "")
	assert.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, w.Body.String(), "while its Kubernetes node exists")
	b.ExpectWrites()
	w = do(t, b.server, "DELETE", "/v1/nodes/node-2", "")
	assert.Equal(t, http.StatusNoContent, w.Code, w.Body)
	assert.Zero(t, w.Body.Len())
	b.ExpectWrites("delete nodes/node-2")
}

func TestUpdatesReachTheObjects(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(settings.DefaultReplicaCount, "3"))...)
	w := do(t, b.server, "PUT", "/v1/nodes/node-1", `{"allowScheduling":false,"tags":["b","a"],"name":"ignored","zone":"ignored"}`)
	n := decoded[v1.Node](t, w)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.False(t, n.AllowScheduling)
	assert.Equal(t, "a,b", strings.Join(n.Tags, ","))
	w = do(t, b.server, "POST", "/v1/nodes/node-1?action=diskUpdate",
		`{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":false,"storageReserved":5,"tags":["ssd"],"storageMaximum":1},"disk-2":{"path":"/mnt/2"}}}`)
	n = decoded[v1.Node](t, w)
	d := n.Disks["disk-1"]
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Len(t, n.Disks, 2)
	assert.False(t, d.AllowScheduling)
	assert.Equal(t, int64(5), d.StorageReserved)
	assert.Equal(t, int64(100*build.GiB), d.StorageMaximum)
	assert.Equal(t, "uuid-1", d.DiskUUID)
	w = do(t, b.server, "PUT", "/v1/settings/default-replica-count", `{"value":"2"}`)
	s := decoded[v1.Setting](t, w)
	assert.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, `{"v1":"2","v2":"2"}`, s.Value)
	assert.Equal(t, int64(20), s.Definition.Range["maximum"])
	b.ExpectWrites("update nodes/node-1", "update nodes/node-1", "update settings/default-replica-count")
}

// TestASettingPerDataEngine: Longhorn's clients write a plain value or JSON with a value for each data engine, and read
// JSON.
func TestASettingPerDataEngine(t *testing.T) {
	cases := map[string]struct{ setting, body, value, inForce string }{
		"a text → for both engines":         {"default-replica-count", `{"value":"2"}`, `{"v1":"2","v2":"2"}`, "2"},
		"a number → its text":               {"default-replica-count", `{"VALUE":2}`, `{"v1":"2","v2":"2"}`, "2"},
		"JSON in a text → as it is":         {"default-replica-count", `{"value":"{\"v1\":\"2\",\"v2\":\"4\"}"}`, `{"v1":"2","v2":"4"}`, "2"},
		"an object → its text":              {"default-replica-count", `{"value": {"v1": "2", "v2": "4"}}`, `{"v1":"2","v2":"4"}`, "2"},
		"a whole resource → its value":      {"default-replica-count", `{"id":"x","type":"setting","value":"2","applied":false,"definition":{"default":"1"}}`, `{"v1":"2","v2":"2"}`, "2"},
		"a part of the CPU, for each one":   {"guaranteed-instance-manager-cpu", `{"value":"{\"v1\":\"2\",\"v2\":\"2\"}"}`, `{"v1":"2","v2":"2"}`, "2"},
		"a broken part of the CPU":          {"guaranteed-instance-manager-cpu", `{"value":2.5}`, `{"v1":"2.5","v2":"2.5"}`, "2.5"},
		"a truth value, not per engine":     {"replica-soft-anti-affinity", `{"value":true}`, "true", "true"},
		"empty → the default, for each one": {"default-replica-count", `{"value":""}`, `{"v1":"3","v2":"3"}`, "3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			w := do(t, b.server, "PUT", "/v1/settings/"+c.setting, c.body)
			require.Equal(t, 200, w.Code, w.Body)
			s := decoded[v1.Setting](t, w)
			assert.Equal(t, c.value, s.Value)
			assert.Equal(t, c.inForce, s.ValueInForce)
			b.ExpectWrites("create settings/" + c.setting)
		})
	}
	s := decoded[v1.Setting](t, do(t, newBench(t).server, "GET", setting, ""))
	assert.True(t, s.Definition.DataEngineSpecific)
	assert.Equal(t, `{"v1":"3","v2":"3"}`, s.Definition.Default)
}

func TestASettingIsShownWithItsDefinition(t *testing.T) {
	b := newBench(t, build.Setting(settings.NodeDrainPolicy, "whatever", func(s *longhorn.Setting) { s.Status.ValueInForce = "always-allow" }))
	s := decoded[v1.Setting](t, do(t, b.server, "GET", "/v1/settings/node-drain-policy", ""))
	want := v1.SettingDefinition{
		DisplayName: "Node Drain Policy",
		Description: "Which replicas block the drain of a node, so that no volume loses its last healthy replica. " +
			"The two policies for eviction also move replicas of attached volumes off a cordoned node: " +
			"block-for-eviction moves all of them, block-for-eviction-if-contains-last-replica the last healthy ones.",
		Category: "general", Type: "string", Required: true, Default: "block-if-contains-last-replica", Effect: s.Definition.Effect,
		Options: []string{
			"block-if-contains-last-replica", "block-for-eviction", "block-for-eviction-if-contains-last-replica",
			"allow-if-replica-is-stopped", "always-allow",
		},
	}
	assert.Equal(t, want, s.Definition)
	assert.NotEmpty(t, s.Definition.Effect)
	assert.Equal(t, "whatever", s.Value)
	assert.Equal(t, "always-allow", s.ValueInForce)
	assert.False(t, s.Applied)
}

func TestANodeIsShownWithItsDisksAndPod(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.Pod("m", "node-1", func(p *corev1.Pod) {
		p.Labels["app"], p.Status.PodIP = "longhorn-manager", "10.1.2.3"
	}))
	n := decoded[v1.Node](t, do(t, b.server, "GET", "/v1/nodes/node-1", ""))
	assert.Equal(t, "10.1.2.3", n.Address)
	assert.Equal(t, "True", n.Conditions["Ready"].Status)
	assert.Equal(t, "True", n.Disks["disk-1"].Conditions["Schedulable"].Status)
}

func TestPagesOfOtherSitesMayLookButNotChange(t *testing.T) {
	b := newBench(t, detached("vol"))
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "", "Origin: http://evil.example")
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 403, w.Code, w.Body)
	assert.Equal(t, "error", e.Type)
	b.ExpectWrites()
	w = do(t, b.server, "DELETE", "/v1/volumes/vol", "", "Origin: http://example.com")
	assert.Equal(t, 204, w.Code, "its own page: %s", w.Body)
}

func TestHealthAndMetrics(t *testing.T) {
	b := newBench(t)
	w := do(t, b.server, "GET", "/healthz", "")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "ok\n", w.Body.String())
	w = do(t, b.server, "GET", "/metrics", "")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "longhorn_up 1\n", w.Body.String())
	sick := NewServer(Deps{Healthy: func() error { return errors.New("caches are not filled") }, Log: b.Log})
	w = do(t, sick, "GET", "/healthz", "")
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "caches are not filled\n", w.Body.String())
}
