package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTwoReleasesSideBySide: the daemons get the next release, and then the old one again, while a pod writes and
// verifies. Each change starts with one node, and then all nodes follow. Each release leads while others run. The
// daemons upgrade the data planes of their nodes to their release, one after the other. Neither an I/O error nor a
// remount occurs, and the volume always has another copy. Meanwhile volumes are created, attached, detached and
// deleted. The next release has a setting that the old one does not know.
func TestTwoReleasesSideBySide(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Minute)
	t.Cleanup(cancel)
	tar, err := filepath.Abs("../../dist/next.tar")
	require.NoError(t, err)
	if _, err := os.Stat(tar); err != nil {
		t.Skip("dist/next.tar is missing: run scripts/test.sh e2e, which makes it")
	}
	_, err = c.Devcluster(ctx, "load-image", tar)
	require.NoError(t, err)
	ns := namespace(ctx, t, c, "e2e-releases")
	w := startWriter(ctx, t, c, ns, verifyingBeside+writing)
	h := follow(ctx, t, c, w.volume)
	r := startReleases(ctx, t, c, ns)
	node, writer, pods := w.node(ctx, t), w.podUID(ctx, t), instanceManagerPods(ctx, t, c)
	before, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	began := time.Now()

	for _, phase := range []struct {
		name   string
		change func(t *testing.T)
		leads  release
	}{
		{"one node has the next release, the old one leads", func(t *testing.T) {
			r.apart(ctx, t)
			r.replace(ctx, t, r.follower(ctx, t), r.next)
		}, r.old},
		{"one node has the next release and leads", func(t *testing.T) { r.lead(ctx, t, r.nodeWith(ctx, t, r.next)) }, r.next},
		{"all have the next release", func(t *testing.T) { r.all(ctx, t, r.next); w.waitVersion(ctx, t, r.next) }, r.next},
		{"one node has the old release again and leads", func(t *testing.T) {
			r.apart(ctx, t)
			r.replace(ctx, t, r.follower(ctx, t), r.old)
			r.lead(ctx, t, r.nodeWith(ctx, t, r.old))
		}, r.old},
		{"all have the old release again", func(t *testing.T) { r.all(ctx, t, r.old); w.waitVersion(ctx, t, r.old) }, r.old},
	} {
		ok := t.Run(phase.name, func(t *testing.T) {
			c.DumpIfFailed(t)
			phase.change(t)
			r.work(ctx, t, phase.leads)
			w.waitAcked(ctx, t, time.Now(), time.Minute)
		})
		if !ok {
			return // the next steps would start from the state that the failed step left
		}
	}

	h.checkNeverAlone(t, began)
	v := theVolume(ctx, t, c, w.volume)
	if v.Status.RemountRequestedAt != "" || v.Status.CurrentNodeID != node || h.wasState(longhorn.VolumeStateDetaching) {
		t.Errorf("the volume did not stay attached to %s:\n%s", node, h)
	}
	after, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	assert.Equal(t, before, after, "devices and mounts")
	assert.Equal(t, writer, w.podUID(ctx, t), "the writer's pod")
	assert.Equal(t, pods, instanceManagerPods(ctx, t, c), "the instance managers' pods")
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
	t.Run("what the next release has in fields that the old one does not know is kept", func(t *testing.T) {
		assert.Empty(t, r.lostFields(ctx, t))
	})
}

// waitVersion waits until all data planes have a release and the volume is healthy.
func (w *writer) waitVersion(ctx context.Context, t *testing.T, of release) {
	t.Helper()
	began := time.Now()
	cluster.Eventually(ctx, t, 6*time.Minute, "all data planes have version "+of.version, func(ctx context.Context) error {
		if now := versions(ctx, t, w.c); len(now) != 1 || now[0] != of.version {
			return fmt.Errorf("they have %q", now)
		}
		return nil
	})
	w.waitHealthy(ctx, t, 2*time.Minute)
	t.Logf("all data planes have version %s after %s", of.version, time.Since(began).Round(time.Second))
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
