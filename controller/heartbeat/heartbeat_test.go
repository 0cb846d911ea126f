package heartbeat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lease is in the state that a daemon of an earlier release leaves.
func lease(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "node-n", Labels: map[string]string{types.LabelNodeLease: "n"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(testutil.Now.Add(-time.Minute)))},
	}
}

func TestAHeldLeaseIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		objs   []runtime.Object
		fails  string
		writes []string
	}{
		"it is held → given back":      {[]runtime.Object{lease("n")}, "", []string{"update leases/node-n"}},
		"it was given back → left":     {[]runtime.Object{lease("")}, "", nil},
		"there is none → none is made": {nil, "", nil},
		"it cannot be read → an error": {[]runtime.Object{lease("n")}, "get", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := testutil.New(t, c.objs...)
			d := h.Datastore(datastore.Options{Node: "n"})
			beat := New(Deps{Env: h.Env(), Node: "n", Leases: d.Leases})
			h.EndWithTest(beat.Run)
			if c.fails != "" {
				h.Fail(c.fails, "leases", errors.New("no route to host"))
			}
			result, err := beat.sync(t.Context(), "n")
			assert.Equal(t, c.fails != "", err != nil)
			assert.Zero(t, result.RequeueAfter, "nothing is renewed")
			h.ExpectWrites(c.writes...)
			if len(c.objs) == 0 || c.fails != "" {
				return
			}
			left, err := d.Leases.Live(t.Context(), "node-n")
			require.NoError(t, err)
			assert.False(t, types.IsNodeLeaseHeld(left), "an earlier release's leader would ask the node all the time")
		})
	}
}

// written reports when the lease was written.
type written struct {
	LeaseStore
	leases chan *coordinationv1.Lease
}

func (w written) Update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	l, err := w.LeaseStore.Update(ctx, l)
	if err == nil {
		w.leases <- l
	}
	return l, err
}

// Only its start wakes it, and it tries again after a failure.
func TestTheStartGivesTheLeaseBack(t *testing.T) {
	h := testutil.New(t, lease("n"))
	d := h.Datastore(datastore.Options{Node: "n"})
	w := written{d.Leases, make(chan *coordinationv1.Lease, 9)}
	h.Fail("update", "leases", errors.New("no route to host"))
	beat := New(Deps{Env: h.Env(), Node: "n", Leases: w})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- beat.Run(ctx) }()
	require.Eventually(t, func() bool {
		h.Clock.Step(time.Second) // the queue's backoff is by this clock
		return len(w.leases) > 0
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-over)
	assert.False(t, types.IsNodeLeaseHeld(<-w.leases))
}
