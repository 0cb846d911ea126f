package datastore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// newerNode is a Node of a release that has a member "new" in every object of it.
const newerNode = `
apiVersion: longhorn.io/v1beta2
kind: Node
metadata:
  name: node-1
  namespace: longhorn-system
  labels: {a: "1", b: "2"}
  annotations: {newer.example/note: kept}
  finalizers: [longhorn.io]
  managedFields: [{manager: newer, operation: Update}]
  ownerReferences: [{apiVersion: v1, kind: Node, name: node-1, uid: u-1, new: owner}, {apiVersion: v1, kind: Node, name: node-1, uid: u-2, new: other}]
spec:
  name: node-1
  allowScheduling: true
  evictionRequested: false
  new: {a: [1, 2], b: {}}
  tags: [ssd]
  disks:
    d: {path: /mnt/d, allowScheduling: true, evictionRequested: false, storageReserved: 9007199254740993, tags: [], new: disk}
    e/~f: {path: /mnt/e, allowScheduling: true, evictionRequested: false, storageReserved: 0, tags: null, new: other disk}
status:
  region: r
  zone: z
  new: [{type: x, new: 1}]
  conditions:
  - {type: Ready, status: "True", reason: "", message: "", lastProbeTime: "", lastTransitionTime: "2030-01-01T00:00:00Z", new: {depth: 1}}
  - {type: Schedulable, status: "True", reason: "", message: "", lastProbeTime: "", lastTransitionTime: "2030-01-01T00:00:00Z", new: 2}
  - {type: Newer, status: "True", new: 3}
  diskStatus:
    d:
      diskUUID: u
      storageAvailable: 5
      scheduledReplica: {r-1: 1, r-2: 2}
      new: {health: good}
      conditions:
      - {type: Ready, status: "True", reason: "", message: "", lastProbeTime: "", lastTransitionTime: "", new: 4}
    e/~f: {diskUUID: v, new: 5, conditions: [{type: Ready, status: "True", new: 6}]}
`

func object(t *testing.T, text string) map[string]any {
	var o map[string]any
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(asJSON, &o))
	return o
}

// at follows keys and positions into an object.
func at(value any, path ...any) map[string]any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			value = value.(map[string]any)[s]
		case int:
			value = value.([]any)[s]
		}
	}
	return value.(map[string]any)
}

func condition(n *longhorn.Node, i int) *longhorn.Condition { return &n.Status.Conditions[i] }

type tree = map[string]any

var specWrites = []struct {
	name  string
	write func(n *longhorn.Node)
	want  func(stored tree) // applies the same change to the JSON
}{
	{"a member of the spec → it alone", func(n *longhorn.Node) { n.Spec.AllowScheduling = false }, func(s tree) { at(s, "spec")["allowScheduling"] = false }},
	{
		"a member of a disk → it alone",
		func(n *longhorn.Node) { d := n.Spec.Disks["d"]; d.EvictionRequested = true; n.Spec.Disks["d"] = d },
		func(s tree) { at(s, "spec", "disks", "d")["evictionRequested"] = true },
	},
	{"a disk goes → the other stays whole", func(n *longhorn.Node) { delete(n.Spec.Disks, "d") }, func(s tree) { delete(at(s, "spec", "disks"), "d") }},
	{
		"a disk comes → the others stay whole",
		func(n *longhorn.Node) { n.Spec.Disks["g"] = longhorn.DiskSpec{Path: "/mnt/g", Tags: []string{"hdd"}} },
		func(s tree) {
			at(s, "spec", "disks")["g"] = tree{"path": "/mnt/g", "allowScheduling": false, "evictionRequested": false, "storageReserved": int64(0), "tags": []any{"hdd"}}
		},
	},
	{"a list of texts → replaced", func(n *longhorn.Node) { n.Spec.Tags = []string{"ssd", "fast"} }, func(s tree) { at(s, "spec")["tags"] = []any{"ssd", "fast"} }},
	{"the last text of a list goes → no list", func(n *longhorn.Node) { n.Spec.Tags = nil }, func(s tree) { delete(at(s, "spec"), "tags") }},
	{
		"an annotation and a label → those alone",
		func(n *longhorn.Node) { n.Annotations["mine"] = "1"; delete(n.Labels, "a") },
		func(s tree) { at(s, "metadata", "annotations")["mine"] = "1"; delete(at(s, "metadata", "labels"), "a") },
	},
	{"the finalizer goes", func(n *longhorn.Node) { n.Finalizers = nil }, func(s tree) { delete(at(s, "metadata"), "finalizers") }},
	{
		"an owner goes and the spec changes → the other owner stays whole",
		func(n *longhorn.Node) { n.OwnerReferences = n.OwnerReferences[1:]; n.Spec.AllowScheduling = false },
		func(s tree) {
			at(s, "spec")["allowScheduling"] = false
			at(s, "metadata")["ownerReferences"] = []any{at(s, "metadata", "ownerReferences", 1)}
		},
	},
	{"the status → not written", func(n *longhorn.Node) { n.Status.Zone = "other"; n.Status.Conditions = nil }, func(tree) {}},
	{"nothing → nothing", func(*longhorn.Node) {}, func(tree) {}},
}

var statusWrites = []struct {
	name  string
	write func(n *longhorn.Node)
	want  func(stored tree)
}{
	{"a member of the status → it alone", func(n *longhorn.Node) { n.Status.Zone = "" }, func(s tree) { at(s, "status")["zone"] = "" }},
	{
		"a figure of a disk → it alone",
		func(n *longhorn.Node) {
			d := n.Status.DiskStatus["d"]
			d.StorageAvailable = 7
			n.Status.DiskStatus["d"] = d
		},
		func(s tree) { at(s, "status", "diskStatus", "d")["storageAvailable"] = int64(7) },
	},
	{
		"a replica leaves a disk → the disk stays whole",
		func(n *longhorn.Node) { delete(n.Status.DiskStatus["d"].ScheduledReplica, "r-1") },
		func(s tree) { delete(at(s, "status", "diskStatus", "d", "scheduledReplica"), "r-1") },
	},
	{
		"a disk goes → the other stays whole",
		func(n *longhorn.Node) { delete(n.Status.DiskStatus, "d") },
		func(s tree) { delete(at(s, "status", "diskStatus"), "d") },
	},
	{
		"a condition changes → its members that changed alone",
		func(n *longhorn.Node) { condition(n, 0).Status = "False"; condition(n, 0).Reason = "Because" },
		func(s tree) {
			at(s, "status", "conditions", 0)["status"] = "False"
			at(s, "status", "conditions", 0)["reason"] = "Because"
		},
	},
	{
		"a condition and another member change → those alone",
		func(n *longhorn.Node) { condition(n, 1).Message = "no"; n.Status.Region = "s" },
		func(s tree) { at(s, "status", "conditions", 1)["message"] = "no"; at(s, "status")["region"] = "s" },
	},
	{
		"a condition of a disk with an odd name changes → it alone",
		func(n *longhorn.Node) { n.Status.DiskStatus["e/~f"].Conditions[0].Status = "False" },
		func(s tree) { at(s, "status", "diskStatus", "e/~f", "conditions", 0)["status"] = "False" },
	},
	{
		"a condition is added → the others stay whole",
		func(n *longhorn.Node) {
			n.Status.Conditions = append(n.Status.Conditions, longhorn.Condition{Type: "Mine", Status: "True"})
		},
		func(s tree) {
			at(s, "status")["conditions"] = append(at(s, "status")["conditions"].([]any),
				tree{"type": "Mine", "status": "True", "reason": "", "message": "", "lastProbeTime": "", "lastTransitionTime": ""})
		},
	},
	{
		"a condition goes and another changes → the others stay whole",
		func(n *longhorn.Node) {
			n.Status.Conditions = n.Status.Conditions[1:]
			condition(n, 1).Message = "late"
		},
		func(s tree) {
			at(s, "status")["conditions"] = []any{at(s, "status", "conditions", 1), at(s, "status", "conditions", 2)}
			at(s, "status", "conditions", 1)["message"] = "late"
		},
	},
	{
		"the conditions are put in another order, with one between → each stays whole",
		func(n *longhorn.Node) {
			c := n.Status.Conditions
			c[2].Message = "first"
			n.Status.Conditions = []longhorn.Condition{c[2], {Type: "Mine", Status: "True"}, c[0]}
		},
		func(s tree) {
			at(s, "status", "conditions", 2)["message"] = "first"
			at(s, "status")["conditions"] = []any{
				at(s, "status", "conditions", 2),
				tree{"type": "Mine", "status": "True", "reason": "", "message": "", "lastProbeTime": "", "lastTransitionTime": ""},
				at(s, "status", "conditions", 0),
			}
		},
	},
	{"all conditions go → no list", func(n *longhorn.Node) { n.Status.Conditions = nil }, func(s tree) { delete(at(s, "status"), "conditions") }},
	{"the spec and an annotation → not written", func(n *longhorn.Node) { n.Spec.AllowScheduling = false; n.Annotations["x"] = "" }, func(tree) {}},
	{"nothing → nothing", func(*longhorn.Node) {}, func(tree) {}},
}

// TestAWriteKeepsWhatThisReleaseDoesNotKnow compares the whole stored object. The writer has the object from its cache.
func TestAWriteKeepsWhatThisReleaseDoesNotKnow(t *testing.T) {
	run := func(name, subresource string, write func(*longhorn.Node), want func(tree)) {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put("nodes/node-1", object(t, newerNode))
			expected := s.stored("nodes/node-1")
			nodes := s.datastore().Nodes
			cached := as(t, expected, &longhorn.Node{})
			cached.ManagedFields = nil // like in the caches
			require.NoError(t, nodes.Replace([]*longhorn.Node{cached}, "101"))
			before := cached.DeepCopy()

			n, err := nodes.Get("node-1")
			require.NoError(t, err)
			write(n)
			update := nodes.Update
			if subresource == "/status" {
				update = nodes.UpdateStatus
			}
			stored, err := update(t.Context(), n)
			require.NoError(t, err)

			assert.Equal(t, before, cached, "the cached object")
			assert.Equal(t, []string{"PATCH nodes/node-1" + subresource}, s.taken())
			want(expected)
			got := s.stored("nodes/node-1")
			at(expected, "metadata")["resourceVersion"] = at(got, "metadata")["resourceVersion"]
			assert.Equal(t, clone(expected), got)
			assert.Equal(t, as(t, got, &longhorn.Node{}).Status, stored.Status, "what the write returned")
		})
	}
	for _, c := range specWrites {
		run("Update: "+c.name, "", c.write, c.want)
	}
	for _, c := range statusWrites {
		run("UpdateStatus: "+c.name, "/status", c.write, c.want)
	}
}

// TestTheFirstStatusIsWrittenWhole: the store has no status that could be patched, or a status that this release reads
// as empty.
func TestTheFirstStatusIsWrittenWhole(t *testing.T) {
	for name, status := range map[string]string{
		"no status":                         "",
		"an empty one":                      "status: {}",
		"one with a newer release's member": "status: {new: 1}",
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put("engines/e", object(t, "{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: e, namespace: longhorn-system}, "+
				"spec: {volumeName: v, volumeSize: '2097152'}}\n"))
			s.change("engines/e", func(o map[string]any) {
				for key, value := range object(t, "{"+status+"}") {
					o[key] = value
				}
			})
			engines := s.datastore().Engines
			e, err := engines.Live(t.Context(), "e")
			require.NoError(t, err)
			e.Status.Generation = 1
			e.Status.Conditions = []longhorn.Condition{{Type: "Ready", Status: "False"}}
			e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"r"}}
			_, err = engines.UpdateStatus(t.Context(), e)
			require.NoError(t, err)
			got := at(s.stored("engines/e"), "status")
			if name == "one with a newer release's member" {
				assert.Equal(t, int64(1), got["new"])
			}
			delete(got, "new")
			assert.Equal(t, tree{
				"ownerID": "", "instanceManagerName": "", "currentState": "", "ip": "", "port": int64(0), "uuid": "",
				"conditions": []any{tree{"type": "Ready", "status": "False", "reason": "", "message": "", "lastProbeTime": "", "lastTransitionTime": ""}},
				"generation": int64(1), "session": "", "epoch": tree{"generation": int64(1), "counter": int64(1), "members": []any{"r"}},
				"currentSize": "0", "endpoint": "",
			}, got)
		})
	}
}

// TestKubernetesOwnKindsKeepWhatTheyHave covers the kinds that the product writes.
func TestKubernetesOwnKindsKeepWhatTheyHave(t *testing.T) {
	s := newAPIServer(t)
	d := s.datastore()
	s.put("leases/l", object(t, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, namespace: longhorn-system}, spec: {holderIdentity: a, leaseTransitions: 1, new: 1}}"))
	s.put("poddisruptionbudgets/b", object(t, "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: longhorn-system}, "+
		"spec: {maxUnavailable: 0, selector: {matchLabels: {a: b}, new: 1}, new: 1}, status: {currentHealthy: 1, desiredHealthy: 1, disruptionsAllowed: 0, expectedPods: 1, new: 1}}"))
	s.put("storageclasses/c", object(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: driver.longhorn.io, allowVolumeExpansion: true, new: 1}"))
	s.put("settings/s", object(t, "{apiVersion: longhorn.io/v1beta2, kind: Setting, metadata: {name: s, namespace: longhorn-system}, value: a, new: 1}"))

	lease, err := d.Leases.Live(t.Context(), "l")
	require.NoError(t, err)
	now := metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{RenewTime: &now} // released
	want := s.stored("leases/l")
	want["spec"] = tree{"renewTime": now.UTC().Format(metav1.RFC3339Micro), "new": int64(1)}
	_, err = d.Leases.Update(t.Context(), lease)
	equalButVersion(t, s, "leases/l", want, err)

	budget, err := d.Budgets.Live(t.Context(), "b")
	require.NoError(t, err)
	one := intstr.FromInt32(1)
	budget.Spec.MaxUnavailable = &one
	want = s.stored("poddisruptionbudgets/b")
	at(want, "spec")["maxUnavailable"] = int64(1)
	_, err = d.Budgets.Update(t.Context(), budget)
	equalButVersion(t, s, "poddisruptionbudgets/b", want, err)

	class, err := d.StorageClasses.Live(t.Context(), "c")
	require.NoError(t, err)
	class.AllowVolumeExpansion = nil
	class.Labels = map[string]string{"a": "b"}
	want = s.stored("storageclasses/c")
	delete(want, "allowVolumeExpansion")
	at(want, "metadata")["labels"] = tree{"a": "b"}
	_, err = d.StorageClasses.Update(t.Context(), class)
	equalButVersion(t, s, "storageclasses/c", want, err)

	setting, err := d.Settings.Live(t.Context(), "s")
	require.NoError(t, err)
	setting.Value = ""
	want = s.stored("settings/s")
	want["value"] = ""
	_, err = d.Settings.Update(t.Context(), setting)
	equalButVersion(t, s, "settings/s", want, err)
}

func equalButVersion(t *testing.T, s *apiServer, key string, want map[string]any, err error) {
	t.Helper()
	require.NoError(t, err)
	got := s.stored(key)
	assert.NotEqual(t, at(want, "metadata")["resourceVersion"], at(got, "metadata")["resourceVersion"])
	at(want, "metadata")["resourceVersion"] = at(got, "metadata")["resourceVersion"]
	assert.Equal(t, clone(want), got)
}
