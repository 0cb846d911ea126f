package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDriverIsConformant runs the published tests of CSI drivers on a node that hosts a
// CSI controller.
func TestDriverIsConformant(t *testing.T) {
	ctx, c := threeNodes.get(t)
	c.DumpIfFailed(t)
	before := volumeNames(ctx, t, c)
	controller := strings.Fields(c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", "app=longhorn-csi-controller",
		"--field-selector", "status.phase=Running", "-o", "jsonpath={.items[0].spec.nodeName} {.items[0].metadata.uid}"))
	if len(controller) != 2 {
		t.Fatalf("the CSI controller's pod is %v", controller)
	}
	node, program := controller[0], "/tmp/sanity.test"
	copyTests(ctx, t, c, "./test/sanity", node, program)
	out, err := c.OnNode(ctx, node, program, "-test.v", "-test.timeout=9m", "-ginkgo.v", "-ginkgo.no-color",
		"-controller", "/var/lib/kubelet/pods/"+controller[1]+"/volumes/kubernetes.io~empty-dir/socket/csi.sock")
	if err != nil {
		t.Fatal(err)
	}
	ran := regexp.MustCompile(`Ran (\d+) of \d+ Specs`).FindStringSubmatch(out)
	if ran == nil || !strings.Contains(out, "SUCCESS!") {
		t.Fatalf("the suite ended without success:\n%s", out)
	}
	if n, err := strconv.Atoi(ran[1]); err != nil || n < 40 {
		t.Errorf("the suite ran %s tests (%v), want at least 40 of those that fit the driver", ran[1], err)
	}
	t.Log(ran[0])
	checkSkips(t, out)
	if after := volumeNames(ctx, t, c); after != before {
		t.Errorf("volumes are %q, were %q before", after, before)
	}
}

// checkSkips shows why the suite left tests out, which may only be that the driver does not advertise what they test.
func checkSkips(t *testing.T, out string) {
	t.Helper()
	reasons := map[string]int{}
	for _, match := range regexp.MustCompile(`(?m)^\s*\[SKIPPED\] ([A-Z].*)$`).FindAllStringSubmatch(out, -1) {
		reasons[strings.TrimSpace(match[1])]++
	}
	if len(reasons) == 0 {
		t.Error("the suite does not say what it left out")
	}
	for reason, count := range reasons {
		t.Logf("left out %d: %s", count, reason)
		if !strings.HasSuffix(reason, "not supported") && !strings.HasSuffix(reason, "not enabled") {
			t.Errorf("%d tests were left out: %s", count, reason)
		}
	}
}

// copyTests compiles a package's tests and puts the program on a node.
func copyTests(ctx context.Context, t *testing.T, c *cluster.Cluster, pkg, node, target string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", file, pkg)
	build.Dir = threeNodes.options.Root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", pkg, err, out)
	}
	if err := c.CopyToNode(ctx, node, file, target); err != nil {
		t.Fatal(err)
	}
}

func volumeNames(ctx context.Context, t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	return c.Must(ctx, t, "-n", types.Namespace, "get", "volumes.longhorn.io", "-o", "name")
}
