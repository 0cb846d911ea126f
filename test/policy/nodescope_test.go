package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func TestADaemonWritesItsOwnNodeAlone(t *testing.T) {
	p := policies(t)["longhorn-node-scope"]
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	onNode := func(kind, node string) string {
		return "{apiVersion: longhorn.io/v1beta2, kind: " + kind + ", metadata: {name: x, namespace: storage}, spec: {nodeID: '" + node + "'}}"
	}
	lhn := func(name string) string {
		return "{apiVersion: longhorn.io/v1beta2, kind: Node, metadata: {name: " + name + ", namespace: storage}}"
	}
	pod := func(node, more string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: storage}, spec: {nodeName: '" + node + "', " + more + "}}"
	}
	const (
		good = "serviceAccountName: default, automountServiceAccountToken: false, volumes: [{name: h, hostPath: {path: /}}]," +
			" containers: [{name: c, env: [{name: A, value: b}, {name: N, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]"
		withoutSpec = "{apiVersion: longhorn.io/v1beta2, kind: Replica, metadata: {name: x, namespace: storage}}"

		foreign = "the daemon of node a may not write "
		secrets = "pod x must not use a service account or Secrets: a daemon may create only the pod of its instance manager"
	)
	for _, tc := range []struct {
		name        string
		operation   admission.Operation
		resource    schema.GroupVersionResource
		subresource string
		old, object string
		want        string
	}{
		{"the status of a replica here → accepted", admission.Update, ours("replicas"), "status", onNode("Replica", "a"), onNode("Replica", "a"), ""},
		{"the status of a replica elsewhere → refused", admission.Update, ours("replicas"), "status", onNode("Replica", "b"), onNode("Replica", "b"), foreign + "replicas x, which belongs to node b"},
		{"the finalizer of a replica elsewhere → refused", admission.Update, ours("replicas"), "", onNode("Replica", "b"), onNode("Replica", "b"), foreign + "replicas x, which belongs to node b"},
		{"a replica elsewhere is said to be here → refused", admission.Update, ours("replicas"), "", onNode("Replica", "b"), onNode("Replica", "a"), foreign + "replicas x, which belongs to node b"},
		{"a replica here is sent elsewhere → refused", admission.Update, ours("replicas"), "", onNode("Replica", "a"), onNode("Replica", "b"), foreign + "replicas x, which belongs to node b"},
		{"an engine of no node → refused", admission.Update, ours("engines"), "status", onNode("Engine", ""), onNode("Engine", ""), foreign + "engines x, which belongs to no node"},
		{"an engine here → accepted", admission.Update, ours("engines"), "", onNode("Engine", "a"), onNode("Engine", "a"), ""},
		{"its own node is made → accepted", admission.Create, ours("nodes"), "", "", lhn("a"), ""},
		{"another node is made → refused", admission.Create, ours("nodes"), "", "", lhn("b"), foreign + "nodes b, which belongs to node b"},
		{"the status of another node → refused", admission.Update, ours("nodes"), "status", lhn("b"), lhn("b"), foreign + "nodes b, which belongs to node b"},
		{"its own instance manager → accepted", admission.Create, ours("instancemanagers"), "", "", onNode("InstanceManager", "a"), ""},
		{"another instance manager → refused", admission.Create, ours("instancemanagers"), "", "", onNode("InstanceManager", "b"), foreign + "instancemanagers x, which belongs to node b"},
		{"the status of another instance manager → refused", admission.Update, ours("instancemanagers"), "status", onNode("InstanceManager", "b"), onNode("InstanceManager", "b"), foreign + "instancemanagers x, which belongs to node b"},
		{"a replica that nothing is said of yet → refused", admission.Update, ours("replicas"), "", withoutSpec, onNode("Replica", "a"), foreign + "replicas x, which belongs to no node"},
		{"a replica elsewhere is deleted → refused", admission.Delete, ours("replicas"), "", onNode("Replica", "b"), "", foreign + "replicas x, which belongs to node b"},
		{"another node is deleted → refused", admission.Delete, ours("nodes"), "", lhn("b"), "", foreign + "nodes b, which belongs to node b"},

		{"a pod here → accepted", admission.Create, pods, "", "", pod("a", good), ""},
		{"a pod elsewhere → refused", admission.Create, pods, "", "", pod("b", good), foreign + "pods x, which belongs to node b"},
		{"a pod that a scheduler places → refused", admission.Create, pods, "", "", pod("", good), foreign + "pods x, which belongs to no node"},
		{"a pod here is deleted → accepted", admission.Delete, pods, "", pod("a", "containers: []"), "", ""},
		{"a pod elsewhere is deleted → refused", admission.Delete, pods, "", pod("b", "containers: []"), "", foreign + "pods x, which belongs to node b"},
		{"a pod with the leader's account → refused", admission.Create, pods, "", "", pod("a", "serviceAccountName: longhorn-manager-leader, automountServiceAccountToken: false, containers: [{name: c}]"), secrets},
		{"a pod with a token → refused", admission.Create, pods, "", "", pod("a", "containers: [{name: c}]"), secrets},
		{"a pod that mounts a Secret → refused", admission.Create, pods, "", "", pod("a", "automountServiceAccountToken: false, volumes: [{name: s, secret: {secretName: k}}], containers: [{name: c}]"), secrets},
		{"a pod that projects a token → refused", admission.Create, pods, "", "", pod("a", "automountServiceAccountToken: false, volumes: [{name: s, projected: {sources: []}}], containers: [{name: c}]"), secrets},
		{"a pod with a Secret in its environment → refused", admission.Create, pods, "", "", pod("a", "automountServiceAccountToken: false, containers: [{name: c, env: [{name: S, valueFrom: {secretKeyRef: {name: k, key: k}}}]}]"), secrets},
		{"a pod with all of a Secret in its environment → refused", admission.Create, pods, "", "", pod("a", "automountServiceAccountToken: false, containers: [{name: c, envFrom: [{secretRef: {name: k}}]}]"), secrets},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{
				operation: tc.operation, resource: tc.resource, subresource: tc.subresource, old: tc.old, object: tc.object,
				user: "system:serviceaccount:storage:longhorn-manager", extra: map[string][]string{"authentication.kubernetes.io/node-name": {"a"}},
			}
			assert.Equal(t, tc.want, refusal(t, p, r))
			r.user = "system:serviceaccount:storage:longhorn-manager-leader"
			assert.Empty(t, refusal(t, p, r), "by the leader")
			r.user = "system:serviceaccount:other:longhorn-manager"
			assert.Empty(t, refusal(t, p, r), "by an account of another namespace, which has no rights here")
		})
	}
	for name, extra := range map[string]map[string][]string{
		"a token that names no node → refused":   nil,
		"a token that names two nodes → refused": {"authentication.kubernetes.io/node-name": {"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{operation: admission.Create, resource: ours("nodes"), object: lhn("a"), user: "system:serviceaccount:storage:longhorn-manager", extra: extra}
			assert.Equal(t, "the token of system:serviceaccount:storage:longhorn-manager does not name exactly one node: it must be a token that a kubelet requested for a pod", refusal(t, p, r))
		})
	}
}

// An administrator may apply the manifests of an earlier release to go back to it. They leave this policy in place and
// give the leader's rights to the account of the daemons.
func TestADaemonThatLeadsWithItsOwnAccountIsNotHeldToItsNode(t *testing.T) {
	p := policies(t)["longhorn-node-scope"]
	r := request{
		operation: admission.Create, resource: ours("replicas"), user: "system:serviceaccount:storage:longhorn-manager",
		object: "{apiVersion: longhorn.io/v1beta2, kind: Replica, metadata: {name: x, namespace: storage}, spec: {nodeID: b}}",
		extra:  map[string][]string{"authentication.kubernetes.io/node-name": {"a"}},
	}
	assert.Contains(t, refusal(t, p, r), "which belongs to node b")
	r.rights = rights{"create secrets"}
	assert.Empty(t, refusal(t, p, r))
}
