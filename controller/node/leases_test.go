package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestWhetherTheDiskOfALeaseIsGone(t *testing.T) {
	without := build.ReadyNode("node-1", uuid1, func(n *longhorn.Node) { n.Spec.Disks, n.Status.DiskStatus = nil, nil })
	tests := map[string]struct {
		holder   string
		nodes    []*longhorn.Node
		replicas []*longhorn.Replica
		want     bool
	}{
		"no node is there → gone":                                       {holder: "node-1/disk-1", want: true},
		"taken out of the spec → gone":                                  {holder: "node-1/disk-1", nodes: []*longhorn.Node{without}, want: true},
		"its entry has become another disk → gone":                      {holder: "node-1/disk-1", nodes: []*longhorn.Node{build.ReadyNode("node-1", uuid2)}, want: true},
		"recorded by its node → there":                                  {holder: "node-1/disk-1", nodes: []*longhorn.Node{build.ReadyNode("node-1", uuid1)}},
		"recorded by another node → there":                              {holder: "node-1/disk-1", nodes: []*longhorn.Node{without, build.ReadyNode("node-2", uuid1)}},
		"taken out of the spec, the status has it still → there":        {holder: "node-1/disk-1", nodes: []*longhorn.Node{build.ReadyNode("node-1", uuid1, func(n *longhorn.Node) { n.Spec.Disks = nil })}},
		"in the spec of its node and not recorded yet → there":          {holder: "node-1/disk-1", nodes: []*longhorn.Node{build.Node("node-1", build.WithDisk("disk-1", "/d"))}},
		"a replica is on it, though no node has it → there":             {holder: "node-1/disk-1", replicas: []*longhorn.Replica{build.PlacedReplica("r", "vol", "node-1", uuid1)}},
		"a replica is on another disk → gone":                           {holder: "node-1/disk-1", replicas: []*longhorn.Replica{build.PlacedReplica("r", "vol", "node-1", uuid2)}, want: true},
		"its holder is not one of ours by its form → nobody's to judge": {holder: "somebody"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, isDiskGone(lease(tt.holder, 3), uuid1, tt.nodes, tt.replicas))
		})
	}
}

func TestALeaseIsDeletedADayAfterItsDisk(t *testing.T) {
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-manager", Namespace: "longhorn-system"}}
	begin := func(t *testing.T) (*testutil.Harness, *Leases) {
		h := testutil.New(t, lease("node-1/disk-1", 3), other.DeepCopy())
		store := h.Datastore(datastore.Options{})
		l := NewLeases(LeasesDeps{Env: h.Env(), Leases: store.Leases, Nodes: store.Nodes, Replicas: store.Replicas})
		h.EndWithTest(l.Run)
		return h, l
	}
	pass := func(t *testing.T, l *Leases) {
		result, err := l.sync(t.Context(), "all")
		require.NoError(t, err)
		require.Equal(t, time.Hour, result.RequeueAfter)
	}
	name := "leases/disk-" + uuid1

	t.Run("gone → marked, kept for a day, deleted", func(t *testing.T) {
		h, l := begin(t)
		pass(t, l)
		h.ExpectWrites("update " + name)
		h.Clock.Step(24*time.Hour - time.Second)
		pass(t, l)
		h.ExpectWrites()
		h.Clock.Step(time.Second)
		pass(t, l)
		h.ExpectWrites("delete " + name)
		pass(t, l)
		h.ExpectWrites()
	})
	t.Run("it is back within the day → the mark goes, and the day begins anew", func(t *testing.T) {
		h, l := begin(t)
		pass(t, l)
		h.ExpectWrites("update " + name)
		h.Seed(build.ReadyNode("node-2", uuid1))
		h.Clock.Step(48 * time.Hour)
		pass(t, l)
		h.ExpectWrites("update " + name)
		pass(t, l)
		h.ExpectWrites()
	})
	t.Run("the nodes cannot be read → nothing", func(t *testing.T) {
		h, l := begin(t)
		pass(t, l)
		h.Writes()
		h.Clock.Step(48 * time.Hour)
		h.Fail("list", "nodes", errors.New("away"))
		_, err := l.sync(t.Context(), "all")
		require.Error(t, err)
		h.ExpectWrites()
	})
}

// nodesMeanwhile calls happens after the Leases were read.
type nodesMeanwhile struct {
	*datastore.Store[*longhorn.Node]
	happens func()
}

func (n nodesMeanwhile) ListLive(ctx context.Context, opts metav1.ListOptions) ([]*longhorn.Node, error) {
	n.happens()
	return n.Store.ListLive(ctx, opts)
}

func TestALeaseThatIsWrittenMeanwhileIsNotDeleted(t *testing.T) {
	marked := lease("node-1/disk-1", 3)
	marked.Annotations = map[string]string{"longhorn.io/disk-gone-since": "2020-01-01T00:00:00Z"}
	h := testutil.New(t, marked)
	store := h.Datastore(datastore.Options{})
	claims := func() { h.Overwrite(lease("node-1/disk-1", 3)) }
	l := NewLeases(LeasesDeps{Env: h.Env(), Leases: store.Leases, Nodes: nodesMeanwhile{store.Nodes, claims}, Replicas: store.Replicas})
	h.EndWithTest(l.Run)
	_, err := l.sync(t.Context(), "all")
	require.NoError(t, err)
	_, err = store.Leases.Live(t.Context(), marked.Name)
	require.NoError(t, err, "a node has claimed the disk since the Lease was read")
}

func TestAHeldClaimIsNotMarkedAsGone(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	marked := lease("node-1/disk-1", 3)
	marked.Annotations = map[string]string{"longhorn.io/disk-gone-since": "2020-01-01T00:00:00Z", "of-another": "x"}
	f.claims.leases = newFakeClaims(marked).leases
	f.disks.records["/var/lib/longhorn"] = found(claim(3))
	f.mustSync()
	assert.Equal(t, "node-1/disk-1 3", f.claims.text())
	assert.Equal(t, map[string]string{"of-another": "x"}, f.claims.leases[marked.Name].Annotations)
	assert.Equal(t, "2", f.claims.leases[marked.Name].ResourceVersion, "who read it before cannot delete it")
	assert.Equal(t, longhorn.ConditionTrue, f.readyOf("disk-1").Status)
	assert.Empty(t, f.disks.claimed)
	f.expectCalls("get", "update")
}

func TestAMarkedLeaseThatIsDeletedMeanwhileIsMadeAnew(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	marked := lease("node-1/disk-1", 3)
	marked.Annotations = map[string]string{"longhorn.io/disk-gone-since": "2020-01-01T00:00:00Z"}
	f.claims.leases = newFakeClaims(marked).leases
	f.claims.after["get 1"] = func() { delete(f.claims.leases, marked.Name) }
	f.disks.records["/var/lib/longhorn"] = found(claim(3))
	_, err := f.sync(t.Context(), "node-1")
	require.Error(t, err)
	f.CatchUp()
	f.mustSync()
	assert.Equal(t, "node-1/disk-1 4", f.claims.text())
}

func TestATakenClaimIsNotMarkedAsGone(t *testing.T) {
	f := newFixture(t, build.Node("node-1", build.WithDisk("disk-1", "/var/lib/longhorn")))
	marked := lease("node-2/disk-1", 3)
	marked.Annotations = map[string]string{"longhorn.io/disk-gone-since": "2020-01-01T00:00:00Z"}
	f.claims.leases = newFakeClaims(marked).leases
	f.disks.records["/var/lib/longhorn"] = found(claim(3))
	f.mustSync()
	assert.Equal(t, "node-1/disk-1 4", f.claims.text())
	assert.Empty(t, f.claims.leases[marked.Name].Annotations)
}
