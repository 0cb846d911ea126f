package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestASettingIsExplainedWithTheValueInForce(t *testing.T) {
	for _, tc := range []struct {
		name      string
		setting   *longhorn.Setting
		parameter string // of class longhorn
		value     string
		what      string
		why       string
		command   string
	}{
		{
			"a class overrides it → the class", build.Setting(settings.DefaultReplicaCount, "2"), "numberOfReplicas", "3",
			`setting default-replica-count has the value "2"; it acts on volumes created later`,
			`StorageClass longhorn sets numberOfReplicas to "3", so the setting does not apply to volumes of this class`, "get storageclass longhorn",
		},
		{
			"no class overrides it → its value", build.Setting(settings.DefaultReplicaCount, ""), "fsType", "ext4",
			`setting default-replica-count has the value "3", its default; it acts on volumes created later`, "", "describe lhs default-replica-count",
		},
		{
			"a class follows the setting → no class", build.Setting(settings.ReplicaAutoBalance, "best-effort"), "replicaAutoBalance", "ignored",
			`setting replica-auto-balance has the value "best-effort"; it acts at once`, "", "describe lhs replica-auto-balance",
		},
		{
			"its value is invalid → the one in force", build.Setting(settings.DefaultReplicaCount, "many"), "", "",
			`setting default-replica-count has the invalid value "many", so "3" is in force; it acts on volumes created later`, "", "describe lhs default-replica-count",
		},
		{
			"this release does not act on it → says so", build.Setting(settings.EngineReplicaTimeoutS, "30"), "", "",
			`setting engine-replica-timeout has the value "30"; it has no effect yet in this release`, "", "describe lhs engine-replica-timeout",
		},
		{
			"it waits for pods → which", build.Setting(settings.PriorityClass, "high", func(s *longhorn.Setting) {
				condition(&s.Status.Conditions, types.ConditionValid, longhorn.ConditionTrue, types.ReasonWaitsForPods, "pods with another value: a, b")
			}), "", "",
			`setting priority-class has the value "high"; it acts `, "pods with another value: a, b", "describe lhs priority-class",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.Settings = append(w.Settings, tc.setting)
			w.Classes[0].Parameters = map[string]string{tc.parameter: tc.value}
			other := &storagev1.StorageClass{Provisioner: "other.example", Parameters: map[string]string{"numberOfReplicas": "1"}}
			w.Classes = append(w.Classes, other)
			found, err := Setting(&w.Snapshot, tc.setting.Name)
			require.NoError(t, err)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Reason == "ValueInForce" })
			require.GreaterOrEqual(t, i, 0, "%+v", found)
			f := found[i]
			checkText(t, f)
			assert.Equal(t, Info, f.Severity)
			assert.True(t, strings.HasPrefix(f.What, tc.what), f.What)
			assert.Equal(t, tc.why, strings.Join(f.Why, "\n"))
			assert.Contains(t, f.Next[0].Command, tc.command)
			assert.False(t, slices.ContainsFunc(All(&w.Snapshot), func(f Finding) bool { return f.Reason == "ValueInForce" }), "it is no problem of the cluster")
		})
	}
}
