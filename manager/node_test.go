package manager

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestNodeShowsTheAddressOfItsManagerPod(t *testing.T) {
	pod := func(name, app, ip string) *corev1.Pod {
		return build.Pod(name, "node-1", func(p *corev1.Pod) { p.Labels["app"] = app; p.Status.PodIP = ip })
	}
	b := newBench(t, build.Node("node-1"), build.Node("node-2"),
		pod("a", "something", "10.0.0.8"), pod("b", "longhorn-manager", "10.0.0.9"))
	views, err := b.ListNodes()
	require.NoError(t, err)
	require.Len(t, views, 2)
	assert.Equal(t, "10.0.0.9", views[0].Address)
	assert.Empty(t, views[1].Address)
	_, err = b.Node("node-9")
	wantProblem(t, err, ErrNotFound, `node "node-9" does not exist`)
}

func TestUpdateNode(t *testing.T) {
	t.Run("the three fields → overwritten, tags sorted without doubles, disks kept", func(t *testing.T) {
		b := newBench(t, threeNodes()...)
		view, err := b.UpdateNode(t.Context(), "node-2", NodeUpdate{EvictionRequested: true, Tags: []string{"b", "a", "b"}})
		require.NoError(t, err)
		spec := view.Node.Spec
		assert.False(t, spec.AllowScheduling)
		assert.True(t, spec.EvictionRequested)
		assert.Equal(t, []string{"a", "b"}, spec.Tags)
		assert.Len(t, spec.Disks, 1)
	})
	t.Run("another wrote in between → tried again on the newer one", func(t *testing.T) {
		b := newBench(t, threeNodes()...)
		b.Fail("update", "nodes", apierrors.NewConflict(longhorn.Resource("nodes"), "node-1", nil))
		_, err := b.UpdateNode(t.Context(), "node-1", NodeUpdate{})
		require.NoError(t, err)
		b.ExpectWrites("update nodes/node-1", "update nodes/node-1")
	})
	t.Run("scheduling and eviction at once → refused", func(t *testing.T) {
		_, err := newBench(t, threeNodes()...).UpdateNode(t.Context(), "node-1", NodeUpdate{AllowScheduling: true, EvictionRequested: true})
		wantInvalid(t, err, "evictionRequested", "evictionRequested: must not be true while allowScheduling is true")
	})
	t.Run("no such node → not found", func(t *testing.T) {
		_, err := newBench(t).UpdateNode(t.Context(), "node-1", NodeUpdate{})
		wantProblem(t, err, ErrNotFound, `node "node-1" does not exist`)
	})
	t.Run("a tag with a blank → refused", func(t *testing.T) {
		_, err := checkedTags("tags", []string{"very fast"})
		assert.Error(t, err)
	})
}

func TestUpdateDisksRefusesWhatBreaksARule(t *testing.T) {
	cases := map[string]struct {
		disks map[string]DiskSpec
		field string
		text  string
	}{
		"a system's directory":    {map[string]DiskSpec{"d": {Path: "/etc/kubernetes//manifests/"}}, "disks.d.path", `disks.d.path: "/etc/kubernetes/manifests" is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1`},
		"an empty tag":            {map[string]DiskSpec{"d": {Path: "/data", Tags: []string{"a", ""}}}, "disks.d.tags[1]", `disks.d.tags[1]: at least one error encountered while validating tags: "" is not a valid tag: a tag must not be empty`},
		"a relative path":         {map[string]DiskSpec{"d": {Path: "data"}}, "disks.d.path", `disks.d.path: "data" must be an absolute path`},
		"a block device":          {map[string]DiskSpec{"d": {Path: "/d", Type: "block"}}, "disks.d.diskType", `disks.d.diskType: "block" must be filesystem`},
		"a driver":                {map[string]DiskSpec{"d": {Path: "/d", Driver: "aio"}}, "disks.d.diskDriver", `disks.d.diskDriver: "aio" must be empty: only block disks have a driver`},
		"a negative reserve":      {map[string]DiskSpec{"d": {Path: "/d", StorageReserved: -1}}, "disks.d.storageReserved", `disks.d.storageReserved: "-1" must not be negative`},
		"scheduling and eviction": {map[string]DiskSpec{"d": {Path: "/d", AllowScheduling: true, EvictionRequested: true}}, "disks.d.evictionRequested", "disks.d.evictionRequested: must not be true while allowScheduling is true"},
		"no name":                 {map[string]DiskSpec{"": {Path: "/d"}}, "disks", "disks: a disk must have a name"},
	}
	for name, c := range cases {
		t.Run(name+" → refused", func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			_, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: c.disks})
			wantInvalid(t, err, c.field, c.text)
			b.ExpectWrites()
		})
	}
}

const diskHeld = "disk disk-1 of node node-1 is ready and holds replicas: it cannot be removed, and its path cannot change;" +
	" first evict its replicas (allowScheduling false, evictionRequested true) and wait until its condition Emptied is True, or unmount the disk to move it together with its replicas"

func TestUpdateDisksReplacesTheMap(t *testing.T) {
	closed := func(d *longhorn.DiskSpec) { d.AllowScheduling = false }
	kept := DiskSpec{Path: "/data//one/", AllowScheduling: true, StorageReserved: 7, Tags: []string{"ssd"}}
	t.Run("two disks at one path → accepted; their conditions show the conflict", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: map[string]DiskSpec{
			"disk-1": {Path: "/var/lib/longhorn"}, "a": {Path: "/d"}, "b": {Path: "/x/../d/"}, "c": {Path: "/var/lib/longhorn"},
		}})
		require.NoError(t, err)
		assert.Equal(t, "/d", view.Node.Spec.Disks["a"].Path)
		assert.Equal(t, "/d", view.Node.Spec.Disks["b"].Path)
		b.ExpectWrites("update nodes/node-1")
	})
	t.Run("an empty closed disk left out → removed; a new one → added in its stored form", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1", build.WithDisk("disk-1", "/var/lib/longhorn", closed)))
		view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: map[string]DiskSpec{"disk-2": kept}})
		require.NoError(t, err)
		want := map[string]DiskSpec{"disk-2": {Type: "filesystem", Path: "/data/one", AllowScheduling: true, StorageReserved: 7, Tags: []string{"ssd"}}}
		assert.Equal(t, want, view.Node.Spec.Disks)
	})
	refused := map[string]struct {
		node    *longhorn.Node
		replica *longhorn.Replica
		text    string
		disks   map[string]DiskSpec
	}{
		"left out while it may be scheduled": {
			build.ReadyNode("node-1", "uuid-1"), nil,
			`disk disk-1 of node node-1 cannot be removed while its allowScheduling is true: disable the disk first`, nil,
		},
		"left out while its status counts replicas": {
			build.ReadyNode("node-1", "uuid-1", build.WithDisk("disk-1", "/d", closed),
				build.WithDiskStatus("disk-1", "uuid-1", func(s *longhorn.DiskStatus) { s.StorageScheduled = 5 })), nil,
			diskHeld, nil,
		},
		"left out while a replica is there that its status does not count yet": {
			build.ReadyNode("node-1", "uuid-1", build.WithDisk("disk-1", "/d", closed)),
			build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1"),
			diskHeld, nil,
		},
		"given another path while it is ready and holds a replica": {
			build.ReadyNode("node-1", "uuid-1"),
			build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1"),
			diskHeld,
			map[string]DiskSpec{"disk-1": {Path: "/elsewhere"}},
		},
		"left out while it is not ready but may be scheduled": {
			build.ReadyNode("node-1", "uuid-1", unmounted), nil,
			`disk disk-1 of node node-1 cannot be removed while its allowScheduling is true: disable the disk first`, nil,
		},
	}
	for name, c := range refused {
		t.Run(name+" → refused", func(t *testing.T) {
			b := newBench(t, c.node)
			if c.replica != nil {
				b.Seed(c.replica)
				b.CatchUp()
			}
			_, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: c.disks})
			wantProblem(t, err, ErrConflict, c.text)
			b.ExpectWrites()
		})
	}
}

// If a change names the version that its client read, the manager does not apply it to another version. It does not
// matter which client wrote that version, or when.
func TestAChangeOfAVersion(t *testing.T) {
	tagged := func(tags ...string) func(*longhorn.Node) { return func(n *longhorn.Node) { n.Spec.Tags = tags } }
	reported := func(n *longhorn.Node) { n.Status.Region = "another" }
	const changed = `node "node-1" has changed since the client read it; read it again`
	for name, c := range map[string]struct {
		now     func(*longhorn.Node)
		refused bool
	}{
		"nothing changed → made":                         {tagged("fast"), false},
		"the node reported something → made":             {func(n *longhorn.Node) { tagged("fast")(n); reported(n) }, false},
		"another changed its tags → refused":             {tagged("slow"), true},
		"another added a disk → refused":                 {func(n *longhorn.Node) { tagged("fast")(n); build.WithDisk("disk-2", "/mnt/two")(n) }, true},
		"another changed it and the cache is late → too": {tagged(), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, build.ReadyNode("node-1", "uuid-1", tagged("fast")))
			read, err := b.Node("node-1")
			require.NoError(t, err)
			b.Overwrite(build.ReadyNode("node-1", "uuid-1", c.now))
			_, errNode := b.UpdateNode(t.Context(), "node-1", NodeUpdate{AllowScheduling: true, Tags: []string{"fast"}, IfSpecVersion: read.SpecVersion})
			_, errDisks := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: read.Node.Spec.Disks, IfSpecVersion: read.SpecVersion})
			if c.refused {
				wantProblem(t, errNode, ErrChanged, changed)
				wantProblem(t, errDisks, ErrChanged, changed)
				b.ExpectWrites()
				return
			}
			require.NoError(t, errNode)
			require.NoError(t, errDisks)
		})
	}
	t.Run("another changes it between the read and the write → refused", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		read, err := b.Node("node-1")
		require.NoError(t, err)
		b.Fail("update", "nodes", apierrors.NewConflict(longhorn.Resource("nodes"), "node-1", nil))
		b.hasty.during = func() { b.Overwrite(build.ReadyNode("node-1", "uuid-1", tagged("slow"))) }
		_, err = b.UpdateNode(t.Context(), "node-1", NodeUpdate{IfSpecVersion: read.SpecVersion})
		wantProblem(t, err, ErrChanged, changed)
		b.ExpectWrites("update nodes/node-1")
	})
}

// A disk that an older installation created in a system directory stays, and its node can be changed.
func TestADiskInADirectoryOfTheSystemStays(t *testing.T) {
	b := newBench(t, build.ReadyNode("node-1", "uuid-1", build.WithDisk("disk-1", "/var/lib", func(d *longhorn.DiskSpec) { d.AllowScheduling = true })))
	disks := map[string]DiskSpec{"disk-1": {Path: "/var/lib/"}, "disk-2": {Path: "/mnt/two"}}
	view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: disks})
	require.NoError(t, err)
	assert.Equal(t, "/var/lib", view.Node.Spec.Disks["disk-1"].Path)
	assert.Equal(t, "/mnt/two", view.Node.Spec.Disks["disk-2"].Path)
	disks["disk-2"] = DiskSpec{Path: "/var/lib"}
	delete(disks, "disk-1")
	_, err = b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: disks})
	assert.ErrorContains(t, err, "is a directory of the system", "under another name it is new")
}

// unmounted makes the node's disk not ready; then its status shows no replicas.
func unmounted(n *longhorn.Node) {
	s := n.Status.DiskStatus["disk-1"]
	s.Conditions = []longhorn.Condition{condition("Ready", longhorn.ConditionFalse, "DiskFilesystemChanged", "unmounted")}
	n.Status.DiskStatus["disk-1"] = s
}

func TestADiskThatIsNotReadyIsRemovedDespiteItsReplicas(t *testing.T) {
	closed := func(d *longhorn.DiskSpec) { d.AllowScheduling = false }
	node := build.ReadyNode("node-1", "uuid-1", unmounted, build.WithDisk("disk-1", "/mnt//d", closed))
	replica := build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1")
	t.Run("left out → removed, its replica stays", func(t *testing.T) {
		b := newBench(t, node, replica)
		view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: map[string]DiskSpec{}})
		require.NoError(t, err)
		assert.Empty(t, view.Node.Spec.Disks)
		b.ExpectWrites("update nodes/node-1")
	})
	t.Run("given another path → moved", func(t *testing.T) {
		b := newBench(t, node, replica)
		view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: map[string]DiskSpec{"disk-1": {Path: "/mnt/e"}}})
		require.NoError(t, err)
		assert.Equal(t, "/mnt/e", view.Node.Spec.Disks["disk-1"].Path)
	})
	t.Run("given the same path in another spelling → keeps the one it has", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1", build.WithDisk("disk-1", "/mnt//d")), replica)
		view, err := b.UpdateDisks(t.Context(), "node-1", DisksUpdate{Disks: map[string]DiskSpec{"disk-1": {Path: "/mnt/d", AllowScheduling: true}}})
		require.NoError(t, err)
		assert.Equal(t, "/mnt//d", view.Node.Spec.Disks["disk-1"].Path)
	})
}

// lacksDaemon changes a node to one without the pod of its daemon, with the leader's condition Removable.
func lacksDaemon(removable longhorn.ConditionStatus) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{
			{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonManagerPodMissing},
			{Type: types.ConditionRemovable, Status: removable},
		}
	}
}

func TestDeleteNode(t *testing.T) {
	t.Run("its Kubernetes node is gone → deleted, its replicas are not", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1"))
		require.NoError(t, b.DeleteNode(t.Context(), "node-1"))
		b.ExpectWrites("delete nodes/node-1")
	})
	t.Run("its Kubernetes node is there, though it does not answer → refused", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"), build.KubeNode("node-1", func(n *corev1.Node) { n.Status.Conditions = nil }))
		err := b.DeleteNode(t.Context(), "node-1")
		wantProblem(t, err, ErrConflict, "node node-1 cannot be deleted while its Kubernetes node exists: it would be registered again without its disks and tags;"+
			" it is removed automatically when its Kubernetes node is removed")
		b.ExpectWrites()
	})
	t.Run("its daemon's pod is missing, and the leader keeps the node → refused", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1", lacksDaemon(longhorn.ConditionFalse)), build.KubeNode("node-1"))
		wantProblem(t, b.DeleteNode(t.Context(), "node-1"), ErrConflict, "node node-1 cannot be deleted while its Kubernetes node exists: it would be registered again without its disks and tags;"+
			" it is removed automatically when its Kubernetes node is removed")
		b.ExpectWrites()
	})
	t.Run("its daemon has left for good → deleted", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1", lacksDaemon(longhorn.ConditionTrue)), build.KubeNode("node-1"))
		require.NoError(t, b.DeleteNode(t.Context(), "node-1"))
		b.ExpectWrites("delete nodes/node-1")
	})
	t.Run("the server does not answer about the Kubernetes node → nothing is deleted", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		b.Fail("get", "nodes", nil, errors.New("away"))
		assert.Error(t, b.DeleteNode(t.Context(), "node-1"))
		b.ExpectWrites()
	})
	t.Run("changed in between → looked at again", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		b.Fail("delete", "nodes", apierrors.NewConflict(longhorn.Resource("nodes"), "node-1", nil))
		require.NoError(t, b.DeleteNode(t.Context(), "node-1"))
		b.ExpectWrites("delete nodes/node-1", "delete nodes/node-1")
	})
	t.Run("a policy of the cluster is against it → its words", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		denied := apierrors.NewForbidden(longhorn.Resource("nodes"), "node-1", errors.New("denied"))
		denied.ErrStatus.Details.Causes = []metav1.StatusCause{{
			Message: "ValidatingAdmissionPolicy 'longhorn-keep-disks' with binding 'longhorn-keep-disks' denied request: it holds replicas",
		}}
		b.Fail("delete", "nodes", denied)
		wantProblem(t, b.DeleteNode(t.Context(), "node-1"), ErrConflict, "it holds replicas")
	})
	t.Run("this program lacks the right → an error behind the scenes", func(t *testing.T) {
		b := newBench(t, build.ReadyNode("node-1", "uuid-1"))
		b.Fail("delete", "nodes", apierrors.NewForbidden(longhorn.Resource("nodes"), "node-1", errors.New("no rule")))
		var problem *Problem
		err := b.DeleteNode(t.Context(), "node-1")
		require.Error(t, err)
		assert.NotErrorAs(t, err, &problem)
	})
	t.Run("no such node → not found", func(t *testing.T) {
		wantProblem(t, newBench(t).DeleteNode(t.Context(), "node-1"), ErrNotFound, `node "node-1" does not exist`)
	})
}
