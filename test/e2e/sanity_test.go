package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDriverIsConformant runs the published tests of CSI drivers on a node that hosts a CSI controller.
func TestDriverIsConformant(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	c.DumpIfFailed(t)
	before := volumeNames(ctx, t, c)
	controller := strings.Fields(c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", "app=longhorn-csi-controller",
		"--field-selector", "status.phase=Running", "-o", "jsonpath={.items[0].spec.nodeName} {.items[0].metadata.uid}"))
	require.Len(t, controller, 2)
	node, program := controller[0], "/tmp/sanity.test"
	copyTests(ctx, t, c, "./test/sanity", node, program)
	out, err := c.OnNode(ctx, node, program, "-test.v", "-test.timeout=9m", "-ginkgo.v", "-ginkgo.no-color",
		"-controller", "/var/lib/kubelet/pods/"+controller[1]+"/volumes/kubernetes.io~empty-dir/socket/csi.sock")
	require.NoError(t, err)
	ran := regexp.MustCompile(`Ran (\d+) of \d+ Specs`).FindStringSubmatch(out)
	require.NotNil(t, ran)
	require.Contains(t, out, "SUCCESS!", "the suite ended without success")
	n, err := strconv.Atoi(ran[1])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, 40, "tests that fit the driver")
	t.Log(ran[0])
	checkSkips(t, out)
	assert.Empty(t, added(before, volumeNames(ctx, t, c)))
}

// checkSkips shows why the suite skipped tests. The only allowed reason is that the driver does not advertise the
// tested capability.
func checkSkips(t *testing.T, out string) {
	t.Helper()
	reasons := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^\s*\[SKIPPED\] ([A-Z].*)$`).FindAllStringSubmatch(out, -1) {
		reasons[strings.TrimSpace(match[1])]++
	}
	assert.NotEmpty(t, reasons, "the suite does not say what it left out")
	for reason, count := range reasons {
		t.Logf("left out %d: %s", count, reason)
		assert.False(t, !strings.HasSuffix(reason, "not supported") && !strings.HasSuffix(reason, "not enabled"), "%d tests were left out: %s", count, reason)
	}
}

// copyTests compiles a package's tests and copies the program to a node.
func copyTests(ctx context.Context, t *testing.T, c *cluster.Cluster, pkg, node, target string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", file, pkg)
	build.Dir = threeNodes.options.Root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "compile %s: %s", pkg, out)
	require.NoError(t, c.CopyToNode(ctx, node, file, target))
}

func volumeNames(ctx context.Context, t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	return strings.Fields(c.Must(ctx, t, "-n", types.Namespace, "get", "volumes.longhorn.io", "-o", "name"))
}

// added returns the names that are in after and not in before. A name that is missing in after means nothing: a volume
// is deleted some time after its claim, and the claim may belong to the previous test.
func added(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(name string) bool { return slices.Contains(before, name) })
}

func TestAdded(t *testing.T) {
	for _, tc := range []struct {
		name                string
		before, after, want []string
	}{
		{"the same → none", []string{"a", "b"}, []string{"a", "b"}, []string{}},
		{"one of an earlier test has gone → none", []string{"a", "b"}, []string{"b"}, []string{}},
		{"one has come, one has gone → that which came", []string{"a", "b"}, []string{"b", "c"}, []string{"c"}},
	} {
		assert.Equal(t, tc.want, added(tc.before, tc.after), tc.name)
	}
}
