package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDaemonsComeAndGoUnderLoad restarts all daemons, then kills the leader, while a pod writes and verifies. There is
// no I/O error, the volume is not attached again, and no instance manager restarts.
func TestDaemonsComeAndGoUnderLoad(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ns := namespace(ctx, t, c, "e2e-restart")
	volume := claim(ctx, t, c, ns, "data", "256Mi")
	pod(ctx, t, c, ns, "load", "data", verifyingUntilStopped)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	before := observe(ctx, t, c, volume)

	c.Must(ctx, t, "-n", types.Namespace, "rollout", "restart", "daemonset/longhorn-manager")
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=120s")
	cluster.Eventually(ctx, t, 30*time.Second, "there is a leader again", func(ctx context.Context) error {
		_, err := leader(ctx, c)
		return err
	})
	killLeader(ctx, t, c)

	log := c.Must(ctx, t, "-n", ns, "logs", "load")
	assert.Equal(t, "Running", podPhase(ctx, t, c, ns, "load"), "the load had ended when the daemons were back:\n%s", log)
	c.Must(ctx, t, "-n", ns, "exec", "load", "--", "touch", "/tmp/stop")
	waitVerified(ctx, t, c, ns, 3*time.Minute)
	assert.Equal(t, before, observe(ctx, t, c, volume), "the volume did not just go on")
}

// observe returns everything that must not change while daemons restart.
func observe(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) string {
	t.Helper()
	e := theEngine(ctx, t, c, volume)
	var b strings.Builder
	fmt.Fprintf(&b, "generation %d session %s process %s epoch %v\n", e.Status.Generation, e.Status.Session, e.Status.UUID, *e.Status.Epoch)
	b.WriteString("kubernetes' attachment: " + c.Must(ctx, t, "get", "volumeattachments.storage.k8s.io", "-o",
		"jsonpath={range .items[?(@.spec.source.persistentVolumeName==\""+volume+"\")]}{.metadata.uid} {.spec.nodeName}{end}") + "\n")
	b.WriteString("instance managers: " + c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", types.LabelComponent+"="+types.ComponentInstanceManager,
		"-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}; {end}") + "\n")
	b.WriteString("their processes: " + c.Must(ctx, t, "-n", types.Namespace, "get", "instancemanagers.longhorn.io", "-o", "jsonpath={.items[*].status.uuid}") + "\n")
	b.WriteString("events about attaching: " + c.Must(ctx, t, "-n", types.Namespace, "get", "events", "--field-selector",
		"involvedObject.kind=Volume,involvedObject.name="+volume, "-o", "jsonpath={range .items[*]}{.reason}×{.count} {end}"))
	return b.String()
}

// leader returns the node of the daemon that holds the Lease, whose identity is <node>/<IP>.
func leader(ctx context.Context, c *cluster.Cluster) (string, error) {
	lease, err := c.Kube.CoordinationV1().Leases(types.Namespace).Get(ctx, types.LeaderLease, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("nobody holds the lease %s", types.LeaderLease)
	}
	node, ip, _ := strings.Cut(*lease.Spec.HolderIdentity, "/")
	pods, err := c.Kube.CoreV1().Pods(types.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=longhorn-manager", FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.Status.PodIP == ip && pod.DeletionTimestamp == nil {
			return node, nil
		}
	}
	return "", fmt.Errorf("the lease %s is still held by a daemon that is gone, %s", types.LeaderLease, *lease.Spec.HolderIdentity)
}

// lead makes the daemon of a node the leader: it restarts the daemons that lead before that one.
func lead(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) {
	t.Helper()
	for range 20 {
		var now string
		cluster.Eventually(ctx, t, time.Minute, "there is a leader", func(ctx context.Context) (err error) {
			now, err = leader(ctx, c)
			return err
		})
		if now == node {
			c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=60s")
			return
		}
		c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName="+now)
	}
	t.Fatalf("the daemon of %s never led", node)
}

// killLeader kills the leading daemon's process with SIGKILL. It waits until there is a leader and the killed daemon's
// pod is ready again.
func killLeader(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	node, err := leader(ctx, c)
	require.NoError(t, err)
	restarts := "jsonpath={.items[0].status.containerStatuses[0].restartCount}"
	pods := []string{"-n", types.Namespace, "get", "pods", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName=" + node, "-o", restarts}
	was := c.Must(ctx, t, pods...)
	assert.Equal(t, "0", was, "the daemon on %s had restarted %s times before it was killed", node, was)
	killProcess(ctx, t, c, node, "daemon")
	killed := time.Now()
	// The daemon may restart before its Lease expires. Then it keeps leading under the same name.
	cluster.Eventually(ctx, t, 90*time.Second, "the killed leader's pod runs again and a leader renews the lease", func(ctx context.Context) error {
		is, err := c.Kubectl(ctx, pods...)
		if err == nil && is != "1" {
			err = fmt.Errorf("restarted %s times", is)
		}
		if err != nil {
			return err
		}
		lease, err := c.Kube.CoordinationV1().Leases(types.Namespace).Get(ctx, types.LeaderLease, metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(killed) {
			err = fmt.Errorf("last renewed at %s", lease.Spec.RenewTime)
		}
		return err
	})
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=60s")
}

func podPhase(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, pod string) string {
	t.Helper()
	return c.Must(ctx, t, "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.phase}")
}
