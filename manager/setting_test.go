package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestListSettingsShowsAllWithTheirDefaults(t *testing.T) {
	b := newBench(t, build.Setting(settings.DefaultReplicaCount, "5", func(s *longhorn.Setting) { s.Status.Applied = true }))
	views, err := b.ListSettings()
	require.NoError(t, err)
	require.Len(t, views, len(settings.All()))
	got := map[string]string{}
	for _, v := range views {
		got[v.Name] = v.Value
		assert.Equal(t, v.Applied, v.Definition.Effect != settings.EffectNone, "%s, which acts %q", v.Name, v.Definition.Effect)
	}
	assert.Equal(t, "5", got["default-replica-count"])
	assert.Equal(t, "/var/lib/longhorn", got["default-data-path"])
}

func TestUpdateSetting(t *testing.T) {
	t.Run("there → its value is written", func(t *testing.T) {
		b := newBench(t, build.Setting(settings.DefaultReplicaCount, "3"))
		view, err := b.UpdateSetting(t.Context(), "default-replica-count", "2")
		require.NoError(t, err)
		assert.Equal(t, "2", view.Value)
		b.ExpectWrites("update settings/default-replica-count")
	})
	t.Run("the value it has → nothing is written", func(t *testing.T) {
		b := newBench(t, build.Setting(settings.DefaultReplicaCount, "3"))
		_, err := b.UpdateSetting(t.Context(), "default-replica-count", "3")
		require.NoError(t, err)
		b.ExpectWrites()
	})
	t.Run("no object yet → it is made", func(t *testing.T) {
		b := newBench(t)
		_, err := b.UpdateSetting(t.Context(), "default-replica-count", "2")
		require.NoError(t, err)
		b.ExpectWrites("create settings/default-replica-count")
	})
	t.Run("empty → the default", func(t *testing.T) {
		b := newBench(t, build.Setting(settings.DefaultReplicaCount, "2"))
		view, err := b.UpdateSetting(t.Context(), "default-replica-count", "")
		require.NoError(t, err)
		assert.Equal(t, "3", view.Value)
	})
	t.Run("a value out of bounds → refused", func(t *testing.T) {
		_, err := newBench(t).UpdateSetting(t.Context(), "default-replica-count", "21")
		wantInvalid(t, err, "value", `value: setting default-replica-count with invalid value "21": it should be less than or equal to 20`)
	})
	t.Run("a priority class that is there → written", func(t *testing.T) {
		b := newBench(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "ours"}})
		view, err := b.UpdateSetting(t.Context(), "priority-class", "ours")
		require.NoError(t, err)
		assert.False(t, view.Applied, "nobody has looked at the pods yet")
		b.ExpectWrites("create settings/priority-class")
	})
	t.Run("a priority class that is not there → refused", func(t *testing.T) {
		b := newBench(t)
		_, err := b.UpdateSetting(t.Context(), "priority-class", "ours")
		wantInvalid(t, err, "value", `value: setting priority-class with invalid value "ours": failed to get priority class ours: it does not exist`)
		b.ExpectWrites()
	})
	t.Run("no priority class → the built-in ones", func(t *testing.T) {
		_, err := newBench(t, build.Setting(settings.PriorityClass, "ours")).UpdateSetting(t.Context(), "priority-class", "")
		require.NoError(t, err)
	})
	t.Run("no option → refused with the options", func(t *testing.T) {
		_, err := newBench(t).UpdateSetting(t.Context(), "replica-auto-balance", "much")
		wantInvalid(t, err, "value", `value: setting replica-auto-balance with invalid value "much": it must be one of disabled, least-effort, best-effort`)
	})
	t.Run("an unknown name → not found", func(t *testing.T) {
		_, err := newBench(t).UpdateSetting(t.Context(), "nix", "1")
		wantProblem(t, err, ErrNotFound, `setting "nix" does not exist`)
		_, err = newBench(t).Setting("nix")
		wantProblem(t, err, ErrNotFound, `setting "nix" does not exist`)
	})
}

func TestInstanceManagerShowsWhatItRuns(t *testing.T) {
	name := types.InstanceManagerName("node-1")
	hosted := func(state longhorn.InstanceState) func(*longhorn.Replica) {
		return func(r *longhorn.Replica) {
			r.Status.InstanceManagerName, r.Status.CurrentState = name, state
		}
	}
	b := newBench(t, build.RunningInstanceManager("node-1", "10.0.0.1", "im-1"),
		build.Engine("vol", func(e *longhorn.Engine) {
			e.Spec.NodeID, e.Status.InstanceManagerName, e.Status.CurrentState = "node-1", name, "running"
		}),
		build.PlacedReplica("r-running", "vol", "node-1", "uuid-1", hosted("running")),
		build.PlacedReplica("r-stopped", "vol", "node-1", "uuid-1", hosted("stopped")),
		build.PlacedReplica("r-elsewhere", "vol", "node-2", "uuid-2", func(r *longhorn.Replica) {
			r.Status.InstanceManagerName, r.Status.CurrentState = types.InstanceManagerName("node-2"), "running"
		}))
	view, err := b.InstanceManager(name)
	require.NoError(t, err)
	assert.Len(t, view.Engines, 1)
	require.Len(t, view.Replicas, 1)
	assert.Equal(t, "r-running", view.Replicas[0].Name)
	list, err := b.ListInstanceManagers()
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestReadOnlySettingsCannotBeSet(t *testing.T) {
	im := build.RunningInstanceManager("n1", "10.0.0.1", "u", func(im *longhorn.InstanceManager) { im.Spec.Image = "registry/longhorn-manager:1" })
	b := newBench(t, im, build.Setting(settings.CurrentVersion, "made by hand"))
	b.deps.Version = "v1.2.3"
	for name, want := range map[settings.Name]string{
		settings.CurrentVersion:              "v1.2.3",
		settings.DefaultEngineImage:          "registry/longhorn-manager:1",
		settings.DefaultInstanceManagerImage: "registry/longhorn-manager:1",
	} {
		view, err := b.Setting(string(name))
		require.NoError(t, err)
		assert.Equal(t, want, view.Value, name)
		assert.Equal(t, want, view.ValueInForce, name)
		assert.True(t, view.Applied, name)
		for _, value := range []string{"", want, "other"} {
			_, err = b.UpdateSetting(t.Context(), string(name), value)
			require.ErrorContains(t, err, "cannot be set: the setting is read-only", "%s to %q", name, value)
		}
	}
	b.ExpectWrites()
}

// A read-only setting without a value in readOnlyValue would crash the process.
func TestEveryReadOnlySettingHasAValue(t *testing.T) {
	b := newBench(t)
	for _, name := range settings.All() {
		if d, _ := settings.DefinitionOf(name); d.ReadOnly {
			_, err := b.readOnlyValue(name)
			assert.NoError(t, err, name)
		}
	}
}
