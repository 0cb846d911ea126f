package policy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

const leader = "system:serviceaccount:storage:longhorn-manager-leader"

// TestTheLeaderMakesThePodsOfSharesAlone changes one detail at a time of the objects that the leader creates.
func TestTheLeaderMakesThePodsOfSharesAlone(t *testing.T) {
	p := policies(t)["longhorn-leader-scope"]
	const (
		notShares = "it must have the labels and the name of a share, and the ShareManager of that share as its only owner"
		secrets   = "must not use a service account or Secrets, and may mount only /dev and /run/longhorn/share of its node and the ConfigMap longhorn-share-clients: the leader may create only the pods of shares"
		slice     = "it must have the labels and the name of a share"
		leads     = "must contain only port 2049 of the pod of its share, and have that pod or its ShareManager as its only owner"
		role      = "must have only one container, which runs share-manager, and must not set hostNetwork, hostPID, hostIPC or nodeName: the scheduler chooses its node"
		service   = "must be of type ClusterIP, have no external addresses, and select the pod of its share"
	)
	for _, tc := range []struct {
		name, resource string
		was, is        string // was is replaced by is once; empty: nothing is replaced
		want           string // at the end of the refusal; empty: accepted
	}{
		{"the pod of a share → accepted", "pod", "", "", ""},
		{"as the admission of accounts completes it → accepted", "pod", "spec:\n", "spec:\n  serviceAccountName: default\n", ""},
		{"with a field of itself in its environment → accepted", "pod", "    env:\n", "    env:\n    - {name: N, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}\n", ""},
		{"of no share → refused", "pod", "longhorn.io/share-manager: vol", "a: b", notShares},
		{"of another component → refused", "pod", "longhorn.io/component: share-manager", "longhorn.io/component: instance-manager", notShares},
		{"without a label → refused", "pod", "  labels:\n", "", notShares},
		{"of another name → refused", "pod", "name: share-manager-vol\n", "name: share-manager-other\n", notShares},
		{"of a name that the API server chooses → refused", "pod", "name: share-manager-vol\n", "generateName: share-manager-vol\n", notShares},
		{"of another volume's share manager → refused", "pod", "    name: vol\n", "    name: other\n", notShares},
		{"of something else → refused", "pod", "kind: ShareManager", "kind: Volume", notShares},
		{"of another API's share manager → refused", "pod", "apiVersion: longhorn.io/", "apiVersion: longhorn.io.example/", notShares},
		{"not controlled → refused", "pod", "    controller: true", "    controller: false", notShares},
		{"of nobody → refused", "pod", "  ownerReferences:\n", "  managedFields:\n", notShares},

		{"with the leader's account → refused", "pod", "spec:\n", "spec:\n  serviceAccountName: longhorn-manager-leader\n", secrets},
		{"with a token → refused", "pod", "  automountServiceAccountToken: false\n", "", secrets},
		{"with a Secret → refused", "pod", "  volumes:\n", "  volumes:\n  - {name: s, secret: {secretName: k}}\n", secrets},
		{"with a projected token → refused", "pod", "  volumes:\n", "  volumes:\n  - {name: s, projected: {sources: []}}\n", secrets},
		{"with another directory of the node → refused", "pod", "      path: /dev\n", "      path: /etc/kubernetes\n", secrets},
		{"with the directory that also has the socket of the data plane → refused", "pod", "      path: /run/longhorn/share\n", "      path: /run/longhorn\n", secrets},
		{"with another ConfigMap → refused", "pod", "      name: longhorn-share-clients\n", "      name: kube-root-ca.crt\n", secrets},
		{"with a Secret in its environment → refused", "pod", "    env:\n", "    env:\n    - {name: S, valueFrom: {secretKeyRef: {name: k, key: k}}}\n", secrets},
		{"with all of a Secret in its environment → refused", "pod", "  - args:", "  - envFrom: [{secretRef: {name: k}}]\n    args:", secrets},
		{"with something that runs before → refused", "pod", "  containers:\n", "  initContainers: [{name: i}]\n  containers:\n", secrets},

		{"on a node of the leader's choice → refused", "pod", "spec:\n", "spec:\n  nodeName: a\n", role},
		{"in the node's network → refused", "pod", "spec:\n", "spec:\n  hostNetwork: true\n", role},
		{"among the node's processes → refused", "pod", "spec:\n", "spec:\n  hostPID: true\n", role},
		{"in the node's shared memory → refused", "pod", "spec:\n", "spec:\n  hostIPC: true\n", role},
		{"with another container → refused", "pod", "  containers:\n", "  containers:\n  - {name: i, args: [share-manager]}\n", role},
		{"as another role → refused", "pod", "    - share-manager\n", "    - instance-manager\n", role},
		{"as another program → refused", "pod", "  - args:", "  - command: [sh]\n    args:", role},

		{"the Service of a share → accepted", "service", "", "", ""},
		{"of another name → refused", "service", "  name: vol\n", "  name: longhorn-backend\n", notShares},
		{"that leads to other pods → refused", "service", "    longhorn.io/share-manager: vol\n  type", "    longhorn.io/share-manager: other\n  type", service},
		{"that leads to whatever its Endpoints say → refused", "service", "  selector:\n", "  sessionAffinityConfig:\n", service},
		{"on ports of all nodes → refused", "service", "  type: ClusterIP", "  type: NodePort", service},
		{"with an address of somebody else → refused", "service", "  type: ClusterIP", "  type: ClusterIP\n  externalIPs: [192.0.2.1]", service},

		{"the slice of a share → accepted", "endpointslice", "", "", ""},
		{"without an address → accepted", "endpointslice", "endpoints:\n- ", "endpoints: []\nother:\n- ", ""},
		{"without a list of addresses → accepted", "endpointslice", "endpoints:\n- ", "endpoints: null\nother:\n- ", ""},
		{"owned by its ShareManager → accepted", "endpointslice", "apiVersion: v1\n    kind: Pod\n    name: share-manager-vol\n", "apiVersion: longhorn.io/v1beta2\n    kind: ShareManager\n    name: vol\n", ""},
		{"of no share → refused", "endpointslice", "longhorn.io/share-manager: vol", "a: b", slice},
		{"of another component → refused", "endpointslice", "longhorn.io/component: share-manager", "longhorn.io/component: instance-manager", slice},
		{"of another name → refused", "endpointslice", "  name: share-manager-vol\n  namespace", "  name: longhorn-backend-abcde\n  namespace", slice},
		{"of another Service → refused", "endpointslice", "kubernetes.io/service-name: vol", "kubernetes.io/service-name: longhorn-backend", slice},
		{"of Kubernetes → refused", "endpointslice", "managed-by: share-manager.longhorn.io", "managed-by: endpointslice-controller.k8s.io", slice},
		{"of another pod's → refused", "endpointslice", "    name: share-manager-vol\n    uid: pod\nports", "    name: other\n    uid: pod\nports", leads},
		{"of another kind of owner → refused", "endpointslice", "    kind: Pod\n    name: share-manager-vol\n", "    kind: Service\n    name: vol\n", leads},
		{"of another volume's owner → refused", "endpointslice", "apiVersion: v1\n    kind: Pod\n    name: share-manager-vol\n", "apiVersion: longhorn.io/v1beta2\n    kind: ShareManager\n    name: other\n", leads},
		{"of nobody → refused", "endpointslice", "  ownerReferences:\n", "  managedFields:\n", leads},
		{"that leads to another pod → refused", "endpointslice", "    kind: Pod\n    name: share-manager-vol\n    namespace", "    kind: Pod\n    name: other\n    namespace", leads},
		{"that leads to something else → refused", "endpointslice", "    kind: Pod\n    name: share-manager-vol\n    namespace", "    kind: Node\n    name: share-manager-vol\n    namespace", leads},
		{"that does not say where it leads → refused", "endpointslice", "  targetRef:\n", "  other:\n", leads},
		{"that leads to two addresses → refused", "endpointslice", "  - 10.1.0.7\n", "  - 10.1.0.7\n  - 10.1.0.8\n", leads},
		{"that leads to two pods → refused", "endpointslice", "endpoints:\n", "endpoints:\n- addresses: [10.1.0.8]\n  targetRef: {kind: Pod, name: share-manager-vol}\n", leads},
		{"to another port → refused", "endpointslice", "port: 2049", "port: 9500", leads},
	} {
		t.Run(tc.resource+" "+tc.name, func(t *testing.T) {
			text := made(t, tc.resource)
			require.GreaterOrEqual(t, strings.Count(text, tc.was), 1, "%q in %s", tc.was, text)
			text = strings.Replace(text, tc.was, tc.is, 1)
			r := request{operation: admission.Create, resource: leaderResource(tc.resource), object: text, user: leader}
			got := refusal(t, p, r)
			if tc.want == "" {
				assert.Empty(t, got)
			} else {
				assert.True(t, strings.HasSuffix(got, tc.want), "%q", got)
			}
			for _, other := range []string{"system:serviceaccount:storage:longhorn-manager", "system:serviceaccount:other:longhorn-manager-leader"} {
				r.user = other
				assert.Empty(t, refusal(t, p, r), other)
			}
		})
	}
}

// made returns an object that the leader creates, in the namespace of these tests.
func made(t *testing.T, resource string) string {
	t.Helper()
	text, err := os.ReadFile("../../controller/sharemanager/testdata/" + resource + ".yaml")
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "namespace: ns\n", "namespace: storage\n")
}

func leaderResource(name string) schema.GroupVersionResource {
	r := schema.GroupVersionResource{Version: "v1", Resource: name + "s"}
	if name == "endpointslice" {
		r.Group = "discovery.k8s.io"
	}
	return r
}

func TestTheLeaderChangesAndDeletesTheSlicesOfSharesAlone(t *testing.T) {
	p := policies(t)["longhorn-leader-scope"]
	ours := made(t, "endpointslice")
	anothers := strings.NewReplacer("longhorn.io/share-manager: vol", "a: b", "managed-by: share-manager.longhorn.io", "managed-by: endpointslice-controller.k8s.io",
		"  name: share-manager-vol\n  namespace", "  name: longhorn-backend-abcde\n  namespace").Replace(ours)
	for _, tc := range []struct {
		name      string
		operation admission.Operation
		was, is   string
		refused   bool
	}{
		{"a share's → changed", admission.Update, ours, strings.Replace(ours, "10.1.0.7", "10.1.0.8", 1), false},
		{"a share's that someone changed → repaired", admission.Update, strings.Replace(ours, "longhorn.io/share-manager: vol", "a: b", 1), ours, false},
		{"a share's → not to two addresses", admission.Update, ours, strings.Replace(ours, "  - 10.1.0.7\n", "  - 10.1.0.7\n  - 10.1.0.8\n", 1), true},
		{"a share's → not to be another Service's", admission.Update, ours, strings.Replace(ours, "service-name: vol", "service-name: longhorn-backend", 1), true},
		{"another Service's → not changed", admission.Update, anothers, strings.Replace(anothers, "10.1.0.7", "10.1.0.8", 1), true},
		{"another Service's → not with the labels of a share", admission.Update, anothers, strings.Replace(ours, "  name: share-manager-vol\n  namespace", "  name: longhorn-backend-abcde\n  namespace", 1), true},
		{"a share's → deleted", admission.Delete, ours, "", false},
		{"a share's that leads elsewhere → deleted", admission.Delete, strings.Replace(ours, "  ownerReferences:\n", "  managedFields:\n", 1), "", false},
		{"another Service's → not deleted", admission.Delete, anothers, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{operation: tc.operation, resource: leaderResource("endpointslice"), old: tc.was, object: tc.is, user: leader}
			assert.Equal(t, tc.refused, refusal(t, p, r) != "", "%q", refusal(t, p, r))
			r.user = "system:serviceaccount:kube-system:endpointslice-controller"
			assert.Empty(t, refusal(t, p, r))
		})
	}
}
