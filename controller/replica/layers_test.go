package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestShowLayers(t *testing.T) {
	const step = 64 << 20
	stored := func(flushed bool, bytes, head int64) *longhorn.ReplicaLayers {
		return &longhorn.ReplicaLayers{
			UUID: "p", HeadBytes: head, Points: []longhorn.ReplicaPoint{{Number: 4, Nonce: 61, Flushed: flushed, AllocatedBytes: bytes}},
		}
	}
	recent, old := types.Timestamp(testutil.Now.Add(-10*time.Second)), types.Timestamp(testutil.Now.Add(-time.Minute))
	for _, c := range []struct {
		name    string
		was, is *longhorn.ReplicaLayers
		at      string
		want    *longhorn.ReplicaLayers
		after   time.Duration
	}{
		{"a process of an earlier release → the last report stays", stored(true, 1, 1), nil, old, stored(true, 1, 1), 0},
		{"the first report, without points → no sizes", nil, &longhorn.ReplicaLayers{UUID: "p", HeadBytes: 5}, recent, &longhorn.ReplicaLayers{UUID: "p"}, 0},
		{"without points, the head grows → nothing", &longhorn.ReplicaLayers{UUID: "p"}, &longhorn.ReplicaLayers{UUID: "p", HeadBytes: step}, old, &longhorn.ReplicaLayers{UUID: "p"}, 0},
		{"a new point → at once", &longhorn.ReplicaLayers{UUID: "p"}, stored(false, 1, 1), recent, stored(false, 1, 1), 0},
		{"a point is flushed → at once", stored(false, 1, 1), stored(true, 2, 2), recent, stored(true, 2, 2), 0},
		{"a point is gone → at once", stored(true, 1, 1), &longhorn.ReplicaLayers{UUID: "p"}, recent, &longhorn.ReplicaLayers{UUID: "p"}, 0},
		{"another process → at once", &longhorn.ReplicaLayers{UUID: "q"}, &longhorn.ReplicaLayers{UUID: "p"}, recent, &longhorn.ReplicaLayers{UUID: "p"}, 0},
		{"a size changes a little → nothing", stored(true, 1, 1), stored(true, 1, step), old, stored(true, 1, 1), 0},
		{"a size changes much, soon after a record → later", stored(true, 1, 1), stored(true, 1, 1+step), recent, stored(true, 1, 1), 20 * time.Second},
		{"a size changes much, long after a record → it is recorded", stored(true, 1+step, 1), stored(true, 1, 1), old, stored(true, 1, 1), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &longhorn.Replica{}
			r.Spec.VolumeSize = 100 << 30
			r.Status.Layers, r.Status.AllocatedAt = c.was, c.at
			p := Plan{Status: *r.Status.DeepCopy()}
			showLayers(Input{Replica: r, Observed: Observed{Layers: c.is}, Now: testutil.Now}, &p)
			assert.Equal(t, c.want, p.Status.Layers)
			assert.Equal(t, c.after, p.After)
		})
	}
}

func TestSnapshotsLeaveFreeWhatTheSettingSays(t *testing.T) {
	_, c := start(t, &fakePlane{}, placed())
	in := Input{Replica: placed(), Disk: Disk{SizeBytes: 1000}}
	assert.Zero(t, c.specWithoutSecret(in).ReserveBytes)
	c.ReservePercent = func() int64 { return 25 }
	assert.Equal(t, int64(250), c.specWithoutSecret(in).ReserveBytes)
}
