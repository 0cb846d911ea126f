package datastore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func listReaction(f func(clienttesting.Action) (bool, error)) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, err := f(action)
		return handled, nil, err
	}
}

type replicaStore = *datastore.Store[*longhorn.Replica]

func update(t *testing.T, s replicaStore, change func(*longhorn.Replica)) {
	r, err := s.Get("r")
	require.NoError(t, err)
	change(r)
	_, err = s.Update(t.Context(), r)
	require.NoError(t, err)
}

// writeCases write through the store of node-1.
var writeCases = []struct {
	name           string
	seed           []runtime.Object
	write          func(t *testing.T, s replicaStore)
	staleObject    bool // IsStale of "r" in the late cache, if it is there
	staleInLate    bool // IsStaleIn for its volume, in the late cache
	otherDeletesIt bool // before the cache catches up
}{
	{
		name:  "nothing written → not stale",
		seed:  []runtime.Object{build.Replica("r", "vol", onNode("node-1"))},
		write: func(*testing.T, replicaStore) {},
	},
	{
		name: "updated → stale until the cache shows it",
		seed: []runtime.Object{build.Replica("r", "vol", onNode("node-1"))},
		write: func(t *testing.T, s replicaStore) {
			update(t, s, func(r *longhorn.Replica) { r.Spec.FailedAt = "now" })
		},
		staleObject: true, staleInLate: true,
	},
	{
		name: "updated without a change → not stale",
		seed: []runtime.Object{build.Replica("r", "vol", onNode("node-1"))},
		write: func(t *testing.T, s replicaStore) {
			update(t, s, func(*longhorn.Replica) {})
		},
	},
	{
		name: "created → the volume is stale until the cache shows it",
		write: func(t *testing.T, s replicaStore) {
			_, err := s.Create(t.Context(), build.Replica("new", "vol", onNode("node-1")))
			require.NoError(t, err)
		},
		staleInLate: true,
	},
	{
		name: "created outside the selection → never waited for",
		write: func(t *testing.T, s replicaStore) {
			_, err := s.Create(t.Context(), build.Replica("new", "vol", onNode("node-2")))
			require.NoError(t, err)
		},
	},
	{
		name: "moved out of the selection → stale until it leaves the cache",
		seed: []runtime.Object{build.Replica("r", "vol", onNode("node-1"))},
		write: func(t *testing.T, s replicaStore) {
			update(t, s, func(r *longhorn.Replica) { r.Spec.NodeID = "node-2" })
		},
		staleObject: true, staleInLate: true,
	},
	{
		name: "created and deleted by another before the cache saw it → not waited for",
		write: func(t *testing.T, s replicaStore) {
			_, err := s.Create(t.Context(), build.Replica("new", "vol", onNode("node-1")))
			require.NoError(t, err)
		},
		staleInLate: true, otherDeletesIt: true,
	},
	{
		name: "deleted → stale until it leaves the cache",
		seed: []runtime.Object{build.Replica("r", "vol", onNode("node-1"))},
		write: func(t *testing.T, s replicaStore) {
			require.NoError(t, s.Delete(t.Context(), "r", datastore.Preconditions{}))
		},
		staleObject: true, staleInLate: true,
	},
	{
		name: "deleted with a finalizer → stale until the cache shows the deletion timestamp",
		seed: []runtime.Object{build.Replica("r", "vol", onNode("node-1"), func(r *longhorn.Replica) {
			r.Finalizers = []string{"longhorn.io"}
		})},
		write: func(t *testing.T, s replicaStore) {
			require.NoError(t, s.Delete(t.Context(), "r", datastore.Preconditions{}))
		},
		staleObject: true, staleInLate: true,
	},
}

// After the write the test checks the cache twice: while it is late, and after it has caught up.
func TestTheStoreKnowsWhenTheCacheIsBehindItsWrites(t *testing.T) {
	for _, c := range writeCases {
		t.Run(c.name, func(t *testing.T) {
			h := testutil.New(t, c.seed...)
			s := h.Datastore(datastore.Options{Node: "node-1"}).Replicas
			c.write(t, s)

			if r, err := s.GetRO("r"); err == nil {
				assert.Equal(t, c.staleObject, s.IsStale(r), "late cache: IsStale = %v", !c.staleObject)
			}
			assert.Equal(t, c.staleInLate, s.IsStaleIn(datastore.IndexVolume, "vol"), "late cache")
			assert.False(t, s.IsStaleIn(datastore.IndexVolume, "other"), "late cache: another volume is stale")
			if c.otherDeletesIt {
				other := h.Datastore(datastore.Options{}).Replicas
				require.NoError(t, other.Delete(t.Context(), "new", datastore.Preconditions{}))
			}
			h.CatchUp()
			r, err := s.GetRO("r")
			assert.False(t, err == nil && s.IsStale(r), "caught up: still IsStale")
			assert.False(t, s.IsStaleIn(datastore.IndexVolume, "vol"), "caught up: still IsStaleIn its volume")
		})
	}
}

func TestAnObjectReadBeforeAWriteStaysStale(t *testing.T) {
	h := testutil.New(t, build.Replica("r", "vol"))
	s := h.Datastore(datastore.Options{}).Replicas
	before, _ := s.Get("r")
	changed := before.DeepCopy()
	changed.Spec.FailedAt = "now"
	_, err := s.Update(t.Context(), changed)
	require.NoError(t, err)
	h.CatchUp()
	now, _ := s.Get("r")
	assert.True(t, s.IsStale(before))
	assert.False(t, s.IsStale(now))
}

func TestANewObjectOfADeletedOnesNameIsNotStale(t *testing.T) {
	h := testutil.New(t, build.Replica("r", "vol"))
	s := h.Datastore(datastore.Options{}).Replicas
	require.NoError(t, s.Delete(t.Context(), "r", datastore.Preconditions{}))
	h.Seed(build.Replica("r", "vol", func(r *longhorn.Replica) { r.UID = "another" }))
	h.CatchUp()
	r, err := s.Get("r")
	require.NoError(t, err)
	assert.False(t, s.IsStale(r), r)
	assert.False(t, s.IsStaleIn(datastore.IndexVolume, "vol"))
}
