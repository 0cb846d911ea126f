package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// UnknownVersion is the version of a program that was built without one.
const UnknownVersion = "unknown"

// Versions says which versions run where. Scripts use its JSON.
type Versions struct {
	// Client is the version of this program.
	Client string `json:"client"`
	// Kubernetes is the version of the API server.
	Kubernetes string        `json:"kubernetes,omitempty"`
	Nodes      []NodeVersion `json:"nodes,omitempty"`
	// Unseen lists the kinds that the user may not read.
	Unseen []string `json:"unseen,omitempty"`

	namespace string
}

// NodeVersion contains the versions that one node runs.
type NodeVersion struct {
	Node string `json:"node"`
	// DataPlane is the version of the process that serves the node's volumes; empty: it is not known.
	DataPlane string `json:"dataPlane"`
	// DaemonImage is the image of the node's longhorn-manager; empty: the node has no daemon.
	DaemonImage string `json:"daemonImage"`
	DaemonReady bool   `json:"daemonReady"`
	Leader      bool   `json:"leader"`
}

// Versions reads the versions of the cluster and of the installation in the namespace. If it fails, the result contains
// the versions that it had read before.
func (c Cluster) Versions(ctx context.Context, client string) (Versions, error) {
	v := Versions{Client: client, namespace: c.Namespace}
	server, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return v, fmt.Errorf("ask for the version of the API server: %w", err)
	}
	v.Kubernetes = server.GitVersion
	s := &explain.Snapshot{}
	g := gathering{ctx: ctx, s: s}
	managers := gather[longhorn.InstanceManager](&g, explain.ResourceInstanceManagers, c.Longhorn.LonghornV1beta2().InstanceManagers(c.Namespace).List, "")
	pods := gather[corev1.Pod](&g, explain.ResourcePods, c.Kube.CoreV1().Pods(c.Namespace).List, "")
	if g.err != nil {
		return v, g.err
	}
	lease, err := c.Kube.CoordinationV1().Leases(c.Namespace).Get(ctx, types.LeaderLease, metav1.GetOptions{})
	if err != nil {
		lease = nil // without the right to read it, or without a leader
	}
	v.Nodes, v.Unseen = nodeVersions(managers, pods, lease), s.Unseen
	if len(v.Nodes) == 0 && (err == nil || apierrors.IsNotFound(err)) {
		return v, c.CheckInstalled(ctx)
	}
	return v, nil
}

// nodeVersions combines the versions that the objects report for each node. lease may be nil.
func nodeVersions(managers []*longhorn.InstanceManager, pods []*corev1.Pod, lease *coordinationv1.Lease) []NodeVersion {
	byNode := map[string]*NodeVersion{}
	of := func(node string) *NodeVersion {
		if byNode[node] == nil {
			byNode[node] = &NodeVersion{Node: node}
		}
		return byNode[node]
	}
	for _, im := range managers {
		of(im.Spec.NodeID).DataPlane = im.Status.Version
	}
	for _, pod := range pods {
		if pod.Labels[types.LabelApp] != types.AppManager || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		n := of(pod.Spec.NodeName)
		n.DaemonReady = isReady(pod)
		n.Leader = pod.Spec.NodeName == leaderNode(lease)
		for _, container := range pod.Spec.Containers {
			if container.Name == types.AppManager || len(pod.Spec.Containers) == 1 {
				n.DaemonImage = container.Image
			}
		}
	}
	var list []NodeVersion
	for _, n := range byNode {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b NodeVersion) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// leaderNode returns the node of the leader; "": it is not known. The holder of the Lease is <node>/<pod IP>.
func leaderNode(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	node, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "/")
	return node
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Notes returns sentences about unusual versions, with the next steps.
func (v Versions) Notes() []string {
	images, planes := map[string]bool{}, map[string]bool{}
	for _, n := range v.Nodes {
		images[n.DaemonImage] = true
		planes[n.DataPlane] = true
	}
	delete(images, "")
	delete(planes, "")
	var notes []string
	if len(images) > 1 {
		notes = append(notes, "The daemons have different images: an upgrade is running, or it has stopped. See how far it is: kubectl -n "+v.namespace+" rollout status daemonset/longhorn-manager")
	}
	if len(planes) > 1 {
		notes = append(notes, "The data planes have different versions. Each daemon replaces the data plane of its node when that is possible without an interruption (docs/UPGRADE.md).")
	}
	if len(planes) == 1 && !planes[v.Client] && v.Client != UnknownVersion {
		notes = append(notes, "This program has another version than the data planes. If no upgrade is running, copy the program out of a daemon's pod again (docs/COMMANDS.md).")
	}
	return notes
}

// Versions prints the versions and the notes about them.
func (p Printer) Versions(v Versions) {
	fmt.Fprintf(p.Out, "Client:      %s\n", v.Client)
	if v.Kubernetes != "" {
		fmt.Fprintf(p.Out, "Kubernetes:  %s\n", v.Kubernetes)
	}
	if len(v.Nodes) > 0 {
		t := table{{"NODE", "DATA PLANE", "DAEMON"}}
		for _, n := range v.Nodes {
			t.add(n.Node, cmp.Or(n.DataPlane, UnknownVersion), v.daemon(n))
		}
		fmt.Fprintln(p.Out)
		p.table(t)
	}
	for i, note := range v.Notes() {
		if i == 0 {
			fmt.Fprintln(p.Out)
		}
		p.hang("", note)
	}
	for _, resource := range v.Unseen {
		p.hang("", fmt.Sprintf("Your account may not read %s: what they run is not shown.", resource))
	}
}

// daemon describes the daemon of a node.
func (v Versions) daemon(n NodeVersion) string {
	switch {
	case n.DaemonImage == "" && slices.Contains(v.Unseen, explain.ResourcePods):
		return UnknownVersion
	case n.DaemonImage == "":
		return "none"
	}
	words := []string{n.DaemonImage}
	if n.Leader {
		words = append(words, "(leader)")
	}
	if !n.DaemonReady {
		words = append(words, "(not ready)")
	}
	return strings.Join(words, " ")
}
