package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// trial has two requests to a route: one that succeeds, and one that is refused because of its input.
type trial struct {
	id      string // of the resource; "": the route is of a collection
	good    string // body
	status  int
	bad     string                  // body; for a route without a body an id
	because string                  // the field that the refusal names
	world   func() []runtime.Object // nil: a detached volume "vol" that can be attached
}

// trials has the routes that change something, by "METHOD path[?action]".
var trials = map[string]trial{
	"POST /v1/volumes":                                        {good: `{"name":"new","size":"1Gi"}`, status: 201, bad: `{"name":"New","size":"1Gi"}`, because: "name"},
	"DELETE /v1/volumes/{id}":                                 {id: "vol", status: 204, bad: "a%2fb"},
	"PUT /v1/nodes/{id}":                                      {id: "node-1", good: `{"allowScheduling":true,"tags":["a"]}`, status: 200, bad: `{"tags":[" "]}`, because: "tags[0]"},
	"DELETE /v1/nodes/{id}":                                   {id: "node-3", status: 204, bad: "a%2fb"},
	"POST /v1/nodes/{id}?diskUpdate":                          {id: "node-1", good: `{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":true}}}`, status: 200, bad: `{"disks":{"disk-1":{"path":"x"}}}`, because: "disks.disk-1.path"},
	"PUT /v1/settings/{id}":                                   {id: "default-replica-count", good: `{"value":"2"}`, status: 200, bad: `{"value":"0"}`, because: "value"},
	"POST /v1/volumes/{id}?attach":                            {id: "vol", good: `{"hostId":"node-1"}`, status: 200, bad: `{"hostId":"nix"}`, because: "hostId"},
	"POST /v1/volumes/{id}?detach":                            {id: "vol", good: `{}`, status: 200, bad: `{"hostID2":"x"}`, because: "hostID2"},
	"POST /v1/volumes/{id}?salvage":                           {id: "vol", good: `{"names":["r-1"]}`, status: 200, bad: `{"names":["nix"]}`, because: "names", world: faulted},
	"POST /v1/volumes/{id}?expand":                            {id: "vol", good: `{"size":"2Gi"}`, status: 200, bad: `{"size":"1 potato"}`, because: "size"},
	"POST /v1/volumes/{id}?cancelExpansion":                   {id: "vol", good: `{}`, status: 200, bad: `{"size":"1Gi"}`, because: "size", world: expanding},
	"POST /v1/volumes/{id}?trimFilesystem":                    {id: "vol", good: `{}`, status: 200, bad: `{"all":true}`, because: "all", world: func() []runtime.Object { return attachedAt("192.0.2.1") }},
	"POST /v1/volumes/{id}?updateReplicaCount":                {id: "vol", good: `{"replicaCount":2}`, status: 200, bad: `{"replicaCount":21}`, because: "replicaCount"},
	"POST /v1/volumes/{id}?updateDataLocality":                {id: "vol", good: `{"dataLocality":"best-effort"}`, status: 200, bad: `{"dataLocality":"near"}`, because: "dataLocality"},
	"POST /v1/volumes/{id}?updateAccessMode":                  {id: "vol", good: `{"accessMode":"rwx"}`, status: 200, bad: `{"accessMode":"all"}`, because: "accessMode"},
	"POST /v1/volumes/{id}?updateReplicaSoftAntiAffinity":     {id: "vol", good: `{"replicaSoftAntiAffinity":"enabled"}`, status: 200, bad: `{"replicaSoftAntiAffinity":"x"}`, because: "replicaSoftAntiAffinity"},
	"POST /v1/volumes/{id}?updateReplicaZoneSoftAntiAffinity": {id: "vol", good: `{"replicaZoneSoftAntiAffinity":"enabled"}`, status: 200, bad: `{"replicaZoneSoftAntiAffinity":"x"}`, because: "replicaZoneSoftAntiAffinity"},
	"POST /v1/volumes/{id}?updateReplicaDiskSoftAntiAffinity": {id: "vol", good: `{"replicaDiskSoftAntiAffinity":"enabled"}`, status: 200, bad: `{"replicaDiskSoftAntiAffinity":"x"}`, because: "replicaDiskSoftAntiAffinity"},
	"POST /v1/volumes/{id}?updateReplicaAutoBalance":          {id: "vol", good: `{"replicaAutoBalance":"disabled"}`, status: 200, bad: `{"replicaAutoBalance":"x"}`, because: "replicaAutoBalance"},
	"POST /v1/volumes/{id}?updateNodeSelector":                {id: "vol", good: `{"nodeSelector":[]}`, status: 200, bad: `{"nodeSelector":["nix"]}`, because: "nodeSelector"},
	"POST /v1/volumes/{id}?updateDiskSelector":                {id: "vol", good: `{"diskSelector":[]}`, status: 200, bad: `{"diskSelector":["nix"]}`, because: "diskSelector"},
	"POST /v1/volumes/{id}?pvCreate":                          {id: "vol", good: `{}`, status: 200, bad: `{"fsType":"btrfs"}`, because: "fsType"},
	"POST /v1/volumes/{id}?pvcCreate":                         {id: "vol", good: `{"namespace":"default"}`, status: 200, bad: `{"namespace":"_"}`, because: "namespace", world: withPersistentVolume},
	"POST /v1/volumes/{id}?replicaRemove":                     {id: "vol", good: `{"name":"r-2"}`, status: 200, bad: `{"name":"nix"}`, because: "name", world: func() []runtime.Object { return used(func(*longhorn.Volume, *longhorn.Engine) {}) }},
	"POST /v1/volumes/{id}?snapshotCRCreate":                  {id: "vol", good: `{"name":"new","labels":{"a":"b"}}`, status: 200, bad: `{"name":"New"}`, because: "name"},
	"POST /v1/volumes/{id}?snapshotCRList":                    {id: "vol", good: `{}`, status: 200, bad: `{"all":true}`, because: "all"},
	"POST /v1/volumes/{id}?snapshotCRGet":                     {id: "vol", good: `{"name":"s"}`, status: 200, bad: `{}`, because: "name", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotCRDelete":                  {id: "vol", good: `{"name":"s"}`, status: 204, bad: `{}`, because: "name", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotCreate":                    {id: "vol", good: `{"name":"new"}`, status: 202, bad: `{"name":"new","labels":{"a":"b=c"}}`, because: "labels", world: inUse},
	"POST /v1/volumes/{id}?snapshotList":                      {id: "vol", good: `{}`, status: 200, bad: `{"all":true}`, because: "all", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotGet":                       {id: "vol", good: `{"name":"s"}`, status: 200, bad: `{}`, because: "name", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotDelete":                    {id: "vol", good: `{"name":"s"}`, status: 200, bad: `{"name":"volume-head"}`, because: "name", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotRevert":                    {id: "vol", good: `{"name":"s"}`, status: 200, bad: `{}`, because: "name", world: withSnapshot},
	"POST /v1/volumes/{id}?snapshotPurge":                     {id: "vol", good: `{}`, status: 200, bad: `{"all":true}`, because: "all"},
}

// inUse returns an attached volume.
func inUse() []runtime.Object { return used(func(*longhorn.Volume, *longhorn.Engine) {}) }

// withSnapshot returns a detached volume with a complete snapshot s.
func withSnapshot() []runtime.Object {
	return append(attachable(), completeSnapshot("vol", "s"), build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.DesireState, e.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopped
		e.Status.Line = &longhorn.Line{Counter: 1, Points: []longhorn.LinePoint{{Number: 1, Nonce: 7, Name: "s", State: longhorn.PointStateReady}}}
	}))
}

// completeSnapshot returns a snapshot that can be read.
func completeSnapshot(volume, name string) *longhorn.Snapshot {
	return &longhorn.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: name},
		Spec:       longhorn.SnapshotSpec{Volume: volume, CreateSnapshot: true, Labels: map[string]longhorn.SnapshotLabel{"app": "db"}},
		Status: longhorn.SnapshotStatus{
			Number: 1, ReadyToUse: true, UserCreated: true, CreationTime: "2030-01-01T00:00:00Z", Size: 4096, RestoreSize: 1 << 30,
			Parent: "p", Children: map[string]bool{"volume-head": true}, Checksum: "c",
			Conditions: []longhorn.Condition{{Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionTrue}},
		},
	}
}

func attachable() []runtime.Object {
	return append(threeNodes(), build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State = longhorn.VolumeStateDetached
		v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue}}
	}))
}

func faulted() []runtime.Object {
	return used(func(v *longhorn.Volume, e *longhorn.Engine) {
		v.Spec.NodeID, v.Status.State, v.Status.CurrentNodeID, v.Status.Robustness = "", longhorn.VolumeStateDetached, "", longhorn.VolumeRobustnessFaulted
		e.Status.CurrentState, e.Status.ReplicaModeMap = longhorn.InstanceStateStopped, nil
	})
}

func expanding() []runtime.Object {
	return append(threeNodes(), build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Spec.Size, v.Status.Size = longhorn.VolumeStateDetached, 2*build.GiB, build.GiB
	}))
}

func withPersistentVolume() []runtime.Object {
	return append(attachable(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "vol"},
		}},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	})
}

// inWorld returns a server over a trial's cluster, on whose nodes a trim succeeds.
func inWorld(t *testing.T, world func() []runtime.Object) *bench {
	t.Helper()
	if world == nil {
		world = attachable
	}
	objs := world()
	b := trimming(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), objs...)
	var volumes []*corev1.PersistentVolume
	for _, o := range objs {
		if pv, ok := o.(*corev1.PersistentVolume); ok {
			volumes = append(volumes, pv)
		}
	}
	require.NoError(t, b.workloads.Replace(volumes))
	return b
}

// TestEveryRouteInFourCases tests each route with a valid request, a bad input, a missing object, and a caller without
// rights. A route without a trial fails the test, and so does a trial without a route. TestEveryKindHasAStream and the
// tests after it test the streams.
func TestEveryRouteInFourCases(t *testing.T) {
	tried := map[string]bool{}
	for _, route := range newBench(t).server.Routes() {
		name := route.Method + " " + route.Path
		at := strings.NewReplacer("{$}", "", "{period}", "1s").Replace(route.Path)
		query := ""
		if route.Action != "" {
			name, query = name+"?"+route.Action, "?action="+route.Action
		}
		switch {
		case route.IsStream:
		case route.Method == http.MethodGet:
			t.Run(name, func(t *testing.T) { tryReading(t, at) })
		default:
			c, ok := trials[name]
			if !assert.True(t, ok, "no trial of %s", name) {
				continue
			}
			tried[name] = true
			t.Run(name, func(t *testing.T) { tryChanging(t, c, route.Method, at, query) })
		}
	}
	for name := range trials {
		assert.True(t, tried[name], "no route %s", name)
	}
}

func tryChanging(t *testing.T, c trial, method, at, query string) {
	path := func(id string) string { return strings.Replace(at, "{id}", id, 1) + query }
	b := inWorld(t, c.world)
	powerless := do(t, b.guarded(&accessOf{}, never), method, path(c.id), c.good, "Authorization: Bearer powerless")
	assert.Equal(t, 403, powerless.Code, "without rights: %s", powerless.Body)
	assert.Equal(t, 401, do(t, b.guarded(&accessOf{}, never), method, path(c.id), c.good).Code, "without a token")

	if c.because != "" {
		w := do(t, b.server, method, path(c.id), c.bad)
		assert.Equal(t, 422, w.Code, "bad input: %s", w.Body)
		assert.True(t, strings.HasPrefix(decoded[v1.Error](t, w).Message, c.because+": "), "it names the field: %s", w.Body)
		assert.Equal(t, 400, do(t, b.server, method, path(c.id), `{"`).Code, "no JSON")
	} else {
		assert.Equal(t, 404, do(t, b.server, method, path(c.bad), "").Code, "a name that nothing can have")
	}
	if c.id != "" {
		w := do(t, b.server, method, path("nix"), c.good)
		assert.Equal(t, 404, w.Code, "missing: %s", w.Body)
		assert.Contains(t, decoded[v1.Error](t, w).Message, `"nix" does not exist`)
	}
	b.ExpectWrites()

	w := do(t, b.guarded(&accessOf{}, never), method, path(c.id), c.good, "Authorization: Bearer admin")
	assert.Equal(t, c.status, w.Code, "good: %s", w.Body)
	if c.status != 204 {
		assert.NotEmpty(t, decoded[object](t, w).at("links").text("self"))
	}
}

// populated returns a cluster in which each kind that is not absent has a resource.
func populated() []runtime.Object {
	return append(used(func(v *longhorn.Volume, _ *longhorn.Engine) {
		v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure, Message: "m"}}
	}),
		build.Node("tagged", func(n *longhorn.Node) { n.Spec.Tags = []string{"fast"} }, build.WithDisk("d", "/d", func(d *longhorn.DiskSpec) { d.Tags = []string{"ssd"} })),
		&longhorn.ShareManager{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol"}},
		&longhorn.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol"}},
		completeSnapshot("vol", "s"),
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol.1"},
			InvolvedObject: corev1.ObjectReference{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Namespace: types.Namespace, Name: "vol"},
		},
	)
}

func tryReading(t *testing.T, at string) {
	b := inWorld(t, populated)
	guard := b.guarded(&accessOf{}, never)
	collection, _, isResource := strings.Cut(at, "/{id}")
	list := do(t, guard, "GET", collection, "", "Authorization: Bearer reader")
	require.Equal(t, 200, list.Code, "good: %s", list.Body)
	if !isResource {
		assert.Equal(t, 403, do(t, guard, "GET", at, "", "Authorization: Bearer powerless").Code, "without rights")
		assert.Equal(t, 401, do(t, guard, "GET", at, "").Code, "without a token")
		assert.Equal(t, 405, do(t, b.server, "PATCH", at, "").Code, "bad input")
		return
	}
	found := items(decoded[object](t, list))
	isAbsent := slices.ContainsFunc(unsupportedKinds(), func(k kind) bool { return collection == "/v1/"+k.path() })
	assert.Equal(t, isAbsent, len(found) == 0, "what there is: %s", list.Body)
	id := "nix"
	if !isAbsent {
		id = found[0].text("id")
		self := do(t, guard, "GET", found[0].at("links").text("self"), "", "Authorization: Bearer reader")
		require.Equal(t, 200, self.Code, "good: %s", self.Body)
		assert.Equal(t, id, decoded[object](t, self).text("id"))
	}
	assert.Equal(t, 403, do(t, guard, "GET", collection+"/"+id, "", "Authorization: Bearer powerless").Code, "without rights")
	assert.Equal(t, 401, do(t, guard, "GET", collection+"/"+id, "").Code, "without a token")
	for _, missing := range []string{"nix", "a%2fb", "%2e%2e", strings.Repeat("a", 300)} {
		w := do(t, b.server, "GET", collection+"/"+missing, "")
		assert.Equal(t, 404, w.Code, "missing %.20s: %s", missing, w.Body)
		assert.Equal(t, "error", decoded[v1.Error](t, w).Type)
	}
	b.ExpectWrites()
}
