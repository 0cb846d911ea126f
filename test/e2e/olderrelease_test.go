package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// TestUpdateOfAnOlderRelease applies this release's manifest to an installation of the previous release, while a pod
// writes and verifies. This release takes over its objects, its disks and its data planes, without an I/O error or a
// remount. Data that the older release wrote to a volume which is now detached can be read, and new volumes can be
// created.
func TestUpdateOfAnOlderRelease(t *testing.T) {
	t.Parallel() // it has its own cluster
	if _, err := os.Stat(filepath.Join("../..", "dist/older.yaml")); err != nil {
		t.Skip("dist/older.yaml is missing: run scripts/older.sh with the revision of an older release, which makes it")
	}
	fresh := &shared{options: named("-older", cluster.Options{
		Nodes:  3,
		Images: []string{"dist/older.tar", "dist/longhorn-manager.tar", "dist/workload.tar"},
	})}
	ctx, c := fresh.get(t, long)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 40*time.Minute)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		assert.NoError(t, fresh.down())
	})
	c.DumpIfFailed(t)
	require.NoError(t, c.InstallFrom(ctx, "dist/older.yaml"))

	ns := namespace(ctx, t, c, "e2e-older")
	kept := claim(ctx, t, c, ns, "kept", "32Mi")
	pod(ctx, t, c, ns, "kept", "kept", idle)
	sum := writeFile(ctx, t, c, ns, "kept", "/data/file", 4)
	deletePod(ctx, t, c, ns, "kept")
	waitVolume(ctx, t, c, kept, ".status.state", "detached")
	w := startWriter(ctx, t, c, ns, verifyingBeside+writing)
	node, writer, pods := w.node(ctx, t), w.podUID(ctx, t), instanceManagerPods(ctx, t, c)
	before, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	was := versions(ctx, t, c)
	require.Len(t, was, 1, "versions of the data planes")

	require.NoError(t, c.Install(ctx))
	began := time.Now()
	cluster.Eventually(ctx, t, 6*time.Minute, "all data planes are of this release", func(ctx context.Context) error {
		if now := versions(ctx, t, c); len(now) != 1 || now[0] == was[0] {
			return fmt.Errorf("they have %q", now)
		}
		return nil
	})
	t.Logf("all data planes have this release after %s", time.Since(began).Round(time.Second))
	w.waitHealthy(ctx, t, 2*time.Minute)
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	after, err := devicesOf(ctx, c, node, w.volume)
	require.NoError(t, err)
	assert.Equal(t, before, after, "devices and mounts")
	assert.Equal(t, writer, w.podUID(ctx, t), "the writer's pod")
	assert.Equal(t, pods, instanceManagerPods(ctx, t, c), "the instance managers' pods")

	pod(ctx, t, c, ns, "kept-again", "kept", idle)
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "kept-again", "/data/file"), "what the older release stored")
	claim(ctx, t, c, ns, "new", "32Mi")
	pod(ctx, t, c, ns, "new", "new", idle)
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
}
