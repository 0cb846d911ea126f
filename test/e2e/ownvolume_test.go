package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDiskOnAVolumeOfOurs: a disk's file system is on a volume that is attached to the same node. Replicas on this disk
// survive, even when the process that serves both volumes is killed under a writer. The lower volume keeps its device,
// and the replica on it is rebuilt.
func TestDiskOnAVolumeOfOurs(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	const tag, below, node, other = "e2e-on-volume", "e2e-below", "node-2", "node-3"
	path := diskOnVolume(ctx, t, c, api, below, node)
	classOn(ctx, t, c, tag, 2)
	addTagged(ctx, t, c, api, other, "ext4", tag)
	api.addDisk(ctx, t, node, tag, v1.DiskUpdate{Path: path, AllowScheduling: true, Tags: []string{tag}})
	t.Cleanup(func() { api.removeEmptiedDisk(ctx, t, node, tag) })
	waitDisk(ctx, t, c, node, tag, longhorn.ConditionTrue, "")
	n, err := longhornNode(ctx, c, node)
	require.NoError(t, err)
	assert.Equal(t, below, n.Status.DiskStatus[tag].OnVolume)

	ns := namespace(ctx, t, c, "e2e-on-volume")
	w := startWriterOn(ctx, t, c, ns, verifyingBeside+writing, tag)
	h := follow(ctx, t, c, w.volume)
	devices, err := devicesOf(ctx, c, node, below)
	require.NoError(t, err)
	for range 2 {
		began, was := time.Now(), theEngine(ctx, t, c, w.volume).Status
		killProcess(ctx, t, c, node, "instance-manager serve")
		cluster.Eventually(ctx, t, time.Minute, "the volume was degraded, or its engine, in the same process, started anew", func(context.Context) error {
			if _, anew := h.generationAbove(was.Generation); !anew && !h.was(longhorn.VolumeRobustnessDegraded, began) {
				return errors.New("neither was")
			}
			return nil
		})
		w.waitHealthy(ctx, t, 2*time.Minute)
		w.waitAcked(ctx, t, time.Now(), time.Minute)
		t.Logf("healthy again after %s", time.Since(began).Round(time.Second))
	}
	now, err := devicesOf(ctx, c, node, below)
	require.NoError(t, err)
	assert.Equal(t, devices, now, "what %s has of the volume below", node)
	w.checkVerified(ctx, t)
	w.finish(ctx, t)
	t.Run("a volume may not come to rest on itself", func(t *testing.T) { circleIsRefused(ctx, t, c, api, below, tag, other) })
}

// diskOnVolume attaches a volume to a node and mounts a file system on it there. Both are undone when the test ends.
func diskOnVolume(ctx context.Context, t *testing.T, c *cluster.Cluster, api restAPI, volume, node string) (path string) {
	t.Helper()
	path = "/mnt/" + volume
	api.do(ctx, t, http.MethodPost, "/volumes", v1.VolumeCreate{Name: volume, Size: "1073741824", NumberOfReplicas: 2}, http.StatusCreated, nil)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		api.do(ctx, t, http.MethodDelete, "/volumes/"+volume, nil, http.StatusNoContent, nil)
		waitVolumeGone(ctx, t, c, volume)
	})
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action=attach", v1.AttachInput{HostID: node}, http.StatusOK, nil)
	waitVolume(ctx, t, c, volume, ".status.robustness", "healthy")
	c.MustOnNode(ctx, t, node, "bash", "-c", fmt.Sprintf("mkfs.ext4 -q /dev/longhorn/%[1]s && mkdir -p %[2]s && mount /dev/longhorn/%[1]s %[2]s", volume, path))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		cluster.Eventually(ctx, t, time.Minute, "nothing uses "+path, func(ctx context.Context) error {
			_, err := c.OnNode(ctx, node, "umount", path)
			return err
		})
		api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action=detach", v1.DetachInput{}, http.StatusOK, nil)
		waitVolume(ctx, t, c, volume, ".status.state", "detached")
	})
	return path
}

// circleIsRefused requests another replica of a volume while the only free place is the disk on that volume. The volume
// says why no replica is created.
func circleIsRefused(ctx context.Context, t *testing.T, c *cluster.Cluster, api restAPI, volume, tag, other string) {
	t.Helper()
	disks := api.disks(ctx, t, other)
	d := disks[tag]
	d.AllowScheduling = false
	disks[tag] = d
	api.setDisks(ctx, t, other, disks)
	patch := func(spec string) {
		c.Must(ctx, t, "-n", types.Namespace, "patch", "volumes.longhorn.io", volume, "--type=merge", "-p", `{"spec":`+spec+`}`)
	}
	patch(`{"diskSelector":["` + tag + `"],"numberOfReplicas":3}`)
	cluster.Eventually(ctx, t, time.Minute, "the volume says that the disk lies on it", func(ctx context.Context) error {
		conditions := theVolume(ctx, t, c, volume).Status.Conditions
		for _, c := range conditions {
			if strings.Contains(c.Message, "the volume would depend on itself") {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", conditions)
	})
	for _, r := range replicasOf(ctx, t, c, volume) {
		assert.NotContains(t, r.Spec.DiskPath, "/mnt/"+volume)
	}
	patch(`{"diskSelector":[],"numberOfReplicas":2}`)
	waitHealthy(ctx, t, c, volume, time.Minute)
}
