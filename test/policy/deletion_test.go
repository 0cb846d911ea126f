package policy

import (
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

// engineOn is an engine with its two members at two addresses.
func engineOn(node, state, modeOfOther string) string {
	return "{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: v-e-0, namespace: storage}, spec: {volumeName: v, nodeID: " + node + "}," +
		" status: {currentState: " + state + ", replicaModeMap: {r1: RW, r2: " + modeOfOther + "}," +
		" currentReplicaAddressMap: {r1: '10.0.0.1:8500', r2: '10.0.0.2:8500'}}}"
}

func TestWhatIsNotDeletedByHand(t *testing.T) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	account := func(name string) string { return "system:serviceaccount:storage:" + name }
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
			want: "namespaces storage holds the records of all volumes: deleting it would lose their data; to uninstall, run kubectl apply -f deploy/uninstall.yaml",
		},
		{name: "another namespace → accepted", policy: "longhorn-keep-installation", resource: namespaces, object: "{apiVersion: v1, kind: Namespace, metadata: {name: other}}"},
		{
			name: "a definition → refused", policy: "longhorn-keep-installation", resource: crds, object: definition,
			want: "customresourcedefinitions volumes.longhorn.io holds the records of all volumes: deleting it would lose their data; to uninstall, run kubectl apply -f deploy/uninstall.yaml",
		},

		{
			name: "the last good copy → refused, the volume is named", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			want: "replica v-r-1 has the last good copy of volume v: it cannot be deleted; to delete the volume, run kubectl -n storage delete volumes.longhorn.io v",
		},
		{name: "a copy that is not the last → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: someCopy},
		{name: "a copy of which nothing is said → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: newCopy},
		{name: "the last good copy, by the leader → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy, user: account("longhorn-manager-leader")},
		{
			name: "the last good copy, by an account of that name elsewhere → refused", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			user: "system:serviceaccount:other:longhorn-manager-leader",
			want: "replica v-r-1 has the last good copy of volume v: it cannot be deleted; to delete the volume, run kubectl -n storage delete volumes.longhorn.io v",
		},
		{
			name: "the last good copy, by the namespace's end → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy,
			user: "system:serviceaccount:kube-system:namespace-controller", groups: []string{"system:serviceaccounts:kube-system"},
		},
		{name: "the last good copy, by Kubernetes' controllers without accounts → accepted", policy: "longhorn-keep-last-copies", resource: ours("replicas"), object: lastCopy, user: "system:kube-controller-manager"},

		{name: "an instance manager, no engines → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager},
		{
			name: "an instance manager that runs an engine → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("a", "running", "RW")},
			want: "instance manager im runs the engine of volume v: deleting it would cut the volume; to move what is on its node elsewhere, run kubectl drain a --ignore-daemonsets --delete-emptydir-data",
		},
		{
			name: "an instance manager that runs one of two engines → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("b", "running", "RW"), engineOn("a", "stopping", "RW")},
			want:   "instance manager im runs the engine of volume v: deleting it would cut the volume; to move what is on its node elsewhere, run kubectl drain a --ignore-daemonsets --delete-emptydir-data",
		},
		{name: "its engine has stopped → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("a", "stopped", "RW")}},
		{
			name: "an engine that was never started → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{"{apiVersion: longhorn.io/v1beta2, kind: Engine, metadata: {name: v-e-0, namespace: storage}, spec: {volumeName: v}}"},
		},
		{name: "an engine elsewhere with another copy → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("b", "running", "RW")}},
		{
			name: "an engine elsewhere with the only good copy here → refused", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager, params: []string{engineOn("b", "running", "WO")},
			want: "instance manager im serves the last good copy of volume v: deleting it would cut the volume; to move what is on its node elsewhere, run kubectl drain a --ignore-daemonsets --delete-emptydir-data",
		},
		{
			name: "an instance manager that runs an engine, by the leader → accepted", policy: "longhorn-keep-instance-managers", resource: ours("instancemanagers"), object: manager,
			params: []string{engineOn("a", "running", "RW")}, user: account("longhorn-manager-leader"),
		},

		{
			name: "the attachment of an attached volume → refused", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: attached,
			want: "volume v is attached to node a: deleting this object would cut it; scale the workload that uses the volume down, and it is detached",
		},
		{name: "the attachment of a detached volume → accepted", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: detached},
		{name: "an attached volume, by the leader → accepted", policy: "longhorn-keep-attachments", resource: ours("volumeattachments"), object: attached, user: account("longhorn-manager-leader")},

		{
			name: "an engine with a record → refused", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine,
			want: "engine v-e-0 records which replicas hold the data of its volume: it cannot be deleted; delete the volume, and it goes with it",
		},
		{name: "an engine with a record, by the leader → accepted", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine, user: account("longhorn-manager-leader")},
		{
			name: "an engine with a record, by the manager of another namespace → refused", policy: "longhorn-keep-engines", resource: ours("engines"), object: engine,
			user: "system:serviceaccount:longhorn-system:longhorn-manager",
			want: "engine v-e-0 records which replicas hold the data of its volume: it cannot be deleted; delete the volume, and it goes with it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.user == "" {
				tc.user = "admin"
			}
			tc.groups = append(tc.groups, "system:authenticated") // as each request has that was let in
			assert.Equal(t, tc.want, refusal(t, all[tc.policy], request{
				operation: admission.Delete, resource: tc.resource, old: tc.object, params: tc.params, user: tc.user, groups: tc.groups,
			}))
		})
	}
}
