package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func ours(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: resource}
}

const (
	namespace  = "{apiVersion: v1, kind: Namespace, metadata: {name: storage, labels: {longhorn.io/installation: lep}}}"
	definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: volumes.longhorn.io, labels: {longhorn.io/installation: lep}}}"
	lastCopy   = "{apiVersion: longhorn.io/v1beta2, kind: Replica, metadata: {name: v-r-1, namespace: storage, annotations: {longhorn.io/last-good-copy: ''}}, spec: {volumeName: v}}"
	someCopy   = "{apiVersion: longhorn.io/v1beta2, kind: Replica, metadata: {name: v-r-1, namespace: storage, annotations: {other: ''}}, spec: {volumeName: v}}"
	newCopy    = "{apiVersion: longhorn.io/v1beta2, kind: Replica, metadata: {name: v-r-1, namespace: storage}}"
	manager    = "{apiVersion: longhorn.io/v1beta2, kind: InstanceManager, metadata: {name: im, namespace: storage}, spec: {nodeID: a}, status: {ip: 10.0.0.1}}"
	attached   = "{apiVersion: longhorn.io/v1beta2, kind: VolumeAttachment, metadata: {name: v, namespace: storage}, spec: {volume: v, attachmentTickets: {t: {id: t, nodeID: a}}}}"
	detached   = "{apiVersion: longhorn.io/v1beta2, kind: VolumeAttachment, metadata: {name: v, namespace: storage}, spec: {volume: v}}"
	engine     = "{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: v-e-0, namespace: storage}, spec: {volumeName: v, nodeID: a}, status: {epoch: {generation: 1}}}"
)

// volume returns a volume with more fields: "spec: {…}" or "status: {…}".
func volume(of string) string {
	return "{apiVersion: longhorn.io/v1beta2, kind: Volume, metadata: {name: v, namespace: storage}, " + of + "}"
}

// volumeOf returns the PersistentVolume of a volume, with a claim in that phase.
func volumeOf(volume, driver, phase string) string {
	return "{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-" + volume + "}, spec: {csi: {driver: " + driver + ", volumeHandle: " + volume + "}," +
		" claimRef: {namespace: shop, name: data-db-0}}, status: {phase: " + phase + "}}"
}

// engineOn returns an engine with its two members at two addresses.
func engineOn(node, state, modeOfOther string) string {
	return "{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: v-e-0, namespace: storage}, spec: {volumeName: v, nodeID: " + node + "}," +
		" status: {currentState: " + state + ", replicaModeMap: {r1: RW, r2: " + modeOfOther + "}," +
		" currentReplicaAddressMap: {r1: '10.0.0.1:8500', r2: '10.0.0.2:8500'}}}"
}

func TestWhatIsNotDeletedByHand(t *testing.T) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	account := func(name string) string { return "system:serviceaccount:storage:" + name }
	const servesCopy = "instance manager im serves a replica of volume v, which is in use: it cannot be deleted, because deleting several instance managers at once would interrupt access to the volume;" +
		" to move the workloads of its node to other nodes, run kubectl drain a --ignore-daemonsets --delete-emptydir-data"
	inUse := func(how string) string {
		return "volume v is in use (" + how + "): it cannot be deleted, because its data would be lost; delete the pods that use it, then its PersistentVolumeClaim;" +
			" the volume is deleted with the claim if the reclaim policy of its PersistentVolume is Delete; if the volume was attached by hand, detach it first; to uninstall, follow docs/UNINSTALL.md"
	}
	all := policies(t)
	for _, tc := range []struct {
		name, policy string
		resource     schema.GroupVersionResource
		object       string
		params       []string
		user         string
		groups       []string
		want         string
	}{
		{
			name: "the namespace → refused, the uninstaller is named", policy: "longhorn-keep-installation", resource: namespaces, object: namespace,
			want: "namespaces storage holds the records of all volumes: it cannot be deleted, because the data of all volumes would be lost; to uninstall, follow docs/UNINSTALL.md",
		},
		{name: "another namespace → accepted", policy: "longhorn-keep-installation", resource: namespaces, object: "{apiVersion: v1, kind: Namespace, metadata: {name: other}}"},
		{
			name: "a definition → refused", policy: "longhorn-keep-installation", resource: crds, object: definition,
			want: "customresourcedefinitions volumes.longhorn.io holds the records of all volumes: it cannot be deleted, because the data of all volumes would be lost; to uninstall, follow docs/UNINSTALL.md",
		},

		{
			name: "the last healthy replica → refused, the volume is named", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			want: "replica v-r-1 is the last healthy replica of volume v (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n storage delete volumes.longhorn.io v",
		},
		{name: "a copy that is not the last → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: someCopy},
		{name: "a copy of which nothing is said → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: newCopy},
		{name: "the last healthy replica, by the leader → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy, user: account("longhorn-manager-leader")},
		{
			name: "the last healthy replica, by an account of that name elsewhere → refused", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			user: "system:serviceaccount:other:longhorn-manager-leader",
			want: "replica v-r-1 is the last healthy replica of volume v (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n storage delete volumes.longhorn.io v",
		},
		{
			name: "the last healthy replica, by the namespace's end → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			user: "system:serviceaccount:kube-system:namespace-controller", groups: []string{"system:serviceaccounts:kube-system"},
		},
		{name: "the last healthy replica, by Kubernetes' controllers without accounts → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy, user: "system:kube-controller-manager"},

		{
			name: "an attached volume → refused, the way is named", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: a}, status: {state: attached, currentNodeID: a}"), want: inUse("attached, node a"),
		},
		{
			name: "a volume that begins to be attached → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: a}, status: {state: detached}"), want: inUse("attaching, node a"),
		},
		{
			name: "an attaching volume → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: a}, status: {state: attaching}"), want: inUse("attaching, node a"),
		},
		{
			name: "a detaching volume whose engine cannot be shut out, and that nothing asks for → accepted: there is no other way out", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: ''}, status: {state: detaching, currentNodeID: a, conditions: [{type: Faulted, status: 'True', reason: NotFenced}]}"),
		},
		{
			name: "the same volume while something asks for it → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: b}, status: {state: detaching, currentNodeID: a, conditions: [{type: Faulted, status: 'True', reason: NotFenced}]}"), want: inUse("detaching, node a"),
		},
		{
			name: "a detaching volume that is faulted for another reason → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: ''}, status: {state: detaching, currentNodeID: a, conditions: [{type: Faulted, status: 'True', reason: EngineFailed}, {type: Attaching, status: 'True', reason: NotFenced}]}"), want: inUse("detaching, node a"),
		},
		{
			name: "a detaching volume → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("spec: {nodeID: ''}, status: {state: detaching, currentNodeID: a}"), want: inUse("detaching, node a"),
		},
		{
			name: "a detaching volume whose node is not said → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("status: {state: detaching}"), want: inUse("detaching"),
		},
		{name: "a detached volume → accepted", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"), object: volume("spec: {nodeID: ''}, status: {state: detached, currentNodeID: ''}")},
		{name: "a volume of which nothing is known → accepted", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"), object: volume("spec: {}")},
		{
			name: "an attached volume that is deleted already → accepted", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: "{apiVersion: longhorn.io/v1beta2, kind: Volume, metadata: {name: v, namespace: storage, deletionTimestamp: '2026-01-01T00:00:00Z'}, status: {state: deleting, currentNodeID: a}}",
		},
		{
			name: "an attached volume, by the leader, as for REST and CSI → refused", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("status: {state: attached, currentNodeID: a}"), user: account("longhorn-manager-leader"), want: inUse("attached, node a"),
		},
		{
			name: "an attached volume, by the namespace's end → accepted", policy: "longhorn-keep-attached-volumes", resource: ours("volumes"),
			object: volume("status: {state: attached, currentNodeID: a}"), groups: []string{"system:serviceaccounts:kube-system"},
		},

		{
			name: "the volume of a bound claim → refused, the claim is named", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{volumeOf("other", "driver.longhorn.io", "Bound"), volumeOf("v", "driver.longhorn.io", "Bound")},
			want: "volume v has the data of PersistentVolumeClaim shop/data-db-0: it cannot be deleted while that claim exists; run kubectl -n shop delete pvc data-db-0;" +
				" the volume is then deleted automatically if PersistentVolume pv-v has the reclaim policy Delete",
		},
		{name: "no PersistentVolume at all → accepted", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}")},
		{
			name: "the claim is gone → accepted", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{volumeOf("v", "driver.longhorn.io", "Released")},
		},
		{
			name: "another driver's volume of that name, and one of no driver → accepted", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{volumeOf("v", "driver.example.org", "Bound"), "{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {local: {path: /mnt}}}"},
		},
		{
			name: "a PersistentVolume that was made by hand, with no claim yet → accepted", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{"{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {csi: {driver: driver.longhorn.io, volumeHandle: v}}}"},
		},
		{
			name: "the volume of a bound claim, by the leader, as for REST and CSI → refused", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{volumeOf("v", "driver.longhorn.io", "Bound")}, user: account("longhorn-manager-leader"),
			want: "volume v has the data of PersistentVolumeClaim shop/data-db-0: it cannot be deleted while that claim exists; run kubectl -n shop delete pvc data-db-0;" +
				" the volume is then deleted automatically if PersistentVolume pv-v has the reclaim policy Delete",
		},
		{
			name: "the claim is gone, by the leader, as for CSI → accepted", policy: "longhorn-keep-claimed-volumes", resource: ours("volumes"), object: volume("spec: {}"),
			params: []string{volumeOf("v", "driver.longhorn.io", "Released")}, user: account("longhorn-manager-leader"),
		},

		{name: "an instance manager, no engines → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager},
		{
			name: "an instance manager that runs an engine → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("a", "running", "RW")},
			want: "instance manager im runs the engine of volume v: it cannot be deleted, because access to the volume would be interrupted; to move the workloads of its node to other nodes, run kubectl drain a --ignore-daemonsets --delete-emptydir-data",
		},
		{
			name: "an instance manager that runs one of two engines → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("b", "stopped", "RW"), engineOn("a", "stopping", "RW")},
			want:   "instance manager im runs the engine of volume v: it cannot be deleted, because access to the volume would be interrupted; to move the workloads of its node to other nodes, run kubectl drain a --ignore-daemonsets --delete-emptydir-data",
		},
		{name: "its engine has stopped → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("a", "stopped", "RW")}},
		{
			name: "an engine that was never started → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{"{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: v-e-0, namespace: storage}, spec: {volumeName: v}}"},
		},
		{
			name: "an engine elsewhere with a copy here and another one → refused, the other may be deleted at once", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("b", "running", "RW")}, want: servesCopy,
		},
		{
			name: "an engine elsewhere with the only healthy replica here → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("b", "running", "WO")}, want: servesCopy,
		},
		{
			name: "an engine elsewhere with a copy here that has failed → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: strings.ReplaceAll(manager, "10.0.0.1", "10.0.0.2"),
			params: []string{engineOn("b", "running", "ERR")},
		},
		{
			name: "an engine elsewhere without a copy here → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: strings.ReplaceAll(manager, "10.0.0.1", "10.0.0.11"),
			params: []string{engineOn("b", "running", "RW")},
		},
		{
			name: "copies of an engine elsewhere that has stopped → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("b", "stopped", "RW")},
		},
		{
			name: "an instance manager that runs an engine, by the leader → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("a", "running", "RW")}, user: account("longhorn-manager-leader"),
		},

		{
			name: "the attachment of an attached volume → refused", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: attached,
			want: "volume v is attached to node a: this object cannot be deleted, because access to the volume would be interrupted; scale down the workload that uses the volume; the volume is then detached automatically",
		},
		{name: "the attachment of a detached volume → accepted", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: detached},
		{name: "an attached volume, by the leader → accepted", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: attached, user: account("longhorn-manager-leader")},

		{
			name: "an engine with a record → refused", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine,
			want: "engine v-e-0 records which replicas hold the data of its volume: it cannot be deleted; it is deleted automatically when its volume is deleted",
		},
		{name: "an engine with a record, by the leader → accepted", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine, user: account("longhorn-manager-leader")},
		{
			name: "an engine with a record, by the manager of another namespace → refused", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine,
			user: "system:serviceaccount:longhorn-system:longhorn-manager",
			want: "engine v-e-0 records which replicas hold the data of its volume: it cannot be deleted; it is deleted automatically when its volume is deleted",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.user == "" {
				tc.user = "admin"
			}
			tc.groups = append(tc.groups, "system:authenticated") // like every authenticated request
			assert.Equal(t, tc.want, refusal(t, all[tc.policy], request{
				operation: admission.Delete, resource: tc.resource, old: tc.object, params: tc.params, user: tc.user, groups: tc.groups,
			}))
		})
	}
}
