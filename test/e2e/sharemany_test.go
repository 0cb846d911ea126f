package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestSharedVolumeManyClaims creates as many shared claims as LONG_CLAIMS says at once, with a pod for each. All pods
// become ready. It logs after what time, and how much memory an idle share uses.
func TestSharedVolumeManyClaims(t *testing.T) {
	count := numbersOf(t, "LONG_CLAIMS", "claims")[0]
	t.Parallel()
	turnOfKernels(t)
	ctx, c := sharing.get(t, long)
	require.NoError(t, c.Apply(ctx, shareClass("shared", "ext4")))
	labelForShares(ctx, t, c)
	ns := namespace(ctx, t, c, "e2e-share-many")
	var manifest strings.Builder
	for i := range count {
		fmt.Fprintf(&manifest, `
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c%[1]d, namespace: %[2]s}
spec:
  storageClassName: shared
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: p%[1]d, namespace: %[2]s, labels: {app: many}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: guest-%[3]d}
  containers:
    - name: main
      image: localhost/workload:dev
      imagePullPolicy: IfNotPresent
      command: [bash, -ec, "echo %[1]d >/data/file; exec sleep infinity"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: c%[1]d}
`, i, ns, i%2+1)
	}
	began := time.Now()
	require.NoError(t, c.Apply(ctx, manifest.String()))
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod", "-l", "app=many", fmt.Sprintf("--timeout=%ds", 120+20*count))
	t.Logf("FIGURES %d shared claims with a pod each: all ready after %v", count, time.Since(began).Round(time.Second))
	sayReady(ctx, t, c, ns, "app=many", "a pod that uses one")
	sayReady(ctx, t, c, types.Namespace, types.LabelShareManager, "its share's own pod")
	for i := range count {
		assert.Equal(t, strconv.Itoa(i), c.Must(ctx, t, "-n", ns, "exec", fmt.Sprintf("p%d", i), "--", "cat", "/data/file"))
	}
	sayIdleMemory(ctx, t, c)
	began = time.Now()
	// The time-out is longer than in a test with few pods.
	c.Must(ctx, t, "delete", "namespace", ns, fmt.Sprintf("--timeout=%ds", 120+20*count))
	t.Logf("FIGURES %d shared claims and their pods were deleted in %v", count, time.Since(began).Round(time.Second))
}

// sayReady logs the time from the creation of pods until they were ready.
func sayReady(ctx context.Context, t *testing.T, c *cluster.Cluster, ns, selector, what string) {
	t.Helper()
	list, err := c.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	var took []time.Duration
	for _, p := range list.Items {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
		if assert.GreaterOrEqual(t, i, 0, "pod %s is not ready", p.Name) {
			took = append(took, p.Status.Conditions[i].LastTransitionTime.Sub(p.CreationTimestamp.Time))
		}
	}
	require.NotEmpty(t, took)
	slices.Sort(took)
	t.Logf("FIGURES %s was ready after %v (p50), %v (p99), %v (the longest) of %d", what, rank(took, 50), rank(took, 99), took[len(took)-1], len(took))
}

// memory is the memory of a share's processes, in KiB. It has two figures for each process: its share of the pages that
// it uses together with other processes, and the pages that are its own and belong to no file.
type memory struct {
	manager, server             int // the share manager's and Ganesha's share of all pages
	managerAnonymous, anonymous int
}

func (m memory) all() int { return m.manager + m.server }

func (m memory) String() string {
	return fmt.Sprintf("%.1f MiB in all (PSS): server %.1f, of which %.1f of no file; share manager %.1f, of which %.1f of no file",
		mib(m.all()), mib(m.server), mib(m.anonymous), mib(m.manager), mib(m.managerAnonymous))
}

func mib(kibibytes int) float64 { return float64(kibibytes) / 1024 }

// memoryOf reads the memory in the pod of a share.
func memoryOf(ctx context.Context, t *testing.T, c *cluster.Cluster, pod string) (m memory) {
	t.Helper()
	out := c.Must(ctx, t, "-n", types.Namespace, "exec", pod, "--", "bash", "-ec", `
		for p in /proc/[0-9]*; do
			read -r name <$p/comm || continue
			case $name in longhorn-manage | ganesha.nfsd) ;; *) continue ;; esac
			while read -r key value _; do case $key in Pss: | Pss_Anon:) echo "$name $key $value" ;; esac done <$p/smaps_rollup
		done`)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		kib, err := strconv.Atoi(fields[2])
		require.NoError(t, err, line)
		switch fields[0] + " " + fields[1] {
		case "longhorn-manage Pss:":
			m.manager += kib
		case "longhorn-manage Pss_Anon:":
			m.managerAnonymous += kib
		case "ganesha.nfsd Pss:":
			m.server += kib
		case "ganesha.nfsd Pss_Anon:":
			m.anonymous += kib
		}
	}
	require.Positive(t, m.server, "pod %s has no server: %s", pod, out)
	require.Positive(t, m.manager, "pod %s has no share manager: %s", pod, out)
	return m
}

// sayIdleMemory logs the memory of all shares of a cluster.
func sayIdleMemory(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var all []memory
	sum := 0
	for _, pod := range strings.Fields(c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", types.LabelShareManager, "-o", "jsonpath={.items[*].metadata.name}")) {
		m := memoryOf(ctx, t, c, pod)
		all, sum = append(all, m), sum+m.all()
	}
	slices.SortFunc(all, func(a, b memory) int { return a.all() - b.all() })
	t.Logf("FIGURES %d shares at rest take %.0f MiB", len(all), mib(sum))
	t.Logf("FIGURES the middle one of them: %s", all[len(all)/2])
	t.Logf("FIGURES the largest one of them: %s", all[len(all)-1])
}
