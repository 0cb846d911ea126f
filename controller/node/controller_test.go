package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDisks are directories by path; each is its own file system.
type fakeDisks struct {
	mu         sync.Mutex // several paths are scanned at once
	records    map[string]disk.Record
	prepareErr error
	createErr  error
	done       []string // changes on disk, except claims
	claimErr   error
	claimed    []string // the claims written
}

func (f *fakeDisks) Scan(paths map[string]string) map[string]disk.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	records := map[string]disk.Record{}
	for name, path := range paths {
		r, ok := f.records[path]
		if !ok {
			r.Err = errors.New("no such directory")
		}
		r.Name, r.Path = name, path
		records[name] = r
	}
	return records
}

func (f *fakeDisks) CreateConfig(r disk.Record, config disk.Config) error {
	if f.createErr != nil {
		return f.createErr
	}
	f.done = append(f.done, "create "+r.Path)
	r.Config, r.ConfigErr = &config, nil
	f.records[r.Path] = r
	return nil
}

func (f *fakeDisks) WriteClaim(r disk.Record, claim int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claimErr != nil {
		return f.claimErr
	}
	f.claimed = append(f.claimed, fmt.Sprintf("%s %d", r.Path, claim))
	now := f.records[r.Path]
	config := *now.Config
	config.Claim = claim
	now.Config = &config
	f.records[r.Path] = now
	return nil
}

func (f *fakeDisks) Prepare(path string) error {
	f.done = append(f.done, "prepare "+path)
	return f.prepareErr
}

func (f *fakeDisks) NewUUID(known []string) (string, error) {
	return fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(known)), nil
}

// fixture is a daemon's node controller on node-1.
type fixture struct {
	*testutil.Harness
	disks  *fakeDisks
	claims *fakeClaims
	store  *datastore.Datastore
	*Controller
}

func newFixture(t *testing.T, objs ...runtime.Object) *fixture {
	h := testutil.New(t, objs...)
	f := &fixture{
		Harness: h, store: h.Datastore(datastore.Options{Node: "node-1"}),
		disks:  &fakeDisks{records: map[string]disk.Record{"/var/lib/longhorn": found()}},
		claims: newFakeClaims(lease("node-1/disk-1", 1)),
	}
	f.Controller = f.newController(f.disks)
	return f
}

func (f *fixture) newController(disks Disks) *Controller {
	f.T.Helper()
	d := f.store
	c, err := New(Deps{
		Node: "node-1", Namespace: types.Namespace,
		Nodes: d.Nodes, KubeNodes: d.KubeNodes, Replicas: d.Replicas, Settings: d.Settings, Setting: d.Setting, Disks: disks, Claims: f.claims,
		DefaultSettings: d.DefaultSettings, Env: f.Env(),
	})
	require.NoError(f.T, err)
	f.EndWithTest(c.Run)
	return c
}

func (f *fixture) mustSync() {
	f.T.Helper()
	_, err := f.sync(f.T.Context(), "node-1")
	require.NoError(f.T, err)
}

func (f *fixture) live() *longhorn.Node {
	f.T.Helper()
	n, err := f.store.Nodes.Live(f.T.Context(), "node-1")
	require.NoError(f.T, err)
	return n
}

func TestANodeIsRegisteredOnceWithItsDefaultDisk(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"),
		build.Setting(settings.DefaultDataPath, "/data"), build.Setting(settings.ReservedPercentage, "10"))
	f.disks.records["/data"] = found(withoutFile, func(r *disk.Record) { r.FSID = "00ab" })

	f.mustSync()
	f.ExpectWrites("create nodes/node-1")
	want := []string{"prepare /data"}
	assert.Equal(t, want, f.disks.done, "on disk")
	n := f.live()
	d, ok := n.Spec.Disks["default-disk-00ab"]
	require.True(t, ok)
	require.Len(t, n.Spec.Disks, 1)
	require.True(t, n.Spec.AllowScheduling)
	require.Equal(t, "node-1", n.Spec.Name)
	assert.Equal(t, "/data", d.Path)
	assert.True(t, d.AllowScheduling)
	assert.Equal(t, int64(10*gib), d.StorageReserved)
	assert.Equal(t, longhorn.DiskTypeFilesystem, d.Type)

	f.mustSync() // the cache is late: the controller must not create the node again
	f.ExpectWrites()

	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	assert.Equal(t, "00000000-0000-4000-8000-000000000000", f.live().Status.DiskStatus["default-disk-00ab"].DiskUUID)
	f.ExpectEvents(
		"Normal Schedulable node-1: Kubernetes node node-1 is not cordoned",
		"Normal Ready node-1: Disk default-disk-00ab(/data) on node node-1 is ready",
		"Normal Schedulable node-1: Disk default-disk-00ab(/data) on node node-1 is schedulable")

	f.CatchUp()
	f.mustSync()
	f.ExpectWrites()

	// The user removes the disk: it does not come back.
	n = f.live()
	n.Spec.Disks = nil
	_, err := f.store.Nodes.Update(t.Context(), n)
	require.NoError(t, err)
	f.Writes()
	f.CatchUp()
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	n = f.live()
	assert.Zero(t, len(n.Spec.Disks)+len(n.Status.DiskStatus), "disks came back: %+v", n)
}

// TestANewDiskThatIsNoMountPointIsTold: such a disk is allowed, but a user may have forgotten to mount a file system.
func TestANewDiskThatIsNoMountPointIsTold(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", "", func(n *longhorn.Node) { n.Status.DiskStatus = nil }))
	f.disks.records["/var/lib/longhorn"] = found(withoutFile, func(r *disk.Record) { r.InsideMount, r.MountSource = true, "/dev/sda1" })
	told := func() int {
		return len(slices.DeleteFunc(f.Recorder.Take(), func(e string) bool {
			return !strings.HasPrefix(e, "Normal DiskSharesFilesystem node-1: new disk disk-1(/var/lib/longhorn) on node node-1 has no file system of its own: ")
		}))
	}
	f.mustSync()
	assert.Equal(t, 1, told())
	f.CatchUp()
	f.mustSync()
	assert.Equal(t, 0, told(), "it is told once")
}

func TestANodeWhoseDefaultDirectoryFailsIsRegisteredWithoutADisk(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"))
	f.disks.prepareErr = errors.New("read-only file system")
	f.mustSync()
	f.ExpectWrites("create nodes/node-1")
	n := f.live()
	assert.Empty(t, n.Spec.Disks)
}

func TestAnErrorOfTheAPIServerRegistersNothing(t *testing.T) {
	f := newFixture(t)
	f.Fail("get", "nodes", errors.New("unreachable"))
	_, err := f.sync(t.Context(), "node-1")
	assert.Error(t, err)
	f.ExpectWrites()
	assert.Empty(t, f.disks.done, "on disk")
}

func TestAtRestNothingIsWrittenAndTheNextScanIsPlanned(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	f.mustSync()
	f.Writes()
	f.CatchUp()
	for range 3 {
		f.Clock.Step(scanInterval)
		result, err := f.sync(t.Context(), "node-1")
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, result.RequeueAfter)
	}
	f.ExpectWrites()
	assert.Empty(t, f.disks.done, "on disk")
}

func TestADiskThatDoesNotAnswerTheDataPlaneIsToldAtOnce(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	silent := map[string]string{}
	f.deps.DataPlane = func() DataPlane { return DataPlane{HangingDisks: silent} }
	f.mustSync()
	f.CatchUp()
	f.Writes()
	f.Recorder.Take()
	assert.False(t, f.hearsNews(), "a change that concerns no disk has the disks scanned")
	silent = map[string]string{"/var/lib/longhorn": "the disk /var/lib/longhorn has not answered"}
	assert.True(t, f.hearsNews())
	assert.False(t, f.hearsNews(), "a disk that does not answer is not told once")
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	c := types.FindCondition(f.live().Status.DiskStatus["disk-1"].Conditions, types.ConditionReady)
	assert.Equal(t, "DiskNotResponding", c.Reason)
	assert.Contains(t, c.Message, silent["/var/lib/longhorn"])
}

func TestAMountThatWentAwayIsToldAndNothingIsMadeInItsPlace(t *testing.T) {
	f := newFixture(t, build.ReadyNode("node-1", uuid1))
	f.disks.records["/var/lib/longhorn"] = found(withoutFile)
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	assert.Empty(t, f.disks.done, "on disk")
	events := f.Recorder.Take()
	require.Len(t, events, 2)
	assert.True(t, strings.HasPrefix(events[0], "Warning DiskFilesystemChanged node-1: Disk disk-1(/var/lib/longhorn) on node node-1 is not ready: "), events[0])
	assert.Equal(t, uuid1, f.live().Status.DiskStatus["disk-1"].DiskUUID)
}

func TestAUUIDFileThatCannotBeMadeIsTheDisksReason(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	f.disks.records["/var/lib/longhorn"] = found(withoutFile)
	f.disks.createErr = errors.New("read-only file system")
	f.mustSync()
	c := types.FindCondition(f.live().Status.DiskStatus["disk-1"].Conditions, types.ConditionReady)
	assert.Equal(t, "NoDiskInfo", c.Reason)
	assert.Contains(t, c.Message, "create the UUID file: read-only file system")
}

func TestARefusedStatusIsTriedAgainAndTellsItsEventsOnce(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1, func(n *longhorn.Node) {
		n.Status.Conditions = n.Status.Conditions[:1]
	}))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-1", nil)
	f.Fail("update", "nodes", conflict, errors.New("timeout"))
	for range 2 {
		_, err := f.sync(t.Context(), "node-1")
		assert.Error(t, err)
	}
	f.ExpectEvents()
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status", "update nodes/node-1/status", "update nodes/node-1/status")
	f.ExpectEvents("Normal Schedulable node-1: Kubernetes node node-1 is not cordoned")

	// Now the cache is older than that write: nothing may be decided from it.
	_, err := f.sync(t.Context(), "node-1")
	assert.ErrorIs(t, err, queue.ErrStale)
}

func TestOnRealDirectoriesADefaultDiskGetsItsUUIDFile(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"))
	root := t.TempDir()
	f.Controller = f.newController(HostDisks{Root: root})
	f.mustSync()
	f.CatchUp()
	f.mustSync()
	n := f.live()
	require.Len(t, n.Status.DiskStatus, 1)
	data, err := os.ReadFile(filepath.Join(root, "var/lib/longhorn", disk.ConfigFileName))
	require.NoError(t, err)
	config, err := disk.ParseConfig(data)
	require.NoError(t, err)
	for name, d := range n.Status.DiskStatus {
		assert.Equal(t, d.DiskUUID, config.UUID)
		assert.Equal(t, name, config.Name)
		assert.NotZero(t, d.StorageMaximum)
		assert.True(t, types.IsConditionTrue(d.Conditions, types.ConditionReady))
	}
}

func TestMonitorWritesReadyAlone(t *testing.T) {
	other := build.Pod("instance-manager-y", "node-1")
	h := testutil.New(t, build.KubeNode("node-1"), daemon(podNotReady), other,
		build.Node("node-1", func(n *longhorn.Node) {
			n.Status.Zone = "z"
			n.Status.Conditions = []longhorn.Condition{{Type: "Schedulable", Status: "False", Reason: "KubernetesNodeCordoned"}}
		}))
	d := h.Datastore(datastore.Options{})
	m, err := NewMonitor(MonitorDeps{
		Liveness: &foundSilent{},
		Nodes:    d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(),
	})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	sync := func() {
		t.Helper()
		_, err := m.sync(t.Context(), "node-1")
		require.NoError(t, err)
		h.CatchUp()
	}
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	h.ExpectEvents("Warning ManagerPodDown node-1: pod longhorn-manager-x of longhorn-manager on node node-1 is not ready")
	n, _ := d.Nodes.Get("node-1")
	assert.Equal(t, "z", n.Status.Zone)
	assert.Equal(t, "KubernetesNodeCordoned", types.FindCondition(n.Status.Conditions, "Schedulable").Reason, "the daemon's part was touched")
	sync()
	h.ExpectWrites()

	// Not in the cache, but it exists: no controller learns that the node is gone.
	require.NoError(t, d.KubeNodes.Replace(nil, "1000"))
	sync()
	h.ExpectWrites()

	require.NoError(t, h.Kube.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}))
	h.Writes()
	h.CatchUp()
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	n, _ = d.Nodes.Get("node-1")
	c := types.FindCondition(n.Status.Conditions, "Ready")
	assert.Equal(t, "KubernetesNodeGone", c.Reason)

	_, err = m.sync(t.Context(), "never-registered")
	assert.True(t, apierrors.IsNotFound(err), "sync of a node that is not registered = %v", err)
}

func TestMonitorMarksTheDisksOfANodeThatIsAway(t *testing.T) {
	down := func(n *corev1.Node) {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "R", Message: "m"}
	}
	kubeNode := build.KubeNode("node-1")
	h := testutil.New(t, kubeNode.DeepCopy(), daemon(), build.ReadyNode("node-1", uuid1))
	d := h.Datastore(datastore.Options{})
	m, err := NewMonitor(MonitorDeps{
		Liveness: &foundSilent{},
		Nodes:    d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(),
	})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	sync := func() time.Duration {
		t.Helper()
		h.CatchUp()
		result, err := m.sync(t.Context(), "node-1")
		require.NoError(t, err)
		h.CatchUp()
		return result.RequeueAfter
	}
	diskNow := func() summary {
		n, _ := d.Nodes.Get("node-1")
		return summarize(n.Status.DiskStatus["disk-1"])
	}
	sync() // the message only
	h.Writes()
	h.Recorder.Take()

	// The daemon restarts: no disk changes, and the leader checks again.
	h.Overwrite(daemon(podNotReady))
	assert.Equal(t, daemonGrace, sync())
	h.ExpectWrites("update nodes/node-1/status")
	got := diskNow()
	assert.Equal(t, "True", got.ready)
	assert.Equal(t, "True", got.schedulable, "after a moment without the daemon")
	h.Recorder.Take()
	h.Clock.Step(daemonGrace - time.Second)
	assert.Equal(t, time.Second, sync())
	h.ExpectWrites()
	h.Overwrite(daemon())
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	h.ExpectEvents("Normal Ready node-1: Node node-1 is ready")

	// The kubelet does not answer. The disks are marked at once, in one write, with one set of Events.
	h.Overwrite(build.KubeNode("node-1", down))
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	h.ExpectEvents("Warning KubernetesNodeNotReady node-1: Kubernetes node node-1 is not ready: m (R)",
		"Warning NodeNotReady node-1: Disk disk-1(/var/lib/longhorn) on node node-1 is not ready: the node is not ready",
		"Warning NodeNotReady node-1: Disk disk-1(/var/lib/longhorn) on the node node-1 is not schedulable for more replica; the node is not ready")
	want := summary{ready: "False/NodeNotReady", schedulable: "False/NodeNotReady", uuid: uuid1, maximum: 100, available: 100}
	assert.Equal(t, want, diskNow())
	sync()
	h.ExpectWrites()

	// The node is back, first without and then with its daemon: the daemon owns the disks again.
	h.Overwrite(kubeNode.DeepCopy(), daemon(podNotReady))
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	got = diskNow()
	assert.Equal(t, "False/NodeNotReady", got.ready)
	h.Overwrite(daemon())
	sync()
	h.ExpectWrites("update nodes/node-1/status")
	got = diskNow()
	assert.Equal(t, "False/NodeNotReady", got.ready, "the leader judged a disk")
	h.Recorder.Take()
	f := &fixture{
		Harness: h, store: h.Datastore(datastore.Options{Node: "node-1"}),
		disks: &fakeDisks{records: map[string]disk.Record{"/var/lib/longhorn": found()}}, claims: newFakeClaims(lease("node-1/disk-1", 1)),
	}
	f.Controller = f.newController(f.disks)
	f.mustSync()
	h.ExpectEvents("Normal Ready node-1: Disk disk-1(/var/lib/longhorn) on node node-1 is ready",
		"Normal Schedulable node-1: Disk disk-1(/var/lib/longhorn) on node node-1 is schedulable")
	h.Writes()
	sync()
	h.ExpectWrites()
}

func TestMonitorIsWokenByDaemonPodsOnly(t *testing.T) {
	other := build.Pod("instance-manager-y", "node-1")
	for _, c := range []struct {
		pod  *corev1.Pod
		want []string
	}{
		{daemon(), []string{"node-1"}},
		{daemon(func(p *corev1.Pod) { p.Spec.NodeName = "" }), nil},
		{other, nil},
	} {
		assert.Equal(t, c.want, nodeOfDaemon(c.pod), "%s %q", c.pod.Name, c.pod.Spec.NodeName)
	}
}
