package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

// object is a resource for a client that knows none of our structs.
type object map[string]any

func (o object) text(key string) string { s, _ := o[key].(string); return s }

func (o object) at(key string) object { m, _ := o[key].(map[string]any); return m }

// driven is a client that knows only one URL. It finds collections, methods and actions in the schemas, and URLs in
// links and actions.
type driven struct {
	t       *testing.T
	server  http.Handler
	schemas map[string]object
}

// newDriven finds the schemas as clients do: by the header of the URL that they were configured with.
func newDriven(t *testing.T, server http.Handler, start string) *driven {
	t.Helper()
	c := &driven{t: t, server: server, schemas: map[string]object{}}
	_, header := c.send("GET", start, nil, 200)
	at := header.Get("X-API-Schemas")
	list, header := c.send("GET", at, nil, 200)
	require.Equal(t, at, header.Get("X-API-Schemas"), "the URL asked is that of the schemas")
	for _, s := range items(list) {
		require.Equal(t, "schema", s.text("type"))
		c.schemas[s.text("id")] = s
	}
	return c
}

func items(list object) []object {
	var all []object
	for _, item := range list["data"].([]any) {
		all = append(all, item.(map[string]any))
	}
	return all
}

// send sends no Content-Type, like old clients.
func (c *driven) send(method, at string, body any, want int) (object, http.Header) {
	c.t.Helper()
	u, err := url.Parse(at)
	require.NoError(c.t, err)
	text := ""
	if body != nil {
		data, err := json.Marshal(body)
		require.NoError(c.t, err)
		text = string(data)
	}
	r := httptest.NewRequestWithContext(c.t.Context(), method, u.RequestURI(), strings.NewReader(text))
	r.Host = u.Host
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, r)
	require.Equal(c.t, want, w.Code, "%s %s: %s", method, at, w.Body)
	if w.Body.Len() == 0 {
		return nil, w.Header()
	}
	return decoded[object](c.t, w), w.Header()
}

func (c *driven) may(id, methods, method string) object {
	c.t.Helper()
	s := c.schemas[id]
	require.NotNil(c.t, s, "schema %s", id)
	require.Contains(c.t, s[methods], method, "%s.%s", id, methods)
	return s
}

func (c *driven) list(id string) []object {
	c.t.Helper()
	list, _ := c.send("GET", c.may(id, "collectionMethods", "GET").at("links").text("collection"), nil, 200)
	require.Equal(c.t, id, list.text("resourceType"))
	return items(list)
}

func (c *driven) byID(id, name string) object {
	c.t.Helper()
	o, _ := c.send("GET", c.may(id, "resourceMethods", "GET").at("links").text("collection")+"/"+name, nil, 200)
	return o
}

// create sends only fields that clients may set according to the schema.
func (c *driven) create(id string, fields object) object {
	c.t.Helper()
	s := c.may(id, "collectionMethods", "POST")
	for name := range fields {
		require.Equal(c.t, true, s.at("resourceFields").at(name)["create"], "%s.%s may be given", id, name)
	}
	o, _ := c.send("POST", s.at("links").text("collection"), fields, 201)
	return o
}

// update sends the whole resource back with the changes, as clients do.
func (c *driven) update(o, changes object) object {
	c.t.Helper()
	c.may(o.text("type"), "resourceMethods", "PUT")
	body := object{}
	for _, from := range []object{o, changes} {
		for k, v := range from {
			body[k] = v
		}
	}
	updated, _ := c.send("PUT", o.at("links").text("self"), body, 200)
	return updated
}

// do calls an action with an input that has the fields of its schema, and returns the output, which must have the type
// in the schema.
func (c *driven) do(o object, action string, input object) object {
	c.t.Helper()
	at := o.at("actions").text(action)
	require.NotEmpty(c.t, at, "%s shows the action %s", o.text("id"), action)
	described := c.schemas[o.text("type")].at("resourceActions").at(action)
	fields := c.schemas[described.text("input")].at("resourceFields")
	for name := range input {
		require.Contains(c.t, fields, name, "input of %s", action)
	}
	result, _ := c.send("POST", at, input, 200)
	require.Equal(c.t, described.text("output"), result.text("type"), "output of %s", action)
	return result
}

func (c *driven) remove(o object) {
	c.t.Helper()
	c.may(o.text("type"), "resourceMethods", "DELETE")
	c.send("DELETE", o.at("links").text("self"), nil, 204)
}

// TestASchemaDrivenClientNeedsOnlyTheSchemas creates, uses and deletes a volume, adds and removes a disk of a node, and
// changes settings. It uses only the schemas.
func TestASchemaDrivenClientNeedsOnlyTheSchemas(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.KubeNode("node-1"))...)
	c := newDriven(t, b.server, "http://longhorn.example:9500/v1")
	t.Run("every collection can be listed, and every resource got by its link", func(t *testing.T) {
		c.t = t
		for id, s := range c.schemas {
			if !slices.Contains(s["collectionMethods"].([]any), any("GET")) {
				continue
			}
			for _, o := range c.list(id) {
				self, _ := c.send("GET", o.at("links").text("self"), nil, 200)
				assert.Equal(t, o.text("id"), self.text("id"))
				assert.True(t, strings.HasPrefix(o.at("links").text("self"), "http://longhorn.example:9500/v1"), o["links"])
			}
		}
	})
	t.Run("settings", func(t *testing.T) {
		c.t = t
		s := c.update(c.byID("setting", "default-replica-count"), object{"value": "2"})
		assert.Equal(t, `{"v1":"2","v2":"2"}`, s.text("value"))
		b.CatchUp()
		assert.Equal(t, s, c.update(c.byID("setting", "default-replica-count"), object{}), "as it was read")
	})
	t.Run("a node and its disks", func(t *testing.T) {
		c.t = t
		n := c.update(c.byID("node", "node-1"), object{"tags": []string{"fast"}})
		assert.Equal(t, []any{"fast"}, n["tags"])
		disks := n.at("disks")
		disks["more"] = object{"path": "/mnt/more", "allowScheduling": false, "storageReserved": 7}
		n = c.do(n, "diskUpdate", object{"disks": disks})
		assert.Equal(t, "/mnt/more", n.at("disks").at("more").text("path"))
		disks = n.at("disks")
		delete(disks, "more")
		n = c.do(n, "diskUpdate", object{"disks": disks})
		assert.Len(t, n["disks"], 1)
		b.CatchUp()
	})
	t.Run("the life of a volume", func(t *testing.T) {
		c.t = t
		v := c.create("volume", object{"name": "vol", "size": "1073741824", "nodeSelector": []string{"fast"}})
		assert.InDelta(t, 2, v["numberOfReplicas"], 0, "as the setting says")
		b.isPlaced(t, "vol")
		b.CatchUp()
		v = c.byID("volume", "vol")
		assert.Equal(t, "detached", v.text("state"))
		for action, input := range map[string]object{
			"updateReplicaCount":                {"replicaCount": 3},
			"updateDataLocality":                {"dataLocality": "best-effort"},
			"updateAccessMode":                  {"accessMode": "rwx"},
			"updateReplicaAutoBalance":          {"replicaAutoBalance": "disabled"},
			"updateReplicaSoftAntiAffinity":     {"replicaSoftAntiAffinity": "enabled"},
			"updateReplicaZoneSoftAntiAffinity": {"replicaZoneSoftAntiAffinity": "disabled"},
			"updateReplicaDiskSoftAntiAffinity": {"replicaDiskSoftAntiAffinity": "enabled"},
			"updateNodeSelector":                {"nodeSelector": []any{}},
			"updateDiskSelector":                {"diskSelector": []any{}},
		} {
			for key, value := range c.do(v, action, input) {
				if want, ok := input[key]; ok {
					assert.Equal(t, want, value, action)
				}
			}
		}
		c.do(v, "pvCreate", object{"fsType": "xfs"})
		pv, err := b.Kube.CoreV1().PersistentVolumes().Get(t.Context(), "vol", metav1.GetOptions{})
		require.NoError(t, err)
		pv.Status.Phase = corev1.VolumeAvailable
		b.Overwrite(pv)
		require.NoError(t, b.workloads.Replace([]*corev1.PersistentVolume{pv}))
		assert.Equal(t, "Available", c.byID("volume", "vol").at("kubernetesStatus").text("pvStatus"))
		c.do(v, "pvcCreate", object{"namespace": "default", "pvcName": "data"})
		_, err = b.Kube.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		require.NoError(t, err)
		v = c.do(v, "attach", object{"hostId": "node-1"})
		assert.Len(t, v.at("volumeAttachment")["attachments"], 1)
		v = c.do(v, "detach", object{})
		assert.Empty(t, v.at("volumeAttachment")["attachments"])
		c.remove(v)
		b.CatchUp()
		assert.Equal(t, "volume is being deleted", c.byID("volume", "vol").text("notReadyMessage"))
	})
}

// TestEveryRouteRefusesABrokenBodyAndWhatIsMissing: no route of a resource accepts a body that is not JSON, or finds an
// object that does not exist.
func TestEveryRouteRefusesABrokenBodyAndWhatIsMissing(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	for _, route := range b.server.Routes() {
		path := strings.ReplaceAll(route.Path, "{id}", "nix")
		if route.Action != "" {
			path += "?action=" + route.Action
		}
		if route.Method == http.MethodPost || route.Method == http.MethodPut {
			w := do(t, b.server, route.Method, path, `{"name"`)
			assert.Equal(t, 400, w.Code, "%s %s with a broken body: %s", route.Method, path, w.Body)
		}
		if strings.Contains(route.Path, "{id}") && (route.Method == http.MethodGet || route.Method == http.MethodDelete) {
			w := do(t, b.server, route.Method, path, "")
			assert.Equal(t, 404, w.Code, "%s %s: %s", route.Method, path, w.Body)
		}
	}
	for _, request := range []string{
		`attach {"hostId":"node-1"}`, `detach {}`, `salvage {"names":["r"]}`, `expand {"size":"2Gi"}`, `cancelExpansion {}`, `trimFilesystem {}`,
		`updateReplicaCount {"replicaCount":2}`, `updateDataLocality {"dataLocality":"disabled"}`, `updateAccessMode {"accessMode":"rwo"}`,
		`updateReplicaSoftAntiAffinity {"replicaSoftAntiAffinity":"ignored"}`, `updateReplicaZoneSoftAntiAffinity {"replicaZoneSoftAntiAffinity":"ignored"}`,
		`updateReplicaDiskSoftAntiAffinity {"replicaDiskSoftAntiAffinity":"ignored"}`, `updateReplicaAutoBalance {"replicaAutoBalance":"ignored"}`,
		`updateNodeSelector {"nodeSelector":[]}`, `updateDiskSelector {"diskSelector":[]}`, `replicaRemove {"name":"r"}`,
	} {
		action, body, _ := strings.Cut(request, " ")
		w := do(t, b.server, "POST", "/v1/volumes/nix?action="+action, body)
		assert.Equal(t, 404, w.Code, "%s: %s", request, w.Body)
	}
	assert.Equal(t, 404, do(t, b.server, "POST", "/v1/nodes/nix?action=diskUpdate", `{"disks":{}}`).Code)
	b.ExpectWrites()
}

// FuzzRouter: the server answers every request with JSON that has its status, or with an empty body, and never with an
// internal error.
func FuzzRouter(f *testing.F) {
	for _, c := range refusals {
		if len(c.body) < 1000 {
			f.Add(c.method, c.path, c.body)
		}
	}
	f.Add("POST", "/v1/volumes", `{"name":"a","size":"1Gi"}`)
	f.Add("PUT", "/v1/nodes/node-1", `{"tags":["a"]}`)
	f.Add("POST", "/v1/volumes/vol?action=pvcCreate", `{"namespace":"a"}`)
	f.Add("GET", "/v1/schemas/volume?action=%zz", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" || u.Scheme != "" {
			t.Skip("no path that a server gets")
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://example.com/", strings.NewReader(body))
		if err != nil {
			t.Skip("no method that a server gets")
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
		b := newBench(t, append(threeNodes(), detached("vol"))...)
		w := httptest.NewRecorder()
		b.server.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s %s: no JSON: %s", method, path, body, w.Body)
		}
	})
}
