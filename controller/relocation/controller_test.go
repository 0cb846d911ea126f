package relocation

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func begin(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, objs...)
	d := h.Datastore(datastore.Options{})
	c, err := New(Deps{Replicas: d.Replicas, Nodes: d.Nodes, Engines: d.Engines, Env: h.Env()})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func sync(t *testing.T, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "u")
	require.ErrorIs(t, err, want)
}

// there is node b with disk "u" in /mnt/u, ready.
func there() *longhorn.Node {
	return build.ReadyNode("b", "u", build.WithDisk("disk-1", "/mnt/u"), build.WithDiskStatus("disk-1", "u"))
}

func here(t *testing.T, c *Controller, h *testutil.Harness) Place {
	t.Helper()
	h.CatchUp()
	replicas, err := c.deps.Replicas.ByIndex(datastore.IndexDisk, "u")
	require.NoError(t, err)
	require.Len(t, replicas, 1)
	return Place{replicas[0].Spec.NodeID, replicas[0].Spec.DiskPath}
}

func TestAReplicaFollowsItsDisk(t *testing.T) {
	h, c := begin(t, there(), build.ReadyNode("a", "another"), replica(wanted, failed(types.ReasonDiskNotFound)))
	sync(t, c, nil)
	h.ExpectWrites("update replicas/r")
	h.ExpectEvents("Normal ReplicaMoved r: replica r is now on node b in /mnt/u, because its disk u was found there; it was on node a in /var/lib/longhorn")
	sync(t, c, queue.ErrStale) // the cache does not show it yet: neither the move nor the Event is repeated
	h.ExpectWrites()
	got, want := here(t, c, h), Place{"b", "/mnt/u"}
	assert.Equal(t, want, got)
	sync(t, c, nil)
	h.ExpectWrites() // at rest nothing is written
	h.ExpectEvents()
}

func TestAReplicaStaysWhereItIs(t *testing.T) {
	conflict := apierrors.NewConflict(longhorn.Resource("replicas"), "r", errors.New("it has begun to start"))
	home := Place{"a", "/var/lib/longhorn"}
	for _, tc := range []struct {
		name string
		objs []runtime.Object
		fail error
	}{
		{"while it runs → not moved", []runtime.Object{there(), replica(is(longhorn.InstanceStateRunning))}, nil},
		{"while its disk is ready at two places → not moved", []runtime.Object{there(), build.ReadyNode("a", "u"), replica(is(longhorn.InstanceStateStopped))}, nil},
		{"while another writes it → not moved, nothing is told", []runtime.Object{there(), replica(is(longhorn.InstanceStateStopped))}, conflict},
		{"while an engine has it though its node is gone → not moved", []runtime.Object{
			there(), replica(failed(types.ReasonNodeGone)), build.Engine("vol", func(e *longhorn.Engine) {
				e.Status.CurrentState = longhorn.InstanceStateRunning
				e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"r": longhorn.ReplicaModeRW}
			}),
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, tc.objs...)
			if tc.fail != nil {
				h.Fail("update", "replicas", tc.fail)
			}
			sync(t, c, tc.fail)
			h.ExpectEvents()
			assert.Equal(t, home, here(t, c, h))
		})
	}
}

func TestWhatWakes(t *testing.T) {
	_, c := begin(t, replica(failed(types.ReasonNodeGone)))
	assert.Equal(t, []string{"u"}, c.waitingFor(build.Engine("vol")))
	assert.Empty(t, c.waitingFor(build.Engine("other")))
	assert.Equal(t, []string{"u"}, disksOf(there()))
}
