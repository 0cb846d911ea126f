package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// client returns a client that reaches the API server from the real machine.
func (c *Cluster) client() (*kubernetes.Clientset, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	rest.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// isReady reports whether the node is Ready according to a report newer than since. A node that was stopped a moment
// ago still looks Ready because of an old report.
func isReady(n corev1.Node, since time.Time) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.Time.Before(since)
		}
	}
	return false
}

// awaitNodes waits until the named nodes, started after since, are Ready, and
// pods can be created.
func (c *Cluster) awaitNodes(ctx context.Context, since time.Time, names ...string) error {
	since = since.Truncate(time.Second) // the precision of times in the API
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	return proc.WaitFor(ctx, 300*time.Millisecond, "nodes to be ready", func() error {
		for _, name := range names {
			n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !isReady(*n, since) {
				return fmt.Errorf("node %s is not ready; see %s", name, c.path("nodes", name, "log"))
			}
		}
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// deleteNodeObject deletes the Node from the API server.
func (c *Cluster) deleteNodeObject(ctx context.Context, name string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

// readiness returns Ready or NotReady by node.
func (c *Cluster) readiness(ctx context.Context) (map[string]string, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[string]string{}
	for _, n := range list.Items {
		ready[n.Name] = "NotReady"
		if isReady(n, time.Time{}) {
			ready[n.Name] = "Ready"
		}
	}
	return ready, nil
}

// resolve turns NAMESPACE/SERVICE:PORT into the service's address. It returns an address unchanged.
func (c *Cluster) resolve(ctx context.Context, target string) (string, error) {
	namespace, rest, ok := strings.Cut(target, "/")
	if !ok {
		return target, nil
	}
	service, servicePort, ok := strings.Cut(rest, ":")
	if !ok {
		return "", fmt.Errorf("target %q: give NAMESPACE/SERVICE:PORT or ADDRESS:PORT", target)
	}
	client, err := c.client()
	if err != nil {
		return "", err
	}
	s, err := client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find service %s/%s: %w", namespace, service, err)
	}
	return s.Spec.ClusterIP + ":" + servicePort, nil
}
