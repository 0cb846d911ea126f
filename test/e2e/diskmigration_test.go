package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestDiskMigratesUnderAWriter: a disk of a volume in use is mounted at another path of its node, while the entry of
// the old path stays. Then it is mounted on another node. Each time the writer continues without an error. Nothing is
// written beneath the mount point that the disk left. The same replica is found at the new place and rebuilt.
func TestDiskMigratesUnderAWriter(t *testing.T) {
	t.Parallel() // runs with the other tests that keep the cluster intact, after the tests that do not
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	const tag = "e2e-migrate"
	disks := map[string]*loopDisk{}
	for _, node := range nodes[:2] {
		disks[node] = addTagged(ctx, t, c, api, node, "ext4", tag)
	}
	classOn(ctx, t, c, tag, len(disks))
	ns := namespace(ctx, t, c, tag)
	w := startWriterOn(ctx, t, c, ns, verifyingBeside+writing, tag)

	from, to := w.node(ctx, t), nodes[2] // the engine's own disk, if it has one
	if disks[from] == nil {
		from = nodes[0]
	}
	m := &migration{
		writer: w, api: api, tag: tag, device: disks[from].device, path: disks[from].path, node: from, entries: []string{tag},
		replica: replicaOn(ctx, t, c, w.volume, from),
	}
	m.move(ctx, t, from, "other-path")
	cluster.Eventually(ctx, t, 30*time.Second, "the entry of the old path says DiskMoved", func(ctx context.Context) error {
		n, err := longhornNode(ctx, c, from)
		if err != nil {
			return err
		}
		if ready := types.FindCondition(n.Status.DiskStatus[tag].Conditions, types.ConditionReady); ready.Reason != "DiskMoved" || !strings.Contains(ready.Message, m.path) {
			return fmt.Errorf("it is %s: %s: %s", ready.Status, ready.Reason, ready.Message)
		}
		return nil
	})
	m.move(ctx, t, to, "other-node")

	w.checkVerified(ctx, t)
	w.finish(ctx, t)
	c.Must(ctx, t, "-n", ns, "delete", "deployment", "writer", "--timeout=60s")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--timeout=60s")
	waitVolumeGone(ctx, t, c, w.volume)
}

// migration is a disk that moves from place to place under a writer, with one of the volume's replicas.
type migration struct {
	*writer
	api         restAPI
	tag, device string
	node, path  string   // where the disk is
	entries     []string // all its entries in the spec of that node; the last one is in use
	replica     longhorn.Replica
}

// move mounts the disk at another place, creates an entry for it there, and waits until the volume is healthy with it.
func (m *migration) move(ctx context.Context, t *testing.T, node, entry string) {
	t.Helper()
	h := follow(ctx, t, m.c, m.volume)
	was := &loopDisk{c: m.c, device: m.device, path: m.path}
	is := &loopDisk{c: m.c, device: m.device, path: "/mnt/" + m.tag + "-" + entry}
	beneath := m.beneath(ctx, t, was, m.node)
	began := time.Now()
	was.mustOnNode(ctx, t, m.node, "umount -l %[1]s")
	waitDegraded(ctx, t, h, began, time.Minute)
	m.waitAcked(ctx, t, time.Now(), 30*time.Second)
	waitDisk(ctx, t, m.c, m.node, m.entries[len(m.entries)-1], longhorn.ConditionFalse, m.path)
	if node != m.node { // a disk belongs to one node at a time
		for _, entry := range m.entries {
			m.api.removeDisk(ctx, t, m.node, entry)
		}
		m.entries = nil
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		is.onNode(ctx, node, "umount -l %[1]s")
	})
	is.mount(ctx, t, node)
	m.api.addDisk(ctx, t, node, entry, v1.DiskUpdate{Path: is.path, AllowScheduling: true, Tags: []string{m.tag}})
	t.Cleanup(func() { m.api.removeDisk(context.WithoutCancel(ctx), t, node, entry) })
	waitDisk(ctx, t, m.c, node, entry, longhorn.ConditionTrue, "")
	cluster.Eventually(ctx, t, time.Minute, "the replica is on "+node+" in "+is.path, func(ctx context.Context) error {
		var all []string
		for _, r := range replicasOf(ctx, t, m.c, m.volume) {
			if r.Name == m.replica.Name && r.UID == m.replica.UID && r.Spec.NodeID == node && r.Spec.DiskPath == is.path {
				return nil
			}
			all = append(all, fmt.Sprintf("%s on %s in %s", r.Name, r.Spec.NodeID, r.Spec.DiskPath))
		}
		return fmt.Errorf("%s is not; there are %q", m.replica.Name, all)
	})
	m.waitHealthy(ctx, t, 3*time.Minute)
	t.Logf("healthy with the disk on %s in %s %s after it was unmounted", node, is.path, time.Since(began).Round(time.Second))
	h.checkRebuilt(ctx, t, m.replica.Name)
	assert.Len(t, replicasOf(ctx, t, m.c, m.volume), 2, "replicas: the one that was there is used, no other is made")
	m.waitAcked(ctx, t, time.Now(), 30*time.Second)
	assert.Equal(t, beneath, m.beneath(ctx, t, was, m.node), "beneath %s on %s, which the disk left", was.path, m.node)
	m.node, m.path, m.entries = node, is.path, append(m.entries, entry)
}
