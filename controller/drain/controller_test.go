package drain

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// objects are the objects in an Input.
func objects(in Input) []runtime.Object {
	var all []runtime.Object
	add := func(o runtime.Object) { all = append(all, o) }
	for i := range in.Nodes {
		add(in.Nodes[i])
		add(in.KubeNodes[i])
		add(in.Managers[i])
	}
	for i := range in.Engines {
		add(in.Engines[i])
		add(in.Volumes[i])
	}
	for _, r := range in.Replicas {
		add(r)
	}
	for _, b := range in.Budgets {
		add(b)
	}
	return all
}

func begin(t *testing.T, in Input, more ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	h := testutil.New(t, append(objects(in), more...)...)
	d := h.Datastore(datastore.Options{})
	c, err := New(Deps{
		Env: h.Env(), Volumes: d.Volumes, Attachments: d.VolumeAttachments, Engines: d.Engines, Replicas: d.Replicas,
		Nodes: d.Nodes, KubeNodes: d.KubeNodes, Managers: d.InstanceManagers, Budgets: d.Budgets, Settings: d.Settings, Setting: d.Setting,
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func sync(t *testing.T, c *Controller) error {
	t.Helper()
	_, err := c.sync(t.Context(), everything)
	return err
}

var (
	budgetA = "poddisruptionbudgets/" + types.InstanceManagerName("a")
	budgetB = "poddisruptionbudgets/" + types.InstanceManagerName("b")
	budgetC = "poddisruptionbudgets/" + types.InstanceManagerName("c")
)

func withBudgets(nodes ...string) func(*Input) {
	return func(in *Input) {
		for _, n := range nodes {
			in.Budgets = append(in.Budgets, budgetOf(n))
		}
	}
}

func TestADrainEndsWhenTheVolumeIsDetached(t *testing.T) {
	h, c := begin(t, world(attached("v", "a", "b", "c")))
	require.NoError(t, sync(t, c))
	assert.ElementsMatch(t, []string{"create " + budgetA, "create " + budgetB, "create " + budgetC, "create " + budgetCSI}, h.Writes())
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites() // at rest nothing is written

	in := world(cordoned("a", testutil.Now))
	h.Overwrite(in.KubeNodes[0])
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("update instancemanagers/" + types.InstanceManagerName("a") + "/status")
	h.ExpectEvents("Normal EngineRuns " + types.InstanceManagerName("a") + ": attached to this node: volume v; the node can be drained after each of them is detached")
	h.CatchUp()

	e, err := c.deps.Engines.List(labels.Everything())
	require.NoError(t, err)
	gone := e[0].DeepCopy()
	gone.Spec.NodeID, gone.Spec.DesireState, gone.Status.CurrentState = "", longhorn.DesireStateStopped, longhorn.InstanceStateStopped
	h.Overwrite(gone)
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("delete "+budgetA, "delete "+budgetCSI, "update instancemanagers/"+types.InstanceManagerName("a")+"/status")
	h.ExpectEvents("Normal Drainable " + types.InstanceManagerName("a") + ": the instance manager may be evicted")
}

// TestALateCacheReleasesNoNode: the cache still shows another copy, while the API server knows that it has failed
// since.
func TestALateCacheReleasesNoNode(t *testing.T) {
	in := world(stopped("v", "a", "b"), cordoned("a", testutil.Now), withBudgets("a", "b"))
	h, c := begin(t, in)
	h.Overwrite(build.PlacedReplica("v-r-b", "v", "b", "disk-b", func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }))
	require.ErrorIs(t, sync(t, c), queue.ErrStale)
	h.ExpectWrites()
	h.CatchUp()
	require.NoError(t, sync(t, c))
	// The remaining copy is marked as the last, and its budget stays. The node of the failed copy may be drained.
	assert.ElementsMatch(t, []string{"update replicas/v-r-a", "update instancemanagers/" + types.InstanceManagerName("a") + "/status", "delete " + budgetB}, h.Writes())
}

// deleting is a store that records the preconditions with which a budget is deleted.
type deleting struct {
	BudgetStore
	under map[string]datastore.Preconditions
}

func (d deleting) Delete(ctx context.Context, name string, p datastore.Preconditions) error {
	d.under[name] = p
	return d.BudgetStore.Delete(ctx, name, p)
}

// TestOnlyTheBudgetThatWasLookedAtIsDeleted: another leader may have created it again in between, or changed it.
func TestOnlyTheBudgetThatWasLookedAtIsDeleted(t *testing.T) {
	_, c := begin(t, world(stopped("v", "a", "b"), cordoned("a", testutil.Now), withBudgets("a", "b")))
	seen, err := c.deps.Budgets.List(labels.Everything())
	require.NoError(t, err)
	store := deleting{c.deps.Budgets, map[string]datastore.Preconditions{}}
	c.deps.Budgets = store
	require.NoError(t, sync(t, c))
	require.NotEmpty(t, store.under)
	for _, b := range seen {
		if under, deleted := store.under[b.Name]; deleted {
			assert.Equal(t, datastore.Preconditions{UID: b.UID, ResourceVersion: b.ResourceVersion}, under)
			assert.NotEmpty(t, under.ResourceVersion)
		}
	}
}

// TestACordonIsTakenBack: the cache still shows a cordoned node, while the API server knows that it is not cordoned
// now. So its copy may be one of two that are drained at the same time.
func TestACordonIsTakenBack(t *testing.T) {
	h, c := begin(t, world(stopped("v", "a", "b"), cordoned("a", testutil.Now), withBudgets("a", "b")))
	h.Overwrite(build.KubeNode("a"))
	require.ErrorIs(t, sync(t, c), queue.ErrStale)
	h.ExpectWrites()
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites()
}

// TestWhatMayGoCountsOnABudgetThatIsThere: the cache shows no later changes, and budgets are created before others are
// deleted.
func TestWhatMayGoCountsOnABudgetThatIsThere(t *testing.T) {
	for _, tc := range []struct {
		name      string
		meanwhile func(t *testing.T, h *testutil.Harness)
		then      string
	}{
		{"the budget of the other copy was deleted → nothing goes before it is made again", func(t *testing.T, h *testutil.Harness) {
			require.NoError(t, h.Kube.PolicyV1().PodDisruptionBudgets(types.Namespace).Delete(t.Context(), types.InstanceManagerName("b"), metav1.DeleteOptions{}))
		}, "create " + budgetB},
		{"the budget of the other copy protects nothing any more → nothing goes before it is mended", func(_ *testing.T, h *testutil.Harness) {
			b := budgetOf("b")
			b.Spec.MinAvailable = new(intstr.FromInt32(0))
			h.Overwrite(b)
		}, "update " + budgetB},
		{"an engine was made elsewhere → nothing goes before it has a budget", func(_ *testing.T, h *testutil.Harness) {
			in := world(attached("w", "c"))
			h.Seed(in.Engines[0], in.Volumes[0])
		}, "create " + budgetC},
		{"a copy was made elsewhere, the only one of its volume → nothing goes before it has a budget", func(_ *testing.T, h *testutil.Harness) {
			in := world(stopped("w", "c"))
			h.Seed(in.Engines[0], in.Volumes[0], in.Replicas[0])
		}, "create " + budgetC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, world(stopped("v", "a", "b"), cordoned("a", testutil.Now), withBudgets("a", "b")))
			tc.meanwhile(t, h)
			h.Writes()
			require.ErrorIs(t, sync(t, c), queue.ErrStale)
			h.ExpectWrites()
			h.CatchUp()
			require.NoError(t, sync(t, c))
			writes := h.Writes()
			require.Contains(t, writes, tc.then)
			assert.Less(t, slices.Index(writes, tc.then), slices.Index(writes, "delete "+budgetA))
		})
	}
}

// TestTwoDrainsAtOnce: all budgets exist before the drains start. Then two nodes are cordoned at the same time. Only
// the budget of the node that may be drained is deleted.
func TestTwoDrainsAtOnce(t *testing.T) {
	h, c := begin(t, world(attached("v", "c", "a", "b")))
	require.NoError(t, sync(t, c))
	assert.ElementsMatch(t, []string{"create " + budgetA, "create " + budgetB, "create " + budgetC, "create " + budgetCSI}, h.Writes())
	in := world(justCordoned("a"), cordoned("b", testutil.Now))
	h.Overwrite(in.KubeNodes[0], in.KubeNodes[1])
	h.CatchUp()
	require.NoError(t, sync(t, c))
	assert.Contains(t, h.Writes(), "delete "+budgetB)
	left, err := h.Kube.PolicyV1().PodDisruptionBudgets(types.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, left.Items, 3, "those of the engine's node and of one copy, and that of the CSI controller")
}

// TestTheLastCopyStaysWhileItsNodeHasNoTime: a was drained an hour ago, and b has the last copy. b is cordoned, and its
// taint comes a moment later.
func TestTheLastCopyStaysWhileItsNodeHasNoTime(t *testing.T) {
	in := world(stopped("v", "a", "b"), cordoned("a", testutil.Now.Add(-time.Hour)), justCordoned("b"), withBudgets("b"))
	h, c := begin(t, in)
	require.NoError(t, sync(t, c))
	assert.ElementsMatch(t, []string{
		"update instancemanagers/" + types.InstanceManagerName("a") + "/status", "update instancemanagers/" + types.InstanceManagerName("b") + "/status",
	}, h.Writes())
}

// TestNothingIsReleasedUnseen: the live objects cannot be read, so the budget stays.
func TestNothingIsReleasedUnseen(t *testing.T) {
	in := world(withBudgets("a"))
	h, c := begin(t, in)
	broken := errors.New("no answer")
	h.Fail("list", "engines", broken)
	require.ErrorIs(t, sync(t, c), broken)
	h.ExpectWrites()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("delete " + budgetA)
}

func TestTheLastGoodCopyIsMarked(t *testing.T) {
	h, c := begin(t, world(policy(settings.DrainAlwaysAllow), stopped("v", "a", "b"), stopped("w", "a")))
	h.Seed(build.Setting(settings.NodeDrainPolicy, string(settings.DrainAlwaysAllow)))
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("update replicas/w-r-a")
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites()

	h.Overwrite(build.PlacedReplica("v-r-b", "v", "b", "disk-b", func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }))
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("update replicas/v-r-a")
	h.Overwrite(build.PlacedReplica("v-r-b", "v", "b", "disk-b"))
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites("update replicas/v-r-a")
	r, err := h.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Get(t.Context(), "v-r-a", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, r.Annotations, "longhorn.io/last-good-copy")
}

func TestVolumesAttachedByHandAreDetachedWhereTheSettingSaysSo(t *testing.T) {
	va := func() *longhorn.VolumeAttachment {
		return build.VolumeAttachment("v", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"p": {ID: "p", Type: longhorn.AttacherTypeAPI, NodeID: "a"}}
		})
	}
	for value, want := range map[string][]string{"true": {"update volumeattachments/v"}, "false": nil, "": nil, "yes": nil} {
		t.Run("setting "+value, func(t *testing.T) {
			in := world(cordoned("a", testutil.Now), func(in *Input) { in.Managers = in.Managers[:0] })
			h := testutil.New(t, in.KubeNodes[0], va(), build.Setting(settings.DetachManuallyAttached, value))
			d := h.Datastore(datastore.Options{})
			c, err := New(Deps{
				Env: h.Env(), Volumes: d.Volumes, Attachments: d.VolumeAttachments, Engines: d.Engines, Replicas: d.Replicas,
				Nodes: d.Nodes, KubeNodes: d.KubeNodes, Managers: d.InstanceManagers, Budgets: d.Budgets, Settings: d.Settings, Setting: d.Setting,
			})
			require.NoError(t, err)
			h.EndWithTest(c.Run)
			require.NoError(t, sync(t, c))
			h.ExpectWrites(want...)
			if want != nil {
				h.ExpectEvents("Normal DetachCordoned v: volume v, which a user attached manually, is being detached: its node is cordoned")
				stored, err := h.Longhorn.LonghornV1beta2().VolumeAttachments(types.Namespace).Get(t.Context(), "v", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Empty(t, stored.Spec.AttachmentTickets)
			}
		})
	}
}

// TestAWriteThatFailsStopsNoOther: budgets are created although a volume cannot be detached. One node's budget is
// created although another node's cannot be.
func TestAWriteThatFailsStopsNoOther(t *testing.T) {
	byHand := build.VolumeAttachment("w", func(va *longhorn.VolumeAttachment) {
		va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"p": {ID: "p", Type: longhorn.AttacherTypeAPI, NodeID: "a"}}
	})
	setting := build.Setting(settings.DetachManuallyAttached, "true")
	statusA := "update instancemanagers/" + types.InstanceManagerName("a") + "/status"
	refused := errors.New("refused")

	t.Run("a volume is not detached → the budget is made, the replica is marked, and the condition is written", func(t *testing.T) {
		h, c := begin(t, world(stopped("v", "b"), cordoned("a", testutil.Now)), byHand, setting)
		h.Fail("update", "volumeattachments", refused)
		require.ErrorIs(t, sync(t, c), refused)
		h.ExpectWrites("create "+budgetB, "update replicas/v-r-b", "update volumeattachments/w", statusA)
	})
	t.Run("a budget is refused → an Event of the instance manager, once", func(t *testing.T) {
		h, c := begin(t, world(stopped("v", "b"), cordoned("a", testutil.Now)), byHand, setting)
		quota := apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "x", errors.New("exceeded quota"))
		h.Fail("create", "poddisruptionbudgets", quota, quota)
		for range 2 {
			require.ErrorIs(t, sync(t, c), quota)
		}
		said := strings.Join(h.Recorder.Take(), "\n")
		assert.Equal(t, 1, strings.Count(said, "Warning ChildRefused "+types.InstanceManagerName("b")+": create "), said)
		assert.Contains(t, said, "exceeded quota")
	})
	t.Run("one of two budgets is not made → the other is, and none is deleted", func(t *testing.T) {
		h, c := begin(t, world(stopped("v", "b", "c"), cordoned("a", testutil.Now), withBudgets("a")), byHand, setting)
		h.Fail("create", "poddisruptionbudgets", refused)
		require.ErrorIs(t, sync(t, c), refused)
		assert.ElementsMatch(t, []string{"create " + budgetB, "create " + budgetC, "update volumeattachments/w"}, h.Writes())
		h.CatchUp()
		require.NoError(t, sync(t, c))
		assert.Contains(t, h.Writes(), "delete "+budgetA)
	})
}
