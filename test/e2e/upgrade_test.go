package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// nextImage has the same program with another version; scripts/test.sh makes it.
const nextImage, nextVersion = "localhost/longhorn-manager:next", "next"

// TestDataPlaneIsUpgradedUnderLoad: the daemons get another version, and give it to the data
// planes of their nodes while pods write: one node after the other, without an I/O error, a
// remount, or a moment in which a volume has no other copy. Then back.
func TestDataPlaneIsUpgradedUnderLoad(t *testing.T) {
	ctx, c := threeNodes.get(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Minute)
	t.Cleanup(cancel)
	tar, err := filepath.Abs("../../dist/next.tar")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tar); err != nil {
		t.Skip("dist/next.tar is missing: run scripts/test.sh e2e, which makes it")
	}
	if _, err := c.Devcluster(ctx, "load-image", tar); err != nil {
		t.Fatal(err)
	}
	ns := namespace(ctx, t, c, "e2e-upgrade")
	w := startWriter(ctx, t, c, ns, verifyingBeside+writing)
	h := follow(ctx, t, c, w.volume)
	node, writer := w.node(ctx, t), w.podUID(ctx, t)
	before, err := devicesOf(ctx, c, node, w.volume)
	if err != nil {
		t.Fatal(err)
	}
	pods := instanceManagerPods(ctx, t, c)
	was := versions(ctx, t, c)
	if len(was) != 1 {
		t.Fatalf("the data planes have the versions %q", was)
	}
	image := c.Must(ctx, t, "-n", types.Namespace, "get", "daemonset/longhorn-manager", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	t.Cleanup(func() { setDaemonImage(context.WithoutCancel(ctx), t, c, image) })

	w.upgrade(ctx, t, h, nextImage, nextVersion)
	w.upgrade(ctx, t, h, image, was[0])

	if v := theVolume(ctx, t, c, w.volume); v.Status.RemountRequestedAt != "" || v.Status.CurrentNodeID != node || h.wasState(longhorn.VolumeStateDetaching) {
		t.Errorf("the volume did not stay attached to %s:\n%s", node, h)
	}
	if after, err := devicesOf(ctx, c, node, w.volume); err != nil || !slices.Equal(after, before) {
		t.Errorf("devices and mounts were %q, are %q (%v)", before, after, err)
	}
	if now := w.podUID(ctx, t); now != writer {
		t.Errorf("the writer's pod was %s, is %s", writer, now)
	}
	if now := instanceManagerPods(ctx, t, c); now != pods {
		t.Errorf("the instance managers' pods were %s, are %s", pods, now)
	}
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
}

// upgrade gives the daemons an image, and waits until all data planes have its version.
func (w *writer) upgrade(ctx context.Context, t *testing.T, h *history, image, version string) {
	t.Helper()
	began := time.Now()
	setDaemonImage(ctx, t, w.c, image)
	cluster.Eventually(ctx, t, 6*time.Minute, "all data planes have version "+version, func(ctx context.Context) error {
		if now := versions(ctx, t, w.c); len(now) != 1 || now[0] != version {
			return fmt.Errorf("they have %q", now)
		}
		return nil
	})
	w.waitHealthy(ctx, t, 2*time.Minute)
	t.Logf("all data planes have version %s after %s", version, time.Since(began).Round(time.Second))
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	h.checkNeverAlone(t, began)
}

func setDaemonImage(ctx context.Context, t *testing.T, c *cluster.Cluster, image string) {
	t.Helper()
	c.Must(ctx, t, "-n", types.Namespace, "set", "image", "daemonset/longhorn-manager", "longhorn-manager="+image)
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=180s")
}

// versions lists the versions of the data planes, each once.
func versions(ctx context.Context, t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	list, err := c.Longhorn.LonghornV1beta2().InstanceManagers(types.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range list.Items {
		all = append(all, m.Status.Version)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func instanceManagerPods(ctx context.Context, t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	return c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", types.LabelComponent+"="+types.ComponentInstanceManager,
		"-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}; {end}")
}
