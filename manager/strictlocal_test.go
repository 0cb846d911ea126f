package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestCreateVolumeFillsInCopies(t *testing.T) {
	const strict = "strict-local"
	cases := map[string]struct {
		setting      string
		locality     string
		replicas     int
		wantLocality longhorn.DataLocality
		wantReplicas int
	}{
		"strict-local, no number → one replica":                        {locality: strict, wantLocality: strict, wantReplicas: 1},
		"strict-local by the setting, no number → one replica":         {setting: strict, wantLocality: strict, wantReplicas: 1},
		"strict-local by the setting, one replica → strict-local":      {setting: strict, replicas: 1, wantLocality: strict, wantReplicas: 1},
		"strict-local by the setting, two replicas → best-effort":      {setting: strict, replicas: 2, wantLocality: "best-effort", wantReplicas: 2},
		"strict-local by the setting, the volume says → as it says":    {setting: strict, locality: "disabled", wantLocality: "disabled", wantReplicas: 3},
		"nothing is said → the settings":                               {wantLocality: "disabled", wantReplicas: 3},
		"best-effort by the setting, no number → that of the settings": {setting: "best-effort", wantLocality: "best-effort", wantReplicas: 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects := threeNodes()
			if c.setting != "" {
				objects = append(objects, build.Setting(settings.DefaultDataLocality, c.setting))
			}
			view, err := newBench(t, objects...).CreateVolume(t.Context(), VolumeRequest{
				Name: "vol", Size: "1Gi", DataLocality: c.locality, NumberOfReplicas: c.replicas, MustFit: true,
			})
			require.NoError(t, err)
			assert.Equal(t, c.wantLocality, view.Volume.Spec.DataLocality)
			assert.Equal(t, c.wantReplicas, view.Volume.Spec.NumberOfReplicas)
		})
	}
}

// strictVolume returns a detached strict-local volume with replicas r-1, r-2, … on nodes of the same numbers; members
// have its data.
func strictVolume(nodes int, members ...string) []runtime.Object {
	v := detachedVolume("vol", func(v *longhorn.Volume) {
		v.Spec.DataLocality, v.Spec.NumberOfReplicas = longhorn.DataLocalityStrictLocal, 1
		v.Status.Conditions = []longhorn.Condition{condition(types.ConditionScheduled, longhorn.ConditionTrue, types.ReasonPlacedWhenAttached, "later")}
	})
	e := owned(build.Engine("vol"), "vol")
	if len(members) > 0 {
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: members}
	}
	objects := append(threeNodes(), v, e)
	for i := range nodes {
		n := string(rune('1' + i))
		objects = append(objects, owned(build.PlacedReplica("r-"+n, "vol", "node-"+n, "uuid-"+n), "vol"))
	}
	return objects
}

func TestAttachOfAStrictLocalVolume(t *testing.T) {
	one := `hostId: volume "vol" cannot be attached to node "node-2": its dataLocality is strict-local, and its data is on node "node-1"`
	cases := map[string]struct {
		objects []runtime.Object
		wants   []string // StrictLocalNodes
		refused string   // of an attachment to node-2; "": it is not refused
	}{
		"no replica yet → anywhere":                       {objects: strictVolume(0)},
		"a replica that was never used → anywhere":        {objects: strictVolume(1)},
		"its data is on another node → refused":           {objects: strictVolume(1, "r-1"), wants: []string{"node-1"}, refused: one},
		"another copy there, that lacks data → refused":   {objects: strictVolume(2, "r-1"), wants: []string{"node-1"}, refused: one},
		"a copy with all its data is there, too → served": {objects: strictVolume(2, "r-1", "r-2"), wants: []string{"node-1", "node-2"}},
		"all copies are lost → attached, and says so":     {objects: strictVolume(0, "r-1")},
	}
	for name, c := range cases {
		for _, attacher := range []string{"longhorn-api", "csi-attacher"} {
			t.Run(name+", for "+attacher, func(t *testing.T) {
				b := newBench(t, c.objects...)
				view, err := b.Volume(t.Context(), "vol")
				require.NoError(t, err)
				assert.True(t, view.Ready, view.NotReadyMessage)
				assert.Equal(t, c.wants, view.StrictLocalNodes)
				_, err = b.AttachVolume(t.Context(), "vol", AttachRequest{NodeID: "node-2", TicketID: "x", Attacher: attacher})
				if c.refused != "" {
					wantProblem(t, err, ErrConflict, c.refused)
					b.ExpectWrites()
					return
				}
				require.NoError(t, err)
			})
		}
	}
}
