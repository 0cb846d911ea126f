package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// TestActionsAreOfferedByState: the same actions as in Longhorn are offered.
func TestActionsAreOfferedByState(t *testing.T) {
	for name, c := range map[string]struct {
		state, robustness string
		expand, cancel    bool
	}{
		"attached → both":         {"attached", "degraded", true, true},
		"detached → both":         {"detached", "unknown", true, true},
		"attaching → cancel only": {"attaching", "unknown", false, true},
		"detaching → none":        {"detaching", "unknown", false, false},
		"faulted → salvage alone": {"detached", "faulted", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, build.Volume("vol", func(v *longhorn.Volume) {
				v.Status.State, v.Status.Robustness = longhorn.VolumeState(c.state), longhorn.VolumeRobustness(c.robustness)
			}))
			v := decoded[v1.Volume](t, do(t, b.server, "GET", "/v1/volumes/vol", ""))
			assert.Equal(t, c.expand, v.Actions["expand"] != "", "expand")
			assert.Equal(t, c.cancel, v.Actions["cancelExpansion"] != "", "cancelExpansion")
			assert.Equal(t, c.robustness == "faulted", v.Actions["salvage"] != "", "salvage")
			assert.NotEmpty(t, v.Actions["detach"])
		})
	}
}

func TestExpandAndCancel(t *testing.T) {
	v := build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Status.Size = longhorn.VolumeStateDetached, build.GiB
	})
	b := newBench(t, v, build.Engine("vol", func(e *longhorn.Engine) {
		e.OwnerReferences = ownedByVol
		e.Status.IsExpanding, e.Status.LastExpansionError, e.Status.LastExpansionFailedAt = true, "no", "2030-01-02T03:04:05Z"
		e.Status.CurrentSize = build.GiB
	}))
	post := func(action, body string, want int) v1.Volume {
		w := do(t, b.server, "POST", "/v1/volumes/vol?action="+action, body)
		require.Equal(t, want, w.Code, w.Body)
		return decoded[v1.Volume](t, w)
	}
	larger := post("expand", `{"size":"2Gi"}`, 200)
	assert.Equal(t, "2147483648", larger.Size)
	assert.True(t, larger.ExpansionRequired)
	require.Len(t, larger.Controllers, 1)
	assert.Equal(t, "1073741824", larger.Controllers[0].Size)
	assert.True(t, larger.Controllers[0].IsExpanding)
	assert.Equal(t, "no", larger.Controllers[0].LastExpansionError)
	assert.Equal(t, "2030-01-02T03:04:05Z", larger.Controllers[0].LastExpansionFailedAt)
	b.CatchUp()
	again := post("cancelExpansion", "", 200)
	assert.Equal(t, "1073741824", again.Size)
	assert.False(t, again.ExpansionRequired)
	b.CatchUp()
	post("cancelExpansion", "{}", 409)
	post("expand", `{"size":"1Mi"}`, 422)
	post("expand", `{"sise":"2Gi"}`, 422)
}
