package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const budgetCSI = "poddisruptionbudgets/longhorn-csi-controller"

func TestTheCSIControllerStaysWhileEnginesRun(t *testing.T) {
	with := func(b *policyv1.PodDisruptionBudget, changes ...func(*policyv1.PodDisruptionBudget)) func(*Input) {
		for _, change := range changes {
			change(b)
		}
		return func(in *Input) { in.Budgets = append(in.Budgets, b) }
	}
	ours := func() *policyv1.PodDisruptionBudget { return newCSIBudget(types.Namespace) }
	person := func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }
	elsewhere := func(b *policyv1.PodDisruptionBudget) {
		b.Name, b.Labels, b.Spec.Selector.MatchLabels = "other", nil, map[string]string{"app": "longhorn-manager"}
	}
	stopping := engine(func(e *longhorn.Engine) {
		e.Spec.DesireState, e.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopping
	})
	const none, created, updated, deleted = "", "create", "update", "delete"
	for _, tc := range []struct {
		name string
		in   Input
		want string
	}{
		{"no engine runs → there is none", world(stopped("v", "a", "b")), none},
		{"an engine runs → made", world(attached("v", "a", "b")), created},
		{"an engine runs, under always-allow → made", world(policy(settings.DrainAlwaysAllow), attached("v", "a", "b")), created},
		{"an engine runs on a node that is cordoned, like all others → made", world(attached("v", "a", "b"), cordoned("a", now), cordoned("b", now), cordoned("c", now)), created},
		{"an engine runs, and it is there → nothing", world(attached("v", "a", "b"), with(ours())), none},
		{"an engine is stopping → it stays", world(attached("v", "a", "b"), stopping, with(ours())), none},
		{"an engine runs, and it was changed → mended", world(attached("v", "a", "b"), with(ours(), func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = nil })), updated},
		{"the last engine has ended → deleted", world(stopped("v", "a", "b"), with(ours())), deleted},
		{"the last engine has ended, and it is of a person → left alone", world(stopped("v", "a", "b"), with(ours(), person)), none},
		{"an engine runs, and a person's has its name → left alone", world(attached("v", "a", "b"), with(ours(), person)), none},
		{"an engine runs, and a person's selects these pods → none is made", world(attached("v", "a", "b"), with(ours(), person, func(b *policyv1.PodDisruptionBudget) { b.Name = "mine" })), none},
		{"an engine runs, and a person's comes to select these pods → ours is deleted", world(attached("v", "a", "b"), with(ours()), with(ours(), person, func(b *policyv1.PodDisruptionBudget) { b.Name = "mine" })), deleted},
		{"an engine runs, and a person's selects other pods → made", world(attached("v", "a", "b"), with(ours(), elsewhere)), created},
		{"an engine runs, and a person's selects none → made", world(attached("v", "a", "b"), with(ours(), elsewhere, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil })), created},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			p := plan(tc.in)
			for what, budgets := range map[string][]*policyv1.PodDisruptionBudget{created: p.Create, updated: p.Update, deleted: p.Delete} {
				for _, b := range budgets {
					if b.Labels[types.LabelComponent] != types.ComponentInstanceManager {
						assert.Equal(t, types.AppCSIController, b.Name)
						got = append(got, what)
					}
				}
			}
			if tc.want == none {
				assert.Empty(t, got)
				return
			}
			assert.Equal(t, []string{tc.want}, got)
		})
	}
}

func TestTheCSIControllersBudget(t *testing.T) {
	b := newCSIBudget("ns")
	assert.Equal(t, "ns", b.Namespace)
	assert.Equal(t, int32(1), b.Spec.MinAvailable.IntVal)
	assert.Equal(t, map[string]string{"app": "longhorn-csi-controller"}, b.Spec.Selector.MatchLabels)
	// The uninstaller finds the budget by this label.
	assert.Equal(t, "longhorn-manager", b.Labels["longhorn.io/managed-by"])
}

// TestAClusterIsDrainedWhole: all nodes are cordoned. The CSI controller stays until it has detached the last volume.
// Then it may be evicted, so that the drain of its node finishes.
func TestAClusterIsDrainedWhole(t *testing.T) {
	in := world(policy(settings.DrainAlwaysAllow), attached("v", "a", "a"), cordoned("a", testutil.Now), cordoned("b", testutil.Now), cordoned("c", testutil.Now))
	h, c := begin(t, in)
	require.NoError(t, sync(t, c))
	assert.Contains(t, h.Writes(), "create "+budgetCSI)
	stored, err := h.Kube.PolicyV1().PodDisruptionBudgets(types.Namespace).Get(t.Context(), types.AppCSIController, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, stored.OwnerReferences)
	h.CatchUp()
	require.NoError(t, sync(t, c))
	h.ExpectWrites()

	gone := in.Engines[0].DeepCopy()
	gone.Spec.NodeID, gone.Spec.DesireState, gone.Status.CurrentState = "", longhorn.DesireStateStopped, longhorn.InstanceStateStopped
	h.Overwrite(gone)
	h.CatchUp()
	require.NoError(t, sync(t, c))
	assert.Contains(t, h.Writes(), "delete "+budgetCSI)
}
