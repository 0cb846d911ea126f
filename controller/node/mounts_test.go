package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mountwatch"
)

// tellingNodes reports each status when it is written, and then updates the caches.
type tellingNodes struct {
	NodeStore
	f     *fixture
	wrote chan *longhorn.Node
}

func (n tellingNodes) UpdateStatus(ctx context.Context, obj *longhorn.Node) (*longhorn.Node, error) {
	stored, err := n.NodeStore.UpdateStatus(ctx, obj)
	if err == nil {
		n.f.CatchUp()
		n.wrote <- stored
	}
	return stored, err
}

// asOfADevice makes file systems in memory look like file systems on devices.
type asOfADevice struct{ HostDisks }

func (d asOfADevice) Scan(paths map[string]string) map[string]disk.Record {
	records := d.HostDisks.Scan(paths)
	for name, r := range records {
		r.FSType = "ext4"
		records[name] = r
	}
	return records
}

// With real mounts: each change is in the disk's condition within 5 s, nothing is written to the directory beneath, and
// the disk is ready again when it is back.
func TestALostMountShowsWithinFiveSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes five seconds: not with -short")
	}
	if !mountns.Own(t) {
		return
	}
	root := t.TempDir()
	dir, beneath := filepath.Join(root, "disk"), filepath.Join(root, "beneath")
	for _, d := range []string{dir, beneath} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	do := func(what string, err error) {
		t.Helper()
		require.NoError(t, err, what)
	}
	do("keep what is beneath in sight", unix.Mount(dir, beneath, "", unix.MS_BIND, ""))
	do("mount", unix.Mount("one", dir, "tmpfs", 0, "size=1m"))

	f := newFixture(t, build.KubeNode("node-1"), build.Node("node-1", build.WithDisk("disk-1", "/disk")))
	nodes := tellingNodes{NodeStore: f.store.Nodes, f: f, wrote: make(chan *longhorn.Node, 100)}
	c, err := New(Deps{
		Node: "node-1", Namespace: types.Namespace, Nodes: nodes, KubeNodes: f.store.KubeNodes, Replicas: f.store.Replicas,
		Settings: f.store.Settings, Setting: f.store.Setting, Disks: asOfADevice{HostDisks{Root: root}}, Claims: f.claims,
		WatchMounts: mountwatch.Watch, Env: queue.Env{Clock: clock.RealClock{}, Recorder: f.Recorder, Log: f.Log},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		assert.NoError(t, <-done)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = unix.Unmount(beneath, unix.MNT_DETACH)
	}()
	expect := func(what, status, reason string) {
		t.Helper()
		late := time.After(5 * time.Second)
		var got longhorn.Condition
		for {
			select {
			case n := <-nodes.wrote:
				got = types.FindCondition(n.Status.DiskStatus["disk-1"].Conditions, types.ConditionReady)
				if string(got.Status) == status && got.Reason == reason {
					return
				}
			case <-late:
				t.Fatalf("%s: Ready = %+v after 5 s, want %s %s", what, got, status, reason)
			}
		}
	}

	expect("a new disk", "True", "")
	do("unmount lazily", unix.Unmount(dir, unix.MNT_DETACH))
	expect("unmounted lazily, for good", "False", "DiskFilesystemChanged")
	left, err := os.ReadDir(beneath)
	require.NoError(t, err)
	assert.Empty(t, left, "written beneath")

	second := filepath.Join(root, "second")
	do("make a place", os.Mkdir(second, 0o700))
	do("mount", unix.Mount("two", second, "tmpfs", 0, "size=1m"))
	defer func() { _ = unix.Unmount(second, unix.MNT_DETACH) }()
	uuid := f.live().Status.DiskStatus["disk-1"].DiskUUID
	put := func(text string) {
		t.Helper()
		do("write a UUID file", os.WriteFile(filepath.Join(second, "longhorn-disk.cfg"), []byte(text), 0o600))
	}
	do("make the directory of replicas", os.Mkdir(filepath.Join(second, "replicas"), 0o700))
	put(`{"diskUUID":"` + uuid + `","claim":1}`)
	do("bind", unix.Mount(second, dir, "", unix.MS_BIND, ""))
	expect("its file system is mounted", "True", "")
	do("mount over it", unix.Mount("three", dir, "tmpfs", 0, "size=1m"))
	expect("something was mounted over it", "False", "DiskFilesystemChanged")
	left, err = os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "written to what was mounted over it")
	do("unmount what is over it", unix.Unmount(dir, 0))
	expect("it is in sight again", "True", "")
	do("swap", unix.Unmount(dir, unix.MNT_DETACH))
	put(`{"diskUUID":"` + uuid2 + `","claim":1}`)
	do("swap", unix.Mount(second, dir, "", unix.MS_BIND, ""))
	expect("another disk is in its place", "False", "DiskFilesystemChanged")
}
