package manager

import (
	"testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestListSettingsShowsAllWithTheirDefaults(t *testing.T) {
	b := newBench(t, build.Setting(types.SettingDefaultReplicaCount, "5", func(s *longhorn.Setting) { s.Status.Applied = true }))
	views, err := b.ListSettings()
	if err != nil || len(views) != len(types.Settings()) {
		t.Fatalf("%d settings, %v", len(views), err)
	}
	got := map[string]string{}
	for _, v := range views {
		got[v.Name] = v.Value
	}
	if got["default-replica-count"] != "5" || got["default-data-path"] != "/var/lib/longhorn" {
		t.Errorf("values %v", got)
	}
}

func TestUpdateSetting(t *testing.T) {
	t.Run("there → its value is written", func(t *testing.T) {
		b := newBench(t, build.Setting(types.SettingDefaultReplicaCount, "3"))
		view, err := b.UpdateSetting(t.Context(), "default-replica-count", "2")
		if err != nil || view.Value != "2" {
			t.Errorf("view %+v, %v", view, err)
		}
		b.ExpectWrites("update settings/default-replica-count")
	})
	t.Run("the value it has → nothing is written", func(t *testing.T) {
		b := newBench(t, build.Setting(types.SettingDefaultReplicaCount, "3"))
		if _, err := b.UpdateSetting(t.Context(), "default-replica-count", "3"); err != nil {
			t.Fatal(err)
		}
		b.ExpectWrites()
	})
	t.Run("no object yet → it is made", func(t *testing.T) {
		b := newBench(t)
		if _, err := b.UpdateSetting(t.Context(), "default-replica-count", "2"); err != nil {
			t.Fatal(err)
		}
		b.ExpectWrites("create settings/default-replica-count")
	})
	t.Run("empty → the default", func(t *testing.T) {
		b := newBench(t, build.Setting(types.SettingDefaultReplicaCount, "2"))
		view, err := b.UpdateSetting(t.Context(), "default-replica-count", "")
		if err != nil || view.Value != "3" {
			t.Errorf("view %+v, %v", view, err)
		}
	})
	t.Run("a value out of bounds → refused", func(t *testing.T) {
		_, err := newBench(t).UpdateSetting(t.Context(), "default-replica-count", "21")
		wantInvalid(t, err, "value", `value: setting default-replica-count: value "21" is more than 20`)
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
	if err != nil || len(view.Engines) != 1 || len(view.Replicas) != 1 || view.Replicas[0].Name != "r-running" {
		t.Errorf("view %+v, %v", view, err)
	}
	list, err := b.ListInstanceManagers()
	if err != nil || len(list) != 1 {
		t.Errorf("list %v, %v", list, err)
	}
}
