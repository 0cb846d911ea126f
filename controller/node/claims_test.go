package node

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// fakeClaims is an API server that knows only Leases and their versions.
type fakeClaims struct {
	leases map[string]*coordinationv1.Lease
	calls  []string
	fail   map[string]error // by call, once
	after  map[string]func()
}

func newFakeClaims(objs ...*coordinationv1.Lease) *fakeClaims {
	f := &fakeClaims{leases: map[string]*coordinationv1.Lease{}, fail: map[string]error{}, after: map[string]func(){}}
	for _, l := range objs {
		l.ResourceVersion = "1"
		f.leases[l.Name] = l
	}
	return f
}

// lease is the Lease for uuid1.
func lease(holder string, number int32, from ...int64) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "disk-" + uuid1, Namespace: types.Namespace}}
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &holder, &number
	for _, n := range from {
		l.Annotations = map[string]string{"longhorn.io/claim-from": strconv.FormatInt(n, 10)}
	}
	return l
}

// call answers the n-th call of a verb; "update 2" is the second update.
func (f *fakeClaims) call(verb string, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	n := 1
	for _, c := range f.calls {
		if c == verb {
			n++
		}
	}
	f.calls = append(f.calls, verb)
	key := verb + " " + strconv.Itoa(n)
	if err := f.fail[key]; err != nil {
		return nil, err
	}
	l, err := do()
	if after := f.after[key]; after != nil {
		after()
	}
	return l, err
}

func (f *fakeClaims) Live(_ context.Context, name string) (*coordinationv1.Lease, error) {
	return f.call("get", func() (*coordinationv1.Lease, error) {
		if l := f.leases[name]; l != nil {
			return l.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(leases, name)
	})
}

func (f *fakeClaims) Create(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return f.call("create", func() (*coordinationv1.Lease, error) {
		if f.leases[l.Name] != nil {
			return nil, apierrors.NewAlreadyExists(leases, l.Name)
		}
		return f.store(l, 0), nil
	})
}

func (f *fakeClaims) Update(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return f.call("update", func() (*coordinationv1.Lease, error) {
		now := f.leases[l.Name]
		if now == nil {
			return nil, apierrors.NewNotFound(leases, l.Name)
		}
		if now.ResourceVersion != l.ResourceVersion {
			return nil, apierrors.NewConflict(leases, l.Name, nil)
		}
		version, _ := strconv.Atoi(now.ResourceVersion)
		return f.store(l, version), nil
	})
}

func (f *fakeClaims) store(l *coordinationv1.Lease, before int) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(before + 1)
	f.leases[l.Name] = l
	return l.DeepCopy()
}

func (f *fakeClaims) taken() []string {
	calls := f.calls
	f.calls = nil
	return calls
}

// text is the Lease for uuid1: holder, number, and the pending claim.
func (f *fakeClaims) text() string {
	l := leaseOf(f.leases["disk-"+uuid1])
	text := l.Holder + " " + strconv.FormatInt(l.Number, 10)
	if l.Pending {
		text += " from " + strconv.FormatInt(l.From, 10)
	}
	return text
}

func claim(number int64) func(*disk.Record) {
	return func(r *disk.Record) {
		config := *r.Config
		config.Claim = number
		r.Config = &config
	}
}

func (f *fixture) readyOf(name string) longhorn.Condition {
	f.T.Helper()
	return types.FindCondition(f.live().Status.DiskStatus[name].Conditions, types.ConditionReady)
}

func (f *fixture) expectCalls(want ...string) {
	f.T.Helper()
	assert.Equal(f.T, want, f.claims.taken(), "calls about Leases")
}

func TestClaimsInASync(t *testing.T) {
	fresh := build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn"))
	known := build.ReadyNode("node-1", uuid1)
	holder := build.ReadyNode("node-2", uuid1)
	cases := []struct {
		name    string
		node    *longhorn.Node
		others  []*longhorn.Node
		lease   *coordinationv1.Lease
		record  disk.Record
		ready   string // condition's status and reason
		message string
		after   string // the Lease
		file    []string
		calls   []string
	}{
		{
			name: "new disk without a UUID file → made, claimed for the first time", node: fresh, record: found(withoutFile),
			ready: "True ", file: []string{"/var/lib/longhorn 1"}, calls: []string{"get", "create", "update"},
		},
		{
			name: "known disk of an installation without claims → claimed", node: known, record: found(claim(0)),
			ready: "True ", after: "node-1/disk-1 1", file: []string{"/var/lib/longhorn 1"}, calls: []string{"get", "create", "update"},
		},
		{
			name: "held by this disk → nothing is written", node: known, lease: lease("node-1/disk-1", 3), record: found(claim(3)),
			ready: "True ", after: "node-1/disk-1 3", calls: []string{"get"},
		},
		{
			name: "a clone of a disk on another node → refused, Lease and file untouched", node: fresh, others: []*longhorn.Node{holder},
			lease: lease("node-2/disk-1", 3), record: found(claim(3)),
			ready: "False DuplicateUUID", message: "is claimed by disk node-2/disk-1, which still exists", after: "node-2/disk-1 3", calls: []string{"get"},
		},
		{
			name: "known here, claimed by another node that is down → refused", node: known,
			others: []*longhorn.Node{build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) {
				n.Status.Conditions[0] = longhorn.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}
			})},
			lease: lease("node-2/disk-1", 3), record: found(claim(3)),
			ready: "False DuplicateUUID", message: "duplicate UUID", after: "node-2/disk-1 3", calls: []string{"get"},
		},
		{
			name: "moved here from a node that is gone → taken over", node: fresh, lease: lease("node-2/disk-1", 3), record: found(claim(3)),
			ready: "True ", after: "node-1/disk-1 4", file: []string{"/var/lib/longhorn 4"}, calls: []string{"get", "update", "update"},
		},
		{
			name: "moved here, removed from the other node's spec → taken over", node: fresh,
			others: []*longhorn.Node{build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) { n.Spec.Disks = nil })},
			lease:  lease("node-2/disk-1", 3), record: found(claim(3)),
			ready: "True ", after: "node-1/disk-1 4", file: []string{"/var/lib/longhorn 4"}, calls: []string{"get", "update", "update"},
		},
		{
			name: "renamed on this node → taken over", node: fresh, lease: lease("node-1/former-name", 3), record: found(claim(3)),
			ready: "True ", after: "node-1/disk-1 4", file: []string{"/var/lib/longhorn 4"}, calls: []string{"get", "update", "update"},
		},
		{
			name: "an old copy in the disk's place → refused, the way out is named", node: known, lease: lease("node-1/disk-1", 3), record: found(claim(2)),
			ready: "False DuplicateUUID", message: "kubectl -n longhorn-system delete lease disk-" + uuid1, after: "node-1/disk-1 3", calls: []string{"get"},
		},
		{
			name: "cut short before the file was written → finished with the same number", node: fresh, lease: lease("node-1/disk-1", 4, 3), record: found(claim(3)),
			ready: "True ", after: "node-1/disk-1 4", file: []string{"/var/lib/longhorn 4"}, calls: []string{"get", "update"},
		},
		{
			name: "cut short after the file was written → only the Lease is finished", node: fresh, lease: lease("node-1/disk-1", 4, 3), record: found(claim(4)),
			ready: "True ", after: "node-1/disk-1 4", calls: []string{"get", "update"},
		},
		{
			name: "the Lease is older than the file → a number above both", node: known, lease: lease("node-1/disk-1", 2), record: found(claim(7)),
			ready: "True ", after: "node-1/disk-1 8", file: []string{"/var/lib/longhorn 8"}, calls: []string{"get", "update", "update"},
		},
		{
			name: "a Lease that is not ours by its form → refused", node: fresh, lease: lease("somebody", 3), record: found(claim(3)),
			ready: "False DuplicateUUID", message: "is claimed by disk somebody", after: "somebody 3", calls: []string{"get"},
		},
		{
			name: "the mount is missing → no Lease is touched", node: known, lease: lease("node-1/disk-1", 3), record: found(withoutFile),
			ready: "False DiskFilesystemChanged", after: "node-1/disk-1 3",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.node.DeepCopy())
			for _, n := range c.others {
				f.Seed(n.DeepCopy())
			}
			f.claims.leases = map[string]*coordinationv1.Lease{}
			if c.lease != nil {
				f.claims.leases = newFakeClaims(c.lease.DeepCopy()).leases
			}
			f.disks.records["/var/lib/longhorn"] = c.record
			f.mustSync()
			got := f.readyOf("disk-1")
			assert.Equal(t, c.ready, string(got.Status)+" "+got.Reason)
			assert.Contains(t, got.Message, c.message)
			if c.after != "" {
				assert.Equal(t, c.after, f.claims.text())
			}
			assert.Equal(t, c.file, f.disks.claimed, "claims written to the disk")
			f.expectCalls(c.calls...)

			// While nothing changes, the controller asks only about a refused disk, and writes nothing.
			f.Writes()
			f.CatchUp()
			f.mustSync()
			f.expectCalls()
			f.ExpectWrites()
			f.Clock.Step(scanInterval)
			f.mustSync()
			if strings.HasPrefix(c.ready, "False DuplicateUUID") {
				f.expectCalls("get")
			} else {
				f.expectCalls()
			}
			f.ExpectWrites()
		})
	}
}

// At whatever point a claim is interrupted, the next pass completes it, with one number for both.
func TestAClaimThatFailsHalfwayIsEndedByTheNextPass(t *testing.T) {
	boom := errors.New("boom")
	cases := []struct {
		name    string
		breaks  func(*fixture)
		between string // the Lease after the failure
		after   string
	}{
		{"the Lease cannot be read", func(f *fixture) { f.claims.fail["get 1"] = boom }, "node-2/disk-1 3", "node-1/disk-1 4"},
		{"the first write fails", func(f *fixture) { f.claims.fail["update 1"] = boom }, "node-2/disk-1 3", "node-1/disk-1 4"},
		{"the file cannot be written", func(f *fixture) { f.disks.claimErr = boom }, "node-1/disk-1 4 from 3", "node-1/disk-1 4"},
		{"the second write fails", func(f *fixture) { f.claims.fail["update 2"] = boom }, "node-1/disk-1 4 from 3", "node-1/disk-1 4"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
			f.claims.leases = newFakeClaims(lease("node-2/disk-1", 3)).leases
			f.disks.records["/var/lib/longhorn"] = found(claim(3))
			c.breaks(f)
			_, err := f.sync(t.Context(), "node-1")
			require.ErrorIs(t, err, boom, "to be tried again")
			got := f.readyOf("disk-1")
			assert.Equal(t, longhorn.ConditionStatus("False"), got.Status)
			assert.Equal(t, "NoDiskInfo", got.Reason)
			assert.Contains(t, got.Message, "the manager could not claim the disk in the cluster: ")
			assert.Equal(t, c.between, f.claims.text())

			// Another process has no memory of this.
			f.claims.fail, f.disks.claimErr = map[string]error{}, nil
			f.Controller = f.newController(f.disks)
			f.CatchUp()
			f.mustSync()
			got = f.readyOf("disk-1")
			assert.Equal(t, longhorn.ConditionStatus("True"), got.Status)
			if got, file := f.claims.text(), f.disks.records["/var/lib/longhorn"].Config.Claim; got != c.after || file != 4 {
				t.Errorf("Lease %q and file %d in the end, want %q and 4", got, file, c.after)
			}
		})
	}
}

func TestWhoLosesTheLeaseWritesNothingToItsDisk(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")), build.ReadyNode("node-3", uuid1))
	f.claims.leases = newFakeClaims(lease("node-2/disk-1", 3)).leases
	f.disks.records["/var/lib/longhorn"] = found(claim(3))
	f.claims.after["get 1"] = func() { // the other node is faster
		won := lease("node-3/disk-1", 4, 3)
		won.ResourceVersion = "2"
		f.claims.leases[won.Name] = won
	}
	_, err := f.sync(t.Context(), "node-1")
	require.True(t, apierrors.IsConflict(err), "sync = %v, want a conflict", err)
	f.ExpectWrites() // no status for a state that is already over
	f.mustSync()
	got := f.readyOf("disk-1")
	assert.Equal(t, "DuplicateUUID", got.Reason)
	assert.Empty(t, f.disks.claimed, "written to the disk")
}

func TestADirectoryThatChangedBeforeTheClaimWasWrittenIsLookedAtAnew(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	f.claims.leases = map[string]*coordinationv1.Lease{}
	f.disks.claimErr = disk.ErrDirectoryChanged
	_, err := f.sync(t.Context(), "node-1")
	assert.ErrorIs(t, err, queue.ErrStale)
	f.ExpectWrites()
}

func TestALeaseThatVanishesIsNotTakenForDone(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	f.claims.leases = newFakeClaims(lease("node-2/disk-1", 3)).leases
	f.disks.records["/var/lib/longhorn"] = found(claim(3))
	f.claims.after["get 1"] = func() { f.claims.leases = map[string]*coordinationv1.Lease{} }
	_, err := f.sync(t.Context(), "node-1")
	require.Error(t, err)
	assert.False(t, apierrors.IsNotFound(err))
	f.CatchUp()
	f.mustSync()
	got := f.claims.text()
	assert.Equal(t, "node-1/disk-1 4", got)
	assert.Equal(t, longhorn.ConditionStatus("True"), f.readyOf("disk-1").Status)
}

func TestADiskThatIsReadyStaysSoWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	f.mustSync()
	f.Writes()
	f.CatchUp()

	// Held in this process: the controller does not ask.
	f.claims.fail["get 2"] = errors.New("unreachable")
	f.Clock.Step(scanInterval)
	f.mustSync()
	f.expectCalls("get")

	// Held by the previous process: the controller asks without success, and asks again.
	f.claims.fail["get 1"] = errors.New("unreachable")
	f.Controller = f.newController(f.disks)
	_, err := f.sync(t.Context(), "node-1")
	assert.Error(t, err)
	f.ExpectWrites()
	got := f.readyOf("disk-1")
	assert.Equal(t, longhorn.ConditionStatus("True"), got.Status)
}

func TestAHeldClaimIsAskedForAgainAfterAnEditOfTheSpec(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	f.mustSync()
	f.expectCalls("get")
	f.CatchUp()

	n := f.live()
	n.Generation++ // between two syncs the disk was removed and added again
	f.Overwrite(n)
	f.Seed(build.ReadyNode("node-2", uuid1))
	f.claims.leases = newFakeClaims(lease("node-2/disk-1", 1)).leases
	f.CatchUp()
	f.mustSync()
	f.expectCalls("get")
	got := f.readyOf("disk-1")
	assert.Equal(t, "DuplicateUUID", got.Reason)

	// The holder disappears. This is found within the interval of scans, not sooner than claimAgain.
	f.Overwrite(build.ReadyNode("node-2", uuid2))
	f.CatchUp()
	f.mustSync()
	f.expectCalls()
	f.Clock.Step(claimAgain)
	f.mustSync()
	f.expectCalls("get", "update", "update")
	got = f.readyOf("disk-1")
	assert.Equal(t, longhorn.ConditionStatus("True"), got.Status)
	assert.Equal(t, "node-1/disk-1 2", f.claims.text())
}

func TestAnOldCopyThatIsMountedInPlaceIsFoundOutByTheNextScan(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	f.claims.leases = newFakeClaims(lease("node-1/disk-1", 5)).leases
	f.disks.records["/var/lib/longhorn"] = found(claim(5))
	f.mustSync()
	f.CatchUp()
	f.disks.records["/var/lib/longhorn"] = found(claim(4), func(r *disk.Record) { r.DeviceID = 2 })
	f.mustSync()
	got := f.readyOf("disk-1")
	assert.Equal(t, "DuplicateUUID", got.Reason)
	assert.Contains(t, got.Message, "old copy")
	f.CatchUp()
	f.disks.records["/var/lib/longhorn"] = found(claim(5))
	f.mustSync()
	got = f.readyOf("disk-1")
	assert.Equal(t, longhorn.ConditionStatus("True"), got.Status)
	assert.Empty(t, f.disks.claimed, "the disk itself is back, written to the disk")
}

func TestADiskThatMovedToAnotherEntryOfItsNodeTakesItsClaimAlong(t *testing.T) {
	f := newFixture(t, build.ReadyNode("node-1", uuid1, build.WithDisk("disk-2", "/mnt/new")))
	f.claims.leases = newFakeClaims(lease("node-1/disk-1", 3)).leases
	f.disks.records["/var/lib/longhorn"] = found(withoutFile)
	f.disks.records["/mnt/new"] = found(claim(3))
	f.mustSync()
	got := f.readyOf("disk-2")
	assert.Equal(t, longhorn.ConditionTrue, got.Status, "the entry that holds the file")
	got = f.readyOf("disk-1")
	assert.Equal(t, "DiskMoved", got.Reason)
	assert.Contains(t, got.Message, "is now at /mnt/new", "the old entry")
	assert.Equal(t, "node-1/disk-2 4", f.claims.text())
}

func TestAnEntryThatDidNotAnswerIsNotTakenForMoved(t *testing.T) {
	verdicts := map[string]disk.Verdict{
		"moved":  {Reason: disk.ReasonDiskMoved},
		"late":   {Reason: disk.ReasonDiskMoved}, // the record of an earlier scan
		"here":   {Accept: true},
		"broken": {Reason: disk.ReasonNoDiskInfo},
	}
	assert.Equal(t, map[string]bool{"node-1/moved": true}, movedFrom("node-1", verdicts, map[string]bool{"late": true}))
}

func TestAnOldCopyBesideAnEmptyEntryIsRefused(t *testing.T) {
	f := newFixture(t, build.ReadyNode("node-1", uuid1, build.WithDisk("disk-2", "/mnt/new")))
	f.claims.leases = newFakeClaims(lease("node-1/disk-1", 3)).leases
	f.disks.records["/var/lib/longhorn"] = found(withoutFile)
	f.disks.records["/mnt/new"] = found(claim(2))
	f.mustSync()
	got := f.readyOf("disk-2")
	assert.Equal(t, "DuplicateUUID", got.Reason)
	assert.Equal(t, "node-1/disk-1 3", f.claims.text())
}

func TestARemovedDiskKeepsItsLease(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1))
	f.mustSync()
	f.CatchUp()
	n := f.live()
	n.Spec.Disks = nil
	n.Generation++
	f.Overwrite(n)
	f.CatchUp()
	f.claims.taken()
	f.mustSync()
	f.expectCalls()
	got := f.claims.text()
	assert.Equal(t, "node-1/disk-1 1", got)
	assert.Empty(t, f.Controller.claims)
}

func TestClaimsAreLeasesOfTheAPIServer(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	f.disks.records["/var/lib/longhorn"] = found(claim(2))
	c, err := New(Deps{
		Node: "node-1", Namespace: types.Namespace, Nodes: f.store.Nodes, KubeNodes: f.store.KubeNodes, Replicas: f.store.Replicas,
		Settings: f.store.Settings, Setting: f.store.Setting, Disks: f.disks, Claims: f.store.Leases,
		Env: f.Env(),
	})
	require.NoError(t, err)
	f.EndWithTest(c.Run)
	_, err = c.sync(t.Context(), "node-1")
	require.NoError(t, err)
	f.ExpectWrites("create leases/disk-"+uuid1, "update leases/disk-"+uuid1, "update nodes/node-1/status")
	l, err := f.store.Leases.Live(t.Context(), "disk-"+uuid1)
	require.NoError(t, err)
	assert.Equal(t, "node-1/disk-1", *l.Spec.HolderIdentity, "Lease %+v of %+v", l.Spec, l.ObjectMeta)
	assert.Equal(t, int32(3), *l.Spec.LeaseTransitions)
	assert.Empty(t, l.Annotations)
	assert.WithinDuration(t, f.Clock.Now(), l.Spec.AcquireTime.Time, 0)
}
