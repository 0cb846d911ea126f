package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const patience = 30 * time.Second

// hangingPlane does not return from starts on some disks before release is closed.
type hangingPlane struct {
	fakePlane
	release chan struct{}
	hanging chan string // the disks of the calls that hang
	started chan string // the replicas of the calls that returned
}

func (f *hangingPlane) StartReplica(_ context.Context, s Spec) error {
	if s.DiskUUID != "good" {
		f.hanging <- s.DiskUUID
		<-f.release
	}
	f.started <- s.Name
	return nil
}

func TestDisksThatHangDoNotStopTheNode(t *testing.T) {
	plane := &hangingPlane{release: make(chan struct{}), hanging: make(chan string, 64), started: make(chan string, 64)}
	plane.observed = Observed{Phase: types.PhaseAbsent, Process: "p"}
	objs := []runtime.Object{
		key(), build.RunningInstanceManager("n", "10.0.0.7", "p"),
		build.ReadyNode("n", "good", build.WithDisk("disk-2", "/hung"), build.WithDiskStatus("disk-2", "hung"),
			build.WithDisk("disk-3", "/stuck"), build.WithDiskStatus("disk-3", "stuck")),
		build.PlacedReplica("z", "vol", "n", "good", wanted, created),
	}
	const perDisk = 6
	for _, disk := range []string{"hung", "stuck"} {
		for i := range perDisk {
			objs = append(objs, build.PlacedReplica(fmt.Sprint(disk, "-", i), "vol", "n", disk, wanted, created))
		}
	}
	h := testutil.New(t, objs...)
	store := h.Datastore(datastore.Options{Node: "n"})
	c, err := New(Deps{
		Env: h.Env(), Replicas: store.Replicas, Nodes: store.Nodes, InstanceManagers: store.InstanceManagers,
		Volumes: store.Volumes, Engines: store.Engines, VolumeKey: store.VolumeKey, DataPlane: plane, Node: "n",
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	late := time.After(patience)
	await := func(what string, told <-chan string) (got string) {
		t.Helper()
		select {
		case got = <-told:
		case <-late:
			t.Fatalf("%s was not started", what)
		}
		return got
	}
	c.NotifyAll()
	held := map[string]int{}
	for range 2 * callsPerDisk {
		held[await("a replica of each disk", plane.hanging)]++
	}
	assert.Equal(t, callsPerDisk, held["hung"])
	assert.Equal(t, callsPerDisk, held["stuck"], "calls under way")
	assert.Equal(t, "z", await("the replica on the disk that answers", plane.started))
	h.CatchUp()
	c.NotifyAll()
	assert.Equal(t, "z", await("the same, once more", plane.started))
	assert.Empty(t, plane.hanging, "a disk that hangs was asked once more")

	close(plane.release)
	seen := map[string]bool{}
	for len(seen) < 2*perDisk {
		if name := await("each replica, when the disks answer", plane.started); name != "z" {
			seen[name] = true
		}
	}
	cancel()
	assert.NoError(t, <-ended)
}
