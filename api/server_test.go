package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The paths of what the requests below name.
const volumes, node, setting = "/v1/volumes", "/v1/nodes/node-1", "/v1/settings/default-replica-count"

// refusals are requests that must change nothing, and what they are answered.
var refusals = map[string]struct {
	method, path, body string
	status             int
	code, message      string
}{
	"broken JSON → the place": {
		"POST", volumes, "{\"name\": \"vol\",\n  \"size\" \"1\"}", 400, "Bad Request",
		`the body is not JSON: line 2 column 10: invalid character '"' after object key`,
	},
	"JSON cut off → the place": {
		"POST", volumes, `{"name"`, 400, "Bad Request",
		"the body is not JSON: line 1 column 7: unexpected end of JSON input",
	},
	"text after the JSON → refused": {
		"POST", volumes, `{} {}`, 400, "Bad Request",
		"the body is not JSON: line 1 column 4: invalid character '{' after top-level value",
	},
	"a list → refused": {
		"POST", volumes, `[]`, 400, "Bad Request", "the body must be a JSON object, not a JSON array",
	},
	"a text where a number belongs → the field": {
		"POST", volumes, `{"name":"vol","numberOfReplicas":"3"}`, 422, "Unprocessable Entity",
		"numberOfReplicas: must be of type int, not a JSON string (line 1 column 36)",
	},
	"a size that is a list → the field": {
		"POST", volumes, `{"name":"vol","size":[1]}`, 422, "Unprocessable Entity",
		"size: [1] is neither a string nor a number",
	},
	"no body → the first field missing": {
		"POST", volumes, "", 422, "Unprocessable Entity",
		"name: must be a DNS label of at most 40 characters: lower-case letters, digits and '-', with a letter or digit at both ends",
	},
	"a bad size → field, value, rule": {
		"POST", volumes, `{"name":"vol","size":"1 potato"}`, 422, "Unprocessable Entity",
		`size: "1 potato" must be a number of bytes, or a quantity such as 10Gi or 100G`,
	},
	"a shared volume → not offered": {
		"POST", volumes, `{"name":"vol","size":"1Gi","accessMode":"rwx"}`, 422, "Unprocessable Entity",
		`accessMode: "rwx" must be rwo or rwop; shared volumes (rwx) are not offered yet`,
	},
	"an encrypted volume → not made without encryption": {
		"POST", volumes, `{"name":"vol","size":"1Gi","encrypted":true}`, 422, "Unprocessable Entity",
		`encrypted: "true" is not offered yet; leave it out, or give false`,
	},
	"from a backup → not made empty": {
		"POST", volumes, `{"name":"vol","size":"1Gi","fromBackup":"s3://b"}`, 422, "Unprocessable Entity",
		`fromBackup: "\"s3://b\"" is not offered yet; leave it out, or give ""`,
	},
	"an unknown tag → does not exist": {
		"POST", volumes, `{"name":"vol","size":"1Gi","nodeSelector":["gpu"]}`, 422, "Unprocessable Entity",
		`nodeSelector: "gpu" does not exist: no node has this tag`,
	},
	"no room → its own code": {
		"POST", volumes, `{"name":"vol","size":"1Ti"}`, 422, "Insufficient Storage",
		`volume "vol": size 1099511627776 with numberOfReplicas 3 does not fit on the disks: replica scheduling failed: 0 of 3 replicas fit: insufficient storage (3 disks)`,
	},
	"a taken name → conflict": {
		"POST", volumes, `{"name":"there","size":"1Gi"}`, 409, "Conflict", `volume "there" exists already`,
	},
	"a volume that is not there → not found": {
		"GET", volumes + "/nix", "", 404, "Not Found", `volume "nix" does not exist`,
	},
	"its deletion → not found": {
		"DELETE", volumes + "/nix", "", 404, "Not Found", `volume "nix" does not exist`,
	},
	"an unknown action → the known ones": {
		"POST", volumes + "/there?action=explode", "", 422, "Unprocessable Entity",
		`action: "explode" must be one of attach, detach`,
	},
	"attach without a node → the field": {
		"POST", volumes + "/there?action=attach", "", 422, "Unprocessable Entity", "hostId: must name a node",
	},
	"a second attach elsewhere → conflict": {
		"POST", volumes + "/taken?action=attach", `{"hostId":"node-1"}`, 409, "Conflict",
		`hostId: "node-1" cannot be served: volume "taken" is attached to node "node-2", and may be on one node at a time`,
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
		"disks: must be given: a map of all disks of the node by name",
	},
	"a setting without a value → the field": {
		"PUT", setting, `{}`, 422, "Unprocessable Entity", "value: must be given; an empty text means the default",
	},
	"a setting out of bounds → the rule": {
		"PUT", setting, `{"value":"0"}`, 422, "Unprocessable Entity",
		`value: setting default-replica-count: value "0" is less than 1`,
	},
	"an unknown setting → not found": {
		"PUT", "/v1/settings/nix", `{"value":"0"}`, 404, "Not Found", `setting "nix" does not exist`,
	},
	"a method that a list lacks → the ones it has": {
		"DELETE", volumes, "", 405, "Method Not Allowed", "method DELETE is not allowed here; allowed: GET, POST",
	},
	"a method that a resource lacks → the ones it has": {
		"PUT", volumes + "/there", "", 405, "Method Not Allowed", "method PUT is not allowed here; allowed: GET, DELETE, POST",
	},
	"an action on what has none → the methods it has": {
		"POST", setting + "?action=attach", "", 405, "Method Not Allowed", "method POST is not allowed here; allowed: GET, PUT",
	},
	"nothing there → not found": {
		"GET", "/v1/backups", "", 404, "Not Found", "there is nothing at /v1/backups",
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
			if w.Code != c.status || e.Status != c.status || e.Code != c.code || e.Message != c.message {
				t.Errorf("%d (%d) %q\n got %s\nwant %d %q\n     %s", w.Code, e.Status, e.Code, e.Message, c.status, c.code, c.message)
			}
			if e.Type != "error" || e.Links == nil || e.Actions == nil {
				t.Errorf("envelope %+v", e.Resource)
			}
			b.ExpectWrites()
		})
	}
}

func TestAFailureBehindTheScenesIsNotShown(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	b.Fail("get", "volumes", errBehindTheScenes)
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "")
	if e := decoded[v1.Error](t, w); w.Code != 500 || e.Message != "the manager could not answer; its log says why" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestALostRaceIsAConflict(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.Fail("create", "volumes", apierrors.NewConflict(longhorn.Resource("volumes"), "vol", errors.New("newer")))
	w := do(t, b.server, "POST", "/v1/volumes", `{"name":"vol","size":"1Gi"}`)
	if e := decoded[v1.Error](t, w); w.Code != 409 || e.Message != `volume "vol" is being changed by others; try again` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestInsufficientStorageNamesEachDisk(t *testing.T) {
	w := do(t, newBench(t, threeNodes()...).server, "POST", "/v1/volumes", `{"name":"vol","size":"1Ti"}`)
	if e := decoded[v1.Error](t, w); strings.Count(e.Detail, "disk disk-1: insufficient storage") != 3 {
		t.Errorf("detail %q", e.Detail)
	}
}

func TestCreatingAVolumeAnswersWithIt(t *testing.T) {
	b := newBench(t, threeNodes()...)
	w := do(t, b.server, "POST", "/v1/volumes", `{"name":"vol","size":1073741824,"replicaZoneSoftAntiAffinity":"ignored","encrypted":false,"color":"red"}`)
	if w.Code != http.StatusCreated {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	b.ExpectWrites("create volumes/vol")
	v := decoded[v1.Volume](t, w)
	if v.ID != "vol" || v.Type != "volume" || v.Size != "1073741824" || v.NumberOfReplicas != 3 || v.StaleReplicaTimeout != 2880 {
		t.Errorf("volume %+v", v)
	}
	if v.Links["self"] != "http://example.com/v1/volumes/vol" || v.Actions["attach"] != "http://example.com/v1/volumes/vol?action=attach" || len(v.Actions) != 2 {
		t.Errorf("links %v actions %v", v.Links, v.Actions)
	}
	if v.Created != "2030-01-02 03:04:05 +0000 UTC" {
		t.Errorf("created %q", v.Created)
	}
	for _, empty := range []string{`"replicas":[]`, `"controllers":[]`, `"conditions":{}`, `"diskSelector":[]`, `"attachments":{}`} {
		if !strings.Contains(w.Body.String(), empty) {
			t.Errorf("no %s in %s", empty, w.Body)
		}
	}
}

func TestDeletingAnswersWithNothing(t *testing.T) {
	b := newBench(t, detached("vol"))
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "")
	if w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	b.ExpectWrites("delete volumes/vol")
}

func TestANodeIsDeletedOnlyWithoutItsKubernetesNode(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.KubeNode("node-1"), build.ReadyNode("node-2", "uuid-2"))
	if w := do(t, b.server, "DELETE", "/v1/nodes/node-1", ""); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "while its Kubernetes node is there") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	b.ExpectWrites()
	if w := do(t, b.server, "DELETE", "/v1/nodes/node-2", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	b.ExpectWrites("delete nodes/node-2")
}

func TestUpdatesReachTheObjects(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(types.SettingDefaultReplicaCount, "3"))...)
	w := do(t, b.server, "PUT", "/v1/nodes/node-1", `{"allowScheduling":false,"tags":["b","a"],"name":"ignored"}`)
	if n := decoded[v1.Node](t, w); w.Code != 200 || n.AllowScheduling || strings.Join(n.Tags, ",") != "a,b" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = do(t, b.server, "POST", "/v1/nodes/node-1?action=diskUpdate",
		`{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":false,"storageReserved":5,"tags":["ssd"],"storageMaximum":1},"disk-2":{"path":"/mnt/2"}}}`)
	n := decoded[v1.Node](t, w)
	if d := n.Disks["disk-1"]; w.Code != 200 || len(n.Disks) != 2 || d.AllowScheduling || d.StorageReserved != 5 || d.StorageMaximum != 100*build.GiB || d.DiskUUID != "uuid-1" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = do(t, b.server, "PUT", "/v1/settings/default-replica-count", `{"value":"2"}`)
	if s := decoded[v1.Setting](t, w); w.Code != 200 || s.Value != "2" || s.Definition.Range["maximum"] != 20 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	b.ExpectWrites("update nodes/node-1", "update nodes/node-1", "update settings/default-replica-count")
}

func TestANodeIsShownWithItsDisksAndPod(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.Pod("m", "node-1", func(p *corev1.Pod) {
		p.Labels["app"], p.Status.PodIP = "longhorn-manager", "10.1.2.3"
	}))
	n := decoded[v1.Node](t, do(t, b.server, "GET", "/v1/nodes/node-1", ""))
	if n.Address != "10.1.2.3" || n.Conditions["Ready"].Status != "True" || n.Disks["disk-1"].Conditions["Schedulable"].Status != "True" {
		t.Errorf("node %+v", n)
	}
}

func TestPagesOfOtherSitesMayLookButNotChange(t *testing.T) {
	b := newBench(t, detached("vol"))
	w := do(t, b.server, "DELETE", "/v1/volumes/vol", "", "Origin: http://evil.example")
	if e := decoded[v1.Error](t, w); w.Code != 403 || e.Type != "error" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	b.ExpectWrites()
	if w := do(t, b.server, "DELETE", "/v1/volumes/vol", "", "Origin: http://example.com"); w.Code != 204 {
		t.Errorf("its own page: %d %s", w.Code, w.Body)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	b := newBench(t)
	if w := do(t, b.server, "GET", "/healthz", ""); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
	if w := do(t, b.server, "GET", "/metrics", ""); w.Code != 200 || w.Body.String() != "longhorn_up 1\n" {
		t.Errorf("metrics: %d %s", w.Code, w.Body)
	}
	sick := NewServer(Deps{Healthy: func() error { return errors.New("caches are not filled") }, Log: b.Log})
	if w := do(t, sick, "GET", "/healthz", ""); w.Code != 503 || w.Body.String() != "caches are not filled\n" {
		t.Errorf("sick: %d %s", w.Code, w.Body)
	}
}
