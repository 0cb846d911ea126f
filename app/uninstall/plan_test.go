package uninstall

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// patience differs from the default.
const patience = DefaultPatience - time.Minute

type world map[Kind][]Object

func (w world) with(k Kind, objects ...Object) world {
	copied := world{}
	for kind, list := range w {
		copied[kind] = append([]Object(nil), list...)
	}
	copied[k] = append(copied[k], objects...)
	return copied
}

func (w world) state() State {
	return State{Namespace: types.Namespace, Objects: w, Now: now, Patience: patience}
}

func named(name string) Object { return Object{Name: name, UID: "uid-" + name} }

func deleted(o Object, ago time.Duration) Object {
	o.DeletedAt = now.Add(-ago)
	return o
}

func held(o Object) Object {
	o.Finalizers = []string{types.Finalizer}
	return o
}

func volume(name string) Object { return held(named(name)) }

func replica(name, volume, node string) Object {
	o := held(named(name))
	o.Labels, o.Node, o.Path = map[string]string{types.LabelVolume: volume}, node, "/var/lib/longhorn/replicas/"+name
	return o
}

func daemon(node string) Object {
	return Object{Name: "daemon-" + node, UID: "u", Node: node, Ready: true, Labels: map[string]string{types.LabelApp: types.AppManager}}
}

func kubeNode(name string, ready bool) Object { return Object{Name: name, Ready: ready} }

func confirmed(w world) world {
	return w.with(globalSettings, Object{Name: string(settings.DeletingConfirmation), UID: "s", Value: "true"})
}

// did returns the steps of a plan.
func did(p Plan) []string {
	var steps []string
	for _, a := range p.Actions {
		steps = append(steps, string(a.Verb)+" "+a.Kind.Resource+"/"+a.Name)
	}
	return steps
}

func TestRefusals(t *testing.T) {
	label := map[string]string{types.InstallationLabel: types.InstallationValue}
	const rest = ". To delete it permanently, set setting deleting-confirmation-flag to true " +
		"(kubectl -n longhorn-system patch lhs deleting-confirmation-flag --type merge -p '{\"value\":\"true\"}'); " +
		"if the settings no longer exist, give the uninstaller the argument --delete-volumes"
	for _, tc := range []struct {
		name   string
		w      world
		forced bool
		want   string
	}{
		{"no data → goes on", world{}.with(nodes, named("a")), false, ""},
		{"volumes → refused, and named", world{}.with(volumes, volume("w"), volume("v")), false, "there is data:\n  volume v\n  volume w\n" + rest[2:]},
		{"many volumes → ten are named", world{}.with(volumes, numbered(12)...), false, "there is data:\n" +
			"  volume v-01\n  volume v-02\n  volume v-03\n  volume v-04\n  volume v-05\n  volume v-06\n  volume v-07\n  volume v-08\n  volume v-09\n  volume v-10\n  and 2 more\n" + rest[2:]},
		{"a volume that is being deleted → refused", world{}.with(volumes, deleted(volume("v"), time.Hour)), false, "there is data: volume v" + rest},
		{"a volume with its replica → named once", world{}.with(volumes, volume("v")).with(replicas, replica("v-r-1", "v", "a")), false, "there is data: volume v" + rest},
		{"a replica whose volume is gone → refused", world{}.with(replicas, replica("v-r-1", "v", "a")), false, "there is data: replica v-r-1" + rest},
		{"a replica that was never made → goes on", world{}.with(replicas, held(named("v-r-1"))), false, ""},
		{"volumes, confirmed → goes on", confirmed(world{}.with(volumes, volume("v"))), false, ""},
		{"volumes, the setting says false → refused", world{}.with(volumes, volume("v")).with(globalSettings, Object{Name: string(settings.DeletingConfirmation), Value: "false"}), false, "there is data: volume v" + rest},
		{"volumes, the settings are gone, by argument → goes on", world{}.with(volumes, volume("v")), true, ""},
		{"another Longhorn → refused, even by argument", world{}.with(definitions, named("volumes.longhorn.io")), true, "definition volumes.longhorn.io belongs to another Longhorn"},
		{"our definitions → goes on", world{}.with(definitions, Object{Name: "volumes.longhorn.io", Labels: label}), false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := tc.w.state()
			s.Forced = tc.forced
			p := plan(s)
			assert.Equal(t, tc.want, p.Refused)
			if tc.want != "" {
				assert.Empty(t, p.Actions)
			}
		})
	}
}

// TestPodsThatUseVolumes: nothing is removed while a pod may have a volume mounted, with and without a manager.
func TestPodsThatUseVolumes(t *testing.T) {
	w := confirmed(world{}.with(volumes, volume("v"), deleted(volume("w"), time.Minute)).
		with(persistentVolumes, Object{Name: "pv", Provisioner: types.DriverName, Volume: "v", ClaimNamespace: "shop", Claim: "data"}).
		with(configMaps, named(types.StorageClassConfigMap)).
		with(kubeNodes, kubeNode("a", true), kubeNode("off", false), Object{Name: "silent", ReadySince: now.Add(-time.Second)}))
	plugins := Object{Name: types.AppCSIPlugin, UID: "set"}
	plugin := Object{Name: "csi-a", UID: "p", Node: "a", Ready: true, Labels: map[string]string{types.LabelApp: types.AppCSIPlugin}}
	pod := func(name, node string) Object { return Object{Name: name, Namespace: "shop", Node: node} }
	const long = patience + time.Second
	for _, tc := range []struct {
		name  string
		w     world
		users map[string][]Object
		waits []string
	}{
		{"no pod uses a volume", w, nil, nil},
		{
			"pods, the manager is gone → waits", w,
			map[string][]Object{"v": {pod("web-0", "a"), pod("web-1", "a")}, "w": {pod("db-0", "a")}, "gone": {pod("x", "a")}},
			[]string{"pods shop/web-0, shop/web-1, which use volume shop/data (v)", "pods shop/db-0, which use volume w"},
		},
		{"a pod on a node that is off → waits, and says so", w, map[string][]Object{"w": {pod("db-0", "off")}}, []string{"pods shop/db-0 (node off does not answer), which use volume w"}},
		{"a pod on a node without an object", w, map[string][]Object{"w": {pod("db-0", "gone")}}, []string{"pods shop/db-0 (node gone does not answer), which use volume w"}},
		{"a pod in deletion, the CSI driver is there → waits", w.with(daemonSets, plugins), map[string][]Object{"w": {deleted(pod("db-0", "a"), long)}}, []string{"pods shop/db-0, which use volume w"}},
		{"a pod in deletion, its node's CSI plugin still runs → waits", w.with(pods, plugin), map[string][]Object{"w": {deleted(pod("db-0", "a"), long)}}, []string{"pods shop/db-0, which use volume w"}},
		{"a pod in deletion, nothing can unmount the volume", w, map[string][]Object{"w": {deleted(pod("db-0", "a"), time.Second)}}, nil},
		{"a pod in deletion, the DaemonSet is being deleted", w.with(daemonSets, deleted(plugins, time.Second)), map[string][]Object{"w": {deleted(pod("db-0", "a"), time.Second)}}, nil},
		{"a pod in deletion for long, its node is off for long", w.with(daemonSets, plugins), map[string][]Object{"w": {deleted(pod("db-0", "off"), long)}}, nil},
		{"a pod in deletion, its node is off for long → waits", w.with(daemonSets, plugins), map[string][]Object{"w": {deleted(pod("db-0", "off"), time.Second)}}, []string{"pods shop/db-0 (node off does not answer), which use volume w"}},
		{"a pod in deletion for long, its node has just become silent → waits", w.with(daemonSets, plugins), map[string][]Object{"w": {deleted(pod("db-0", "silent"), long)}}, []string{"pods shop/db-0 (node silent does not answer), which use volume w"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := tc.w.state()
			s.Users = tc.users
			p := plan(s)
			if tc.waits == nil {
				assert.Equal(t, []string{"delete configmaps/longhorn-storageclass"}, did(p))
				return
			}
			assert.Equal(t, "pods that use volumes", p.Stage)
			assert.Equal(t, tc.waits, p.Waits)
			assert.Empty(t, p.Actions)
		})
	}
}

func numbered(n int) []Object {
	var all []Object
	for i := range n {
		all = append(all, volume(fmt.Sprintf("v-%02d", i+1)))
	}
	return all
}

func TestAnInstallationInAnotherNamespaceIsRefused(t *testing.T) {
	label := map[string]string{types.InstallationLabel: types.InstallationValue}
	in := func(o Object) Object { o.Namespace = "storage"; return o }
	labelled := func(o Object, labels map[string]string) Object { o.Labels = labels; return o }
	for _, tc := range []struct {
		name      string
		elsewhere world
		want      string
	}{
		{"a volume → refused", world{}.with(volumes, in(volume("v"))), "volumes v"},
		{"an engine → refused", world{}.with(engines, in(named("v-e-0"))), "engines v-e-0"},
		{"a replica → refused", world{}.with(replicas, in(named("v-r-1"))), "replicas v-r-1"},
		{"a node → refused", world{}.with(nodes, in(named("a"))), "nodes a"},
		{"a setting → refused", world{}.with(globalSettings, in(named("s"))), "settings s"},
		{"our DaemonSet → refused", world{}.with(daemonSets, in(labelled(named("renamed"), label))), "daemonsets renamed"},
		{"a manager's DaemonSet without our label → refused", world{}.with(daemonSets, in(labelled(named(types.AppManager), map[string]string{types.LabelApp: types.AppManager}))), "daemonsets longhorn-manager"},
		{"an object of a later version's kind → refused", world{}.with(longhornKind("snapshots"), in(named("s"))), "snapshots s"},
		{"somebody's DaemonSet → goes on", world{}.with(daemonSets, in(named("kube-proxy"))), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			later := labelled(named("snapshots.longhorn.io"), label)
			s := world{}.with(daemonSets, named("longhorn-manager")).with(definitions, later).state()
			s.Elsewhere, s.Forced = tc.elsewhere, true
			p := plan(s)
			if tc.want == "" {
				assert.Empty(t, p.Refused)
				return
			}
			assert.Contains(t, p.Refused, "namespace longhorn-system is given, but "+tc.want+" is in namespace storage. ")
			assert.Empty(t, p.Actions)
		})
	}
}

func TestWhenAReplicasFinalizerIsRemoved(t *testing.T) {
	old, young := patience, patience-time.Second
	two := confirmed(world{}.with(kubeNodes, kubeNode("a", true), kubeNode("b", false)).with(volumes, deleted(volume("v"), time.Hour)))
	dead := confirmed(world{}.with(kubeNodes, kubeNode("a", false), kubeNode("b", false)).with(volumes, deleted(volume("v"), time.Hour)))
	for _, tc := range []struct {
		name  string
		w     world
		steps []string
	}{
		{"its node has a daemon, deleted long ago → waits", two.with(pods, daemon("b")).with(replicas, deleted(replica("r", "v", "b"), old)), nil},
		{"not deleted yet, there is a leader → waits for it", two.with(pods, daemon("a")).with(replicas, replica("r", "v", "b")), nil},
		{"its node has no daemon, deleted just now → waits", two.with(pods, daemon("a")).with(replicas, deleted(replica("r", "v", "b"), young)), nil},
		{"its node has no daemon for long → stripped", two.with(pods, daemon("a")).with(replicas, deleted(replica("r", "v", "b"), old)), []string{"strip replicas/r"}},
		{"its daemon is not ready → stripped", two.with(pods, daemon("a"), func() Object { d := daemon("b"); d.Ready = false; return d }()).with(replicas, deleted(replica("r", "v", "b"), old)), []string{"strip replicas/r"}},
		{"no daemon anywhere, deleted just now → stripped", two.with(replicas, deleted(replica("r", "v", "b"), 0)), []string{"strip replicas/r"}},
		{"no daemon anywhere, not deleted → deleted first", two.with(replicas, replica("r", "v", "b")), []string{"delete replicas/r"}},
		{"no daemon anywhere, replicas left → the engine and the volume wait", two.with(replicas, deleted(named("r"), 0)).with(engines, deleted(held(named("e")), 0)), nil},
		{"no daemon anywhere, the replicas gone → the engine is stripped", two.with(engines, deleted(held(named("e")), 0)), []string{"strip engines/e"}},
		{"no daemon anywhere, all else gone → the volume is stripped", two, []string{"strip volumes/v"}},
		{"no daemon just now, their DaemonSet is there → waits", two.with(daemonSets, named("longhorn-manager")).with(replicas, deleted(replica("r", "v", "b"), young)), nil},
		{"no daemon for long, their DaemonSet is there, its node answers → waits", two.with(daemonSets, named("longhorn-manager")).with(replicas, deleted(replica("r", "v", "a"), old)), nil},
		{"no daemon for longer than by default, their DaemonSet is there → stripped", two.with(daemonSets, named("longhorn-manager")).with(replicas, deleted(replica("r", "v", "a"), DefaultPatience)), []string{"strip replicas/r"}},
		{"no daemon for long, their DaemonSet is there, no node answers → stripped", dead.with(daemonSets, named("longhorn-manager")).with(replicas, deleted(replica("r", "v", "b"), old)), []string{"strip replicas/r"}},
		{"its daemon is about to start, for its node answers → waits", two.with(pods, daemon("b")).with(replicas, deleted(replica("r", "v", "a"), old)), nil},
		{"its node answers and has no daemon for longer than by default → stripped", two.with(pods, daemon("b")).with(replicas, deleted(replica("r", "v", "a"), DefaultPatience)), []string{"strip replicas/r"}},
		{"no daemon for long, their DaemonSet is there, a node answers → the engine waits", two.with(daemonSets, named("longhorn-manager")).with(engines, deleted(held(named("e")), old)), nil},
		{"no daemon for long, their DaemonSet is there, no node answers → the engine is stripped", dead.with(daemonSets, named("longhorn-manager")).with(engines, deleted(held(named("e")), old)), []string{"strip engines/e"}},
		{"no daemon, their DaemonSet is being deleted → stripped", two.with(daemonSets, deleted(named("longhorn-manager"), 0)).with(replicas, deleted(replica("r", "v", "b"), young)), []string{"strip replicas/r"}},
		{"a leader, all else gone → the volume waits", two.with(pods, daemon("a")), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.w.state())
			assert.Equal(t, tc.steps, did(p))
			assert.Equal(t, "volumes and their data", p.Stage)
			assert.False(t, p.Done)
		})
	}
}

// A running daemon waits for a lost disk without limit. If the disk comes back, the daemon removes the data.
func TestAReplicaOfALostDisk(t *testing.T) {
	lost := func(reason string, ago time.Duration) Object {
		r := deleted(replica("r", "v", "a"), ago)
		r.Disk, r.Reason, r.Message = "uuid", reason, "node a has no disk with UUID uuid"
		return r
	}
	node := func(name string, disks ...string) Object { return Object{Name: name, UID: "n", ReadyDisks: disks} }
	w := confirmed(world{}.with(kubeNodes, kubeNode("a", true), kubeNode("b", false)).with(pods, daemon("a")))
	const waits = "replicas/r (DiskNotFound: node a has no disk with UUID uuid)"
	for _, tc := range []struct {
		name  string
		w     world
		steps []string
		waits []string
	}{
		{"lost for long → stripped", w.with(replicas, lost("DiskNotFound", patience)), []string{"strip replicas/r"}, nil},
		{"not ready for long → stripped", w.with(replicas, lost("DiskNotReady", patience)), []string{"strip replicas/r"}, nil},
		{"lost, deleted just now → waits, and says why", w.with(replicas, lost("DiskNotFound", patience-time.Second)), nil, []string{waits}},
		{"lost, and back → waits for the daemon", w.with(nodes, node("a", "other", "uuid")).with(replicas, lost("DiskNotFound", time.Hour)), nil, []string{waits}},
		{"lost, other disks are ready → stripped", w.with(nodes, node("a", "other")).with(replicas, lost("DiskNotFound", time.Hour)), []string{"strip replicas/r"}, nil},
		{"lost, and last seen on a node without a daemon → stripped", w.with(nodes, node("b", "uuid")).with(replicas, lost("DiskNotFound", time.Hour)), []string{"strip replicas/r"}, nil},
		{"another trouble for long → waits", w.with(replicas, lost("TimedOut", time.Hour)), nil, []string{"replicas/r (TimedOut: node a has no disk with UUID uuid)"}},
		{"no trouble for long → waits", w.with(replicas, deleted(replica("r", "v", "a"), time.Hour)), nil, []string{"replicas/r"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.w.state())
			assert.Equal(t, tc.steps, did(p))
			assert.Equal(t, tc.waits, p.Waits)
			for _, a := range p.Actions {
				assert.Equal(t, "the data of replica r stays in /var/lib/longhorn/replicas/r on node a: "+a.Reason+": node a has no disk with UUID uuid", a.Leaves)
			}
		})
	}
}

func TestConditionsOfDisksAndReplicas(t *testing.T) {
	ready := func(status string) []any { return []any{map[string]any{"type": "Ready", "status": status}} }
	node := objectOf(&unstructured.Unstructured{Object: map[string]any{"kind": "Node", "status": map[string]any{"diskStatus": map[string]any{
		"one": map[string]any{"diskUUID": "1", "conditions": ready("True")},
		"two": map[string]any{"diskUUID": "2", "conditions": ready("False")},
		"new": map[string]any{"conditions": ready("True")},
	}}}})
	assert.Equal(t, []string{"1"}, node.ReadyDisks)
	creation := map[string]any{"type": "InstanceCreation", "status": "False", "reason": "DiskNotFound", "message": "gone"}
	read := func() Object {
		return objectOf(&unstructured.Unstructured{Object: map[string]any{
			"kind": "Replica", "spec": map[string]any{"diskID": "1"}, "status": map[string]any{"conditions": []any{creation}},
		}})
	}
	assert.Equal(t, Object{Disk: "1", Reason: "DiskNotFound", Message: "gone"}, read())
	creation["status"] = "True"
	assert.Equal(t, Object{Disk: "1"}, read())
}

func TestRemainingDataIsReported(t *testing.T) {
	p := plan(confirmed(world{}.with(volumes, deleted(volume("v"), 0)).with(replicas, deleted(replica("r", "v", "b"), 0))).state())
	require.Len(t, p.Actions, 1)
	assert.Equal(t, "the data of replica r stays in /var/lib/longhorn/replicas/r on node b: no daemon of this installation runs there", p.Actions[0].Leaves)
}

func TestPodsOfADeadNodeAreForced(t *testing.T) {
	w := world{}.with(kubeNodes, kubeNode("a", true), kubeNode("b", false))
	for _, tc := range []struct {
		name  string
		pod   Object
		steps []string
	}{
		{"of a live node, deleted long ago → waits", deleted(daemon("a"), time.Hour), nil},
		{"of a dead node, its DaemonSet gone → deleted", daemon("b"), []string{"delete pods/daemon-b"}},
		{"of a dead node, deleted just now → waits", deleted(daemon("b"), patience-time.Second), nil},
		{"of a dead node, deleted long ago → forced", deleted(daemon("b"), patience), []string{"force pods/daemon-b"}},
		{"of a node that was removed, deleted long ago → forced", deleted(daemon("c"), patience), []string{"force pods/daemon-c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.steps, did(plan(w.with(pods, tc.pod).state())))
		})
	}
}

func TestWhichPodsAreWaitedFor(t *testing.T) {
	pod := func(labels map[string]string) Object { return Object{Name: "p", UID: "u", Node: "a", Labels: labels} }
	w := world{}.with(kubeNodes, kubeNode("a", true)).with(nodes, named("a"))
	for _, tc := range []struct {
		name  string
		pod   Object
		waits []string
	}{
		{"an instance manager → waited for", pod(types.InstanceManagerSelector("a")), []string{"pods/p"}},
		{"the CSI driver of a node → waited for", pod(map[string]string{types.LabelApp: "longhorn-csi-plugin"}), []string{"pods/p"}},
		{"somebody's → not waited for", pod(map[string]string{types.LabelApp: "curl"}), nil},
		{"somebody's without labels → not waited for", pod(nil), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var steps []string // for a pod that no component deletes, because its creator is gone
			for range tc.waits {
				steps = append(steps, "delete pods/p")
			}
			p := plan(w.with(pods, tc.pod).state())
			assert.Empty(t, p.Waits)
			if steps != nil {
				assert.Equal(t, steps, did(p))
			} else {
				assert.NotContains(t, did(p), "delete pods/p")
			}
			assert.Equal(t, tc.waits, plan(w.with(pods, deleted(tc.pod, 0)).state()).Waits)
		})
	}
}

func TestLostPersistentVolumes(t *testing.T) {
	pv := func(driver string, finalizers ...string) Object {
		return Object{Name: "pv", UID: "p", Provisioner: driver, Volume: "v", Finalizers: finalizers}
	}
	const protection = "kubernetes.io/pv-protection"
	for _, tc := range []struct {
		name  string
		w     world
		steps []string
	}{
		{"its volume is gone → deleted", world{}.with(persistentVolumes, pv(types.DriverName, provisionerFinalizer)), []string{"delete persistentvolumes/pv"}},
		{"deleted, the provisioner's finalizer → stripped", world{}.with(persistentVolumes, deleted(pv(types.DriverName, protection, provisionerFinalizer), 0)), []string{"strip persistentvolumes/pv"}},
		{"deleted, the attacher's finalizer → stripped", world{}.with(persistentVolumes, deleted(pv(types.DriverName, "external-attacher/driver-longhorn-io"), 0)), []string{"strip persistentvolumes/pv"}},
		{"deleted, held by its claim alone → not waited for", world{}.with(persistentVolumes, deleted(pv(types.DriverName, protection), 0)), nil},
		{"of another driver → untouched", world{}.with(persistentVolumes, pv("another", provisionerFinalizer)), nil},
		{"of another driver, deleted → untouched", world{}.with(persistentVolumes, deleted(pv("another", provisionerFinalizer), 0)), nil},
		{"of no CSI driver → untouched", world{}.with(persistentVolumes, deleted(pv("", provisionerFinalizer), 0)), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.w.state())
			assert.Equal(t, tc.steps, did(p))
			assert.Equal(t, tc.steps == nil, p.Done)
		})
	}
	t.Run("its volume is there → the volume's end comes first", func(t *testing.T) {
		w := confirmed(world{}.with(volumes, deleted(volume("v"), 0)).with(pods, daemon("a")).with(persistentVolumes, pv(types.DriverName, provisionerFinalizer)))
		p := plan(w.state())
		assert.Empty(t, p.Actions)
		assert.Equal(t, []string{"volumes/v"}, p.Waits)
		p = Plan{}
		lostPersistentVolumes(w.state(), &p)
		assert.Empty(t, p.Actions)
	})
}

// TestTheInventoryIsComplete: every object of deploy/longhorn.yaml outside the namespace is removed.
func TestTheInventoryIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../deploy/longhorn.yaml")
	require.NoError(t, err)
	kinds := map[string]Kind{
		"Namespace": namespaces, "ValidatingAdmissionPolicy": policies, "ValidatingAdmissionPolicyBinding": policyBindings,
		"ClusterRole": clusterRoles, "ClusterRoleBinding": clusterBindings, "CSIDriver": drivers, "StorageClass": storageClasses,
		"CustomResourceDefinition": definitions, "DaemonSet": daemonSets, "Deployment": deployments, "Service": services,
	}
	found := 0
	for _, doc := range strings.Split(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(doc), &u.Object))
		if u.Object == nil {
			continue
		}
		k, known := kinds[u.GetKind()]
		if !known {
			assert.NotEmpty(t, u.GetNamespace(), "%s %s is in no namespace, and not removed", u.GetKind(), u.GetName())
			continue
		}
		found++
		o := objectOf(u)
		assert.True(t, belongsToInstallation(k, o, types.Namespace), "%s %s is not removed", u.GetKind(), u.GetName())
	}
	assert.Greater(t, found, 25)
	for name, k := range map[string]Kind{"longhorn-uninstall": clusterRoles, "someone": policies, "standard": storageClasses} {
		assert.False(t, belongsToInstallation(k, named(name), types.Namespace), name)
	}
}

// While the ConfigMap exists, the manager creates the StorageClass again.
func TestTheStorageClassGoesAfterItsConfigMap(t *testing.T) {
	class := named("longhorn")
	class.Provisioner, class.Labels = types.DriverName, map[string]string{types.InstallationLabel: types.InstallationValue}
	w := world{}.with(storageClasses, class)
	assert.Equal(t, []string{"delete storageclasses/longhorn"}, did(plan(w.state())))
	assert.Equal(t, []string{"delete configmaps/longhorn-storageclass"}, did(plan(w.with(configMaps, named(types.StorageClassConfigMap)).state())))
}

// New volumes are created until the provisioner's last pod is gone. Only then are the policies deleted, which protect
// what a refused run leaves behind.
func TestCreatorsOfVolumesAreDeletedBeforeThePolicies(t *testing.T) {
	controller := deleted(Object{Name: "csi", UID: "u", Node: "a", Labels: map[string]string{types.LabelApp: "longhorn-csi-controller"}}, time.Hour)
	left, replicaSet := controller, named("longhorn-csi-controller-5d")
	left.DeletedAt, replicaSet.Labels = time.Time{}, controller.Labels
	policy := named("longhorn-keep-installation")
	w := world{}.with(kubeNodes, kubeNode("a", true)).with(policies, policy).with(policyBindings, policy)
	for _, tc := range []struct {
		name  string
		w     world
		steps []string
		waits []string
	}{
		{"its ConfigMap is there → goes", w.with(configMaps, named(types.StorageClassConfigMap)), []string{"delete configmaps/longhorn-storageclass"}, nil},
		{
			"its template is there as well → both go at once, or the manager would make it anew", w.with(configMaps, named(types.StorageClassTemplate), named(types.StorageClassConfigMap), named("longhorn-default-setting")),
			[]string{"delete configmaps/longhorn-default-storageclass", "delete configmaps/longhorn-storageclass"},
			nil,
		},
		{"the Deployment is there → goes", w.with(deployments, named("longhorn-csi-controller")), []string{"delete deployments/longhorn-csi-controller"}, nil},
		{"its ReplicaSet is left without it → goes before its pod", w.with(replicaSets, replicaSet).with(pods, left), []string{"delete replicasets/longhorn-csi-controller-5d"}, nil},
		{"its ReplicaSet is on its way out → its pod is waited for", w.with(replicaSets, deleted(replicaSet, 0)).with(pods, left), nil, []string{"replicasets/longhorn-csi-controller-5d", "pods/csi"}},
		{"somebody's ReplicaSet → stays", w.with(replicaSets, named("longhorn-curl")), []string{"delete validatingadmissionpolicybindings/longhorn-keep-installation", "delete validatingadmissionpolicies/longhorn-keep-installation"}, nil},
		{"its pod is left without any maker → goes", w.with(pods, left), []string{"delete pods/csi"}, nil},
		{"its pod still runs → waits", w.with(pods, controller), nil, []string{"pods/csi"}},
		{"all gone → the policies go", w, []string{"delete validatingadmissionpolicybindings/longhorn-keep-installation", "delete validatingadmissionpolicies/longhorn-keep-installation"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.w.state())
			assert.Equal(t, tc.steps, did(p))
			assert.Equal(t, tc.waits, p.Waits)
		})
	}
}

// If a volume is created before its creator's pod is gone, the same round must see the volume.
func TestDataIsReadAfterItsCreators(t *testing.T) {
	for _, k := range []Kind{configMaps, storageClasses, deployments, replicaSets, pods} {
		assert.Less(t, slices.Index(readOrder, k), slices.Index(readOrder, replicas), k.Resource)
		assert.Less(t, slices.Index(readOrder, k), slices.Index(readOrder, volumes), k.Resource)
	}
}

// Objects that the API server would delete with their definition are deleted before it. Otherwise a finalizer would
// keep them, and with them the definition.
func TestObjectsAreDeletedBeforeTheirDefinitions(t *testing.T) {
	definition := Object{Name: "things.longhorn.io", UID: "d", Labels: map[string]string{types.InstallationLabel: types.InstallationValue}}
	for _, k := range []Kind{attachments, instanceManagers, shareManagers, snapshots, nodes, globalSettings} {
		t.Run(k.Resource, func(t *testing.T) {
			w := world{}.with(definitions, definition).with(k, held(named("one")))
			assert.Equal(t, []string{"delete " + k.Resource + "/one"}, did(plan(w.state())))
			w[k][0] = deleted(w[k][0], time.Minute)
			assert.Equal(t, []string{"strip " + k.Resource + "/one"}, did(plan(w.state())))
			w[k][0].Finalizers = nil
			assert.Empty(t, did(plan(w.state())), "it is waited for")
		})
	}
}
