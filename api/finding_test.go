package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestFindingsSayWhatIsWrongAndWhatHelps: the API returns the explanations of the command line, with the volume that
// they are about.
func TestFindingsSayWhatIsWrongAndWhatHelps(t *testing.T) {
	unplaced := build.Volume("unplaced", func(v *longhorn.Volume) {
		v.Status.State = longhorn.VolumeStateDetached
		v.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure, Message: "0 of 3 replicas fit",
		}}
	})
	b := newBench(t, append(threeNodes(), unplaced, detached("well"))...)
	list := decoded[v1.Collection[v1.Finding]](t, do(t, b.server, "GET", "/v1/findings", ""))
	var about []v1.Finding
	for _, f := range list.Data {
		assert.NotEqual(t, "well", f.Object.Volume, "nothing is said of what is well: %s", f.What)
		if f.Object.Volume == "unplaced" {
			about = append(about, f)
		}
	}
	require.NotEmpty(t, about)
	f := about[0]
	assert.Equal(t, "finding", f.Type)
	assert.Equal(t, v1.FindingObject{Kind: "volume", Name: "unplaced", Volume: "unplaced"}, f.Object)
	assert.Equal(t, types.ReasonReplicaSchedulingFailure, f.Reason)
	assert.NotEmpty(t, f.What)
	assert.Contains(t, f.Why, "0 of 3 replicas fit")
	require.NotEmpty(t, f.Next)
	assert.NotEmpty(t, f.Next[0].Text)

	one := decoded[v1.Finding](t, do(t, b.server, "GET", f.Links["self"], ""))
	assert.Equal(t, f, one)
	assert.Equal(t, 404, do(t, b.server, "GET", "/v1/findings/nix", "").Code)
	b.ExpectWrites()
}
