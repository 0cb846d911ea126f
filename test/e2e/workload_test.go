package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// namespace creates a namespace for one test. At the end it deletes the namespace, with its claims and their volumes.
func namespace(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) string {
	t.Helper()
	c.Must(ctx, t, "delete", "namespace", name, "--ignore-not-found", "--timeout=120s") // of a failed run
	c.Must(ctx, t, "create", "namespace", name)
	t.Cleanup(func() {
		if t.Failed() && mode == "keep" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := c.Kubectl(ctx, "delete", "namespace", name, "--ignore-not-found", "--timeout=150s")
		assert.NoError(t, err, "put the test's namespace away")
	})
	c.DumpIfFailed(t) // registered last, so it runs while the pods still exist
	return name
}

// claim creates a claim of StorageClass longhorn and returns the name of its volume.
func claim(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, name, size string) string {
	t.Helper()
	return claimOf(ctx, t, c, namespace, name, size, "longhorn")
}

// claimOf creates a claim of a StorageClass and returns the name of its volume.
func claimOf(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, name, size, class string) string {
	t.Helper()
	startClaim(ctx, t, c, namespace, name, size, class)
	c.Must(ctx, t, "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/"+name, "--timeout=120s")
	return c.Must(ctx, t, "-n", namespace, "get", "pvc", name, "-o", "jsonpath={.spec.volumeName}")
}

// startClaim is claimOf without the wait.
func startClaim(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, name, size, class string) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec:
  storageClassName: %s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %s}}
`, name, namespace, class, size)
	require.NoError(t, c.Apply(ctx, manifest))
}

// pod runs a shell script in a pod with the claim at /data, and waits until the pod is ready. The pod is never
// restarted, so that tests see an error in it.
func pod(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, name, claim, script string) {
	t.Helper()
	startPod(ctx, t, c, namespace, name, claim, script)
	c.Must(ctx, t, "-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
}

// startPod is pod without the wait.
func startPod(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, name, claim, script string) {
	t.Helper()
	startPodOn(ctx, t, c, "", namespace, name, claim, script)
}

// startPodOn is startPod on a given node; "": on any.
func startPodOn(ctx context.Context, t *testing.T, c *cluster.Cluster, node, namespace, name, claim, script string) {
	t.Helper()
	selector := "{}"
	if node != "" {
		selector = "{kubernetes.io/hostname: " + node + "}"
	}
	indented := "          " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n          ")
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  nodeSelector: %s
  containers:
    - name: main
      image: localhost/workload:dev
      imagePullPolicy: IfNotPresent
      command:
        - bash
        - -ec
        - |
%s
      volumeMounts: [{name: data, mountPath: /data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: %s}
`, name, namespace, selector, indented, claim)
	require.NoError(t, c.Apply(ctx, manifest))
}

// idle is a script that does nothing until the pod is deleted.
const idle = "exec sleep infinity"

// writeFile fills a file of the pod with random bytes and returns their sha256.
func writeFile(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, pod, path string, mebibytes int) string {
	t.Helper()
	c.Must(ctx, t, "-n", namespace, "exec", pod, "--", "dd", "if=/dev/urandom", "of="+path, "bs=1M", fmt.Sprintf("count=%d", mebibytes), "conv=fsync", "status=none")
	return sumInPod(ctx, t, c, namespace, pod, path)
}

func sumInPod(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, pod, path string) string {
	t.Helper()
	return firstWord(t, c.Must(ctx, t, "-n", namespace, "exec", pod, "--", "sha256sum", path))
}

// firstWord returns the first word of the output of sha256sum, which must be a checksum.
func firstWord(t *testing.T, out string) string {
	t.Helper()
	sum, _, _ := strings.Cut(out, " ")
	require.Len(t, sum, 64, out)
	return sum
}

func nodeOf(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, pod string) string {
	t.Helper()
	return c.Must(ctx, t, "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
}

// deletePod deletes a pod and waits until it is gone.
func deletePod(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, pod string) {
	t.Helper()
	c.Must(ctx, t, "-n", namespace, "delete", "pod", pod, "--wait", "--timeout=90s")
}

// waitVolume waits for a field of a volume, by JSON path and value.
func waitVolume(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, path, value string) {
	t.Helper()
	c.Must(ctx, t, "-n", types.Namespace, "wait", "volumes.longhorn.io/"+volume, fmt.Sprintf("--for=jsonpath={%s}=%s", path, value), "--timeout=120s")
}

// nodes are the nodes of the cluster with three nodes.
var nodes = []string{"node-1", "node-2", "node-3"}

// dataDirectory is a node's default disk.
const dataDirectory = "/var/lib/longhorn"

// directories lists everything on a node's disk down to the replicas' directories.
func directories(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	return c.MustOnNode(ctx, t, node, "sh", "-c", "find "+dataDirectory+" -mindepth 1 -maxdepth 2 -not -path '*/lost+found*' | LC_ALL=C sort")
}
