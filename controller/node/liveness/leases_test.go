package liveness

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func nodeLease(node, holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.NodeLeaseName(node), Labels: map[string]string{types.LabelNodeLease: node}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// The daemon of an earlier release renews its node's lease; its clock may show any time.
func TestWhatALeaseOfAnEarlierReleaseProves(t *testing.T) {
	h := testutil.New(t)
	r := newRenewals(h.Clock)
	on := r.handler()
	long := h.Clock.Now().Add(-time.Hour)
	assert.Equal(t, leaseNotHeld, r.state("n"))

	on.OnAdd(nodeLease("n", "n", long), true)
	h.Clock.Step(4*time.Second - 1)
	assert.Equal(t, leaseRenewed, r.state("n"))
	on.OnUpdate(nil, nodeLease("n", "n", long))
	h.Clock.Step(1)
	assert.Equal(t, leaseLate, r.state("n"), "shown again, not renewed")
	on.OnUpdate(nil, nodeLease("n", "n", long.Add(2*time.Second)))
	assert.Equal(t, leaseRenewed, r.state("n"))

	on.OnUpdate(nil, nodeLease("n", "", long.Add(4*time.Second)))
	assert.Equal(t, leaseNotHeld, r.state("n"), "the daemon of this release has given it back")
	on.OnUpdate(nil, nodeLease("n", "n", long.Add(6*time.Second)))
	on.OnDelete(cache.DeletedFinalStateUnknown{Obj: nodeLease("n", "n", long)})
	assert.Equal(t, leaseNotHeld, r.state("n"))
	other := nodeLease("n", "n", long)
	other.Name = "longhorn-manager"
	on.OnAdd(other, false)
	assert.Equal(t, leaseNotHeld, r.state("n"))
}

func TestALateLeaseIsReadFromTheAPIServer(t *testing.T) {
	h := testutil.New(t, nodeLease("n", "n", testutil.Now))
	d := h.Datastore(datastore.Options{})
	r := newRenewals(h.Clock)
	read := func() leaseState { return r.read(t.Context(), d.NodeLeases, "n") }
	h.Fail("get", "leases", errors.New("no route to host"))
	assert.Equal(t, leaseNotHeld, read(), "nothing is read of a node that holds none")

	r.see(nodeLease("n", "n", testutil.Now))
	assert.Equal(t, leaseRenewed, read(), "nor of one that is on time")
	h.Clock.Step(4 * time.Second)
	assert.Equal(t, leaseUnread, read())
	assert.Equal(t, leaseLate, read())
	h.Overwrite(nodeLease("n", "n", testutil.Now.Add(time.Second)))
	assert.Equal(t, leaseRenewed, read(), "the watch was late")
	h.Clock.Step(4 * time.Second)
	h.Overwrite(nodeLease("n", "", testutil.Now))
	assert.Equal(t, leaseNotHeld, read())
	r.see(nodeLease("gone", "gone", testutil.Now))
	h.Clock.Step(4 * time.Second)
	assert.Equal(t, leaseNotHeld, r.read(t.Context(), d.NodeLeases, "gone"))
}
