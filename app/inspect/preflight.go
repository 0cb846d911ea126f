package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Preflight says which requirements of the cluster and of its nodes are met, as far as the API server knows. Scripts use
// its JSON.
type Preflight struct {
	Cluster []Check      `json:"cluster"`
	Nodes   []NodeChecks `json:"nodes"`
	// Unchecked are the nodes without a daemon. Only a process on the node can check some requirements.
	Unchecked []string `json:"unchecked,omitempty"`
}

// NodeChecks are the checks of one node.
type NodeChecks struct {
	Node   string  `json:"node"`
	Checks []Check `json:"checks"`
}

// oldestKubernetes is the oldest version of Kubernetes that can run this product, and usualCopies the number of copies
// that StorageClass longhorn requests (docs/GETTING-STARTED.md).
const (
	oldestKubernetes = "1.32"
	usualCopies      = 3
)

// Preflight checks the cluster and all its nodes. It needs no installation. foreign is the result of the search for
// another Longhorn.
func (c Cluster) Preflight(ctx context.Context, foreign Check) (Preflight, error) {
	server, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return Preflight{}, fmt.Errorf("ask for the version of the API server: %w", err)
	}
	g := gathering{ctx: ctx, s: &explain.Snapshot{}}
	nodes := gather[corev1.Node](&g, explain.ResourceKubeNodes, c.Kube.CoreV1().Nodes().List, "")
	if g.err != nil {
		return Preflight{}, g.err
	}
	if len(g.s.Unseen) > 0 {
		return Preflight{}, fmt.Errorf("your account may not list the nodes of the cluster: request the right list on nodes")
	}
	ours := map[string]*longhorn.Node{}
	list, err := c.Longhorn.LonghornV1beta2().Nodes(c.Namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err): // not installed yet, or not known
	case err != nil:
		return Preflight{}, fmt.Errorf("list %s: %w", explain.ResourceNodes, err)
	default:
		for i := range list.Items {
			ours[list.Items[i].Name] = &list.Items[i]
		}
	}
	return c.examineCluster(server.GitVersion, nodes, ours, foreign), nil
}

// examineCluster compares objects with the requirements. ours are the Longhorn nodes by name.
func (c Cluster) examineCluster(kubernetes string, nodes []*corev1.Node, ours map[string]*longhorn.Node, foreign Check) Preflight {
	result := Preflight{Cluster: []Check{examineKubernetes(kubernetes), foreign}, Nodes: []NodeChecks{}}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	var linux []*corev1.Node
	for _, n := range nodes {
		checks := NodeChecks{Node: n.Name}
		if system := n.Status.NodeInfo.OperatingSystem; system != "" && system != "linux" {
			checks.Checks = []Check{{Name: "System", Severity: explain.Info, Message: "the node runs " + system + ": it gets no daemon and serves no volumes", Next: []explain.Step{{Text: "No action needed"}}}}
			result.Nodes = append(result.Nodes, checks)
			continue
		}
		linux = append(linux, n)
		checks.Checks = []Check{examineKernel(n.Status.NodeInfo.KernelVersion), examineKubelet(n)}
		if reported := hostConditions(ours[n.Name]); len(reported) > 0 {
			checks.Checks = append(checks.Checks, conditionChecks(c.Namespace, n.Name, reported)...)
		} else {
			result.Unchecked = append(result.Unchecked, n.Name)
		}
		result.Nodes = append(result.Nodes, checks)
	}
	result.Cluster = append(result.Cluster, examineCount(len(linux)), examineArchitectures(linux))
	return result
}

// hostConditions returns the conditions of a Longhorn node that are about the node itself. The list is
// empty until its daemon has reported them. n may be nil.
func hostConditions(n *longhorn.Node) []longhorn.Condition {
	if n == nil {
		return nil
	}
	var list []longhorn.Condition
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case types.ConditionMountPropagation, types.ConditionKernelModulesLoaded, types.ConditionNFSClientInstalled,
			types.ConditionDeviceSuccession, types.ConditionKernelNBDClient:
			list = append(list, c)
		}
	}
	return list
}

func examineKubernetes(release string) Check {
	var major, minor, oldMajor, oldMinor int
	fmt.Sscanf(oldestKubernetes, "%d.%d", &oldMajor, &oldMinor) //nolint:errcheck // a constant
	check := Check{Name: "Kubernetes", Message: release}
	next := []explain.Step{{Text: "Upgrade Kubernetes to " + oldestKubernetes + " or later", Command: "kubectl version"}}
	if _, err := fmt.Sscanf(strings.TrimPrefix(release, "v"), "%d.%d", &major, &minor); err != nil {
		check.Severity, check.Message, check.Next = explain.Warning, fmt.Sprintf("the version of Kubernetes, %q, cannot be parsed: it must be %s or later", release, oldestKubernetes), next
	} else if major < oldMajor || major == oldMajor && minor < oldMinor {
		check.Severity, check.Message, check.Next = explain.Broken, fmt.Sprintf("%s is too old: it must be %s or later", release, oldestKubernetes), next
	}
	return check
}

func examineKubelet(n *corev1.Node) Check {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return Check{Name: "Kubelet", Message: "the node is ready"}
		}
	}
	return Check{
		Name: "Kubelet", Severity: explain.Warning, Message: "the node is not ready: no pod starts on it",
		Next: []explain.Step{{Text: "See why", Command: "kubectl describe node " + n.Name}},
	}
}

func examineCount(nodes int) Check {
	check := Check{Name: "Nodes", Message: fmt.Sprintf("%d Linux nodes", nodes)}
	if nodes == 0 {
		check.Severity, check.Message, check.Next = explain.Broken, "the cluster has no Linux node", []explain.Step{{Text: "Add a node", Command: "kubectl get nodes"}}
	} else if nodes < usualCopies {
		check.Severity = explain.Info
		check.Message = fmt.Sprintf("%d of %d Linux nodes: StorageClass longhorn requests %d copies on different nodes, so its volumes have fewer", nodes, usualCopies, usualCopies)
		check.Next = []explain.Step{{Text: "Add nodes, or use a StorageClass with fewer replicas (parameter numberOfReplicas)"}}
	}
	return check
}

func examineArchitectures(nodes []*corev1.Node) Check {
	var all []string
	for _, n := range nodes {
		if a := n.Status.NodeInfo.Architecture; a != "" && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	slices.Sort(all)
	check := Check{Name: "Architecture", Message: cmp.Or(strings.Join(all, ", "), "unknown")}
	if len(all) > 1 {
		check.Severity, check.Message = explain.Warning, "the nodes have different architectures: "+check.Message
		check.Next = []explain.Step{{Text: "Build the image for each of them, and push all of them under one tag"}}
	}
	return check
}

// IsBroken reports whether a check found a problem that prevents volumes from being served.
func (p Preflight) IsBroken() bool {
	return IsBroken(p.Cluster) || slices.ContainsFunc(p.Nodes, func(n NodeChecks) bool { return IsBroken(n.Checks) })
}

// Preflight prints the checks of the cluster and of each node, and the names of the nodes that were not checked.
func (p Printer) Preflight(f Preflight) {
	fmt.Fprintln(p.Out, "CLUSTER")
	p.Checks(f.Cluster)
	for _, n := range f.Nodes {
		fmt.Fprintf(p.Out, "\nNODE %s\n", n.Node)
		p.Checks(n.Checks)
	}
	if len(f.Unchecked) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	p.hang("", fmt.Sprintf("Not checked on %s: kernel modules, mount propagation, the NFS client, and the space for the default disk. No daemon runs there yet, and only a process on the node sees them.", strings.Join(f.Unchecked, ", ")))
	p.hang("  next  ", "Run this on the node:")
	fmt.Fprintln(p.Out, "          sudo longhorn-manager doctor")
}
