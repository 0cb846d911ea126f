package types

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestIsExpansionRequired(t *testing.T) {
	running := longhorn.InstanceStateRunning
	for _, tc := range []struct {
		name           string
		asked, status  longhorn.Bytes
		state          longhorn.VolumeState
		engine         longhorn.InstanceState
		offers         longhorn.Bytes
		none, required bool
	}{
		{name: "size not recorded yet → no", asked: 2, state: longhorn.VolumeStateDetached},
		{name: "asked for more than is recorded → yes", asked: 2, status: 1, state: longhorn.VolumeStateDetached, required: true},
		{name: "detached, recorded → no", asked: 2, status: 2, state: longhorn.VolumeStateDetached},
		{name: "attached, offers less → yes", asked: 2, status: 2, state: longhorn.VolumeStateAttached, engine: running, offers: 1, required: true},
		{name: "attached, offers it → no", asked: 2, status: 2, state: longhorn.VolumeStateAttached, engine: running, offers: 2},
		{name: "no engine → no", asked: 2, status: 2, state: longhorn.VolumeStateCreating, none: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, e := &longhorn.Volume{}, &longhorn.Engine{}
			v.Spec.Size, v.Status.Size, v.Status.State = tc.asked, tc.status, tc.state
			e.Status.CurrentState, e.Status.CurrentSize = tc.engine, tc.offers
			if tc.none {
				e = nil
			}
			assert.Equal(t, tc.required, IsExpansionRequired(v, e))
		})
	}
}

// A report of one process must not be used for the next process.
func TestGrowthIsOfOneProcess(t *testing.T) {
	im := &longhorn.InstanceManager{}
	assert.False(t, ReplicasGrow(nil))
	assert.False(t, ReplicasGrow(im))
	im.Status.UUID = "p"
	im.Status.Growth = &longhorn.ProcessGrowth{UUID: "p", Replicas: true, Devices: true}
	assert.True(t, ReplicasGrow(im))
	assert.True(t, DevicesGrow(im))
	im.Status.UUID = "q"
	assert.False(t, ReplicasGrow(im))
	assert.False(t, DevicesGrow(im))
}
