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

// loopDisk is a node's disk: a block device with a file system, like a disk that a user would install. All nodes see
// all loop devices, so it can be moved from one node to another.
type loopDisk struct {
	c      *cluster.Cluster
	device string
	path   string // its mount point, on every node
}

// imagesDirectory is on a node, on a file system that keeps its data when the node loses its power.
const imagesDirectory = "/var/lib/kubelet/e2e-disks"

// makeDisk creates a device with a file system on a node, without mounting it. When the test ends, the disk is removed
// from all nodes.
func makeDisk(ctx context.Context, t *testing.T, c *cluster.Cluster, node, fsType, path string) *loopDisk {
	t.Helper()
	image := imagesDirectory + "/" + strings.ReplaceAll(strings.Trim(path, "/"), "/", "-") + ".img"
	d := &loopDisk{c: c, path: path}
	// A sparse file; xfs needs at least 300 MiB.
	script := fmt.Sprintf("mkdir -p %s && rm -f %s && truncate -s 1G %[2]s && mkfs.%s -q %[2]s && losetup --find --show %[2]s", imagesDirectory, image, fsType)
	d.device = c.MustOnNode(ctx, t, node, "bash", "-c", script)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, n := range nodes {
			d.onNode(ctx, n, "while umount -l %[1]s; do :; done 2>/dev/null; true")
		}
		d.onNode(ctx, node, "losetup -d %[2]s; rm -f "+image)
	})
	return d
}

// onNode runs a shell script in which %[1]s is the path and %[2]s the device.
func (d *loopDisk) onNode(ctx context.Context, node, script string) (string, error) {
	return d.c.OnNode(ctx, node, "bash", "-c", fmt.Sprintf(script+" # %[1]s %[2]s", d.path, d.device))
}

func (d *loopDisk) mustOnNode(ctx context.Context, t *testing.T, node, script string) string {
	t.Helper()
	out, err := d.onNode(ctx, node, script)
	require.NoError(t, err)
	return out
}

func (d *loopDisk) mount(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	d.mustOnNode(ctx, t, node, "mkdir -p %[1]s && mount %[2]s %[1]s")
}

func (d *loopDisk) unmount(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	cluster.Eventually(ctx, t, 30*time.Second, "nothing uses "+d.path+" on "+node, func(ctx context.Context) error {
		_, err := d.onNode(ctx, node, "umount %[1]s")
		return err
	})
}

// addNode adds a node to the cluster. The node is deleted and removed when the test ends.
func addNode(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		_, err := c.Devcluster(ctx, "remove-node", node)
		assert.NoError(t, err)
		c.Must(ctx, t, "delete", "node", node, "--ignore-not-found")
		c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=delete", "nodes.longhorn.io/"+node, "--timeout=90s")
	})
	_, err := c.Devcluster(ctx, append([]string{"add-node", node}, args...)...)
	require.NoError(t, err)
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=create", "nodes.longhorn.io/"+node, "--timeout=120s")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=condition=Ready", "nodes.longhorn.io/"+node, "--timeout=120s")
}
