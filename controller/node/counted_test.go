package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestWhenReplicasAreCountedAgain(t *testing.T) {
	replica := func(changes ...func(*longhorn.Replica)) *longhorn.Replica {
		return build.PlacedReplica("r", "vol", "node-1", "uuid-1", changes...)
	}
	for _, tc := range []struct {
		name string
		tell func(cache.ResourceEventHandler)
		want bool
	}{
		{"one came → yes", func(h cache.ResourceEventHandler) { h.OnAdd(replica(), false) }, true},
		{"one went → yes", func(h cache.ResourceEventHandler) { h.OnDelete(replica()) }, true},
		{"one went while nobody watched → yes", func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: replica()}) }, true},
		{"its disk was recorded → yes", func(h cache.ResourceEventHandler) {
			h.OnUpdate(replica(func(r *longhorn.Replica) { r.Spec.DiskID = "" }), replica())
		}, true},
		{"its size changed → yes", func(h cache.ResourceEventHandler) {
			h.OnUpdate(replica(), replica(func(r *longhorn.Replica) { r.Spec.VolumeSize++ }))
		}, true},
		{"another one has its name → yes", func(h cache.ResourceEventHandler) {
			h.OnUpdate(replica(), replica(func(r *longhorn.Replica) { r.UID = "another" }))
		}, true},
		{"it runs → no", func(h cache.ResourceEventHandler) {
			h.OnUpdate(replica(), replica(func(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateRunning }))
		}, false},
		{"it failed → no", func(h cache.ResourceEventHandler) {
			h.OnUpdate(replica(), replica(func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-02T03:04:05Z" }))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked []time.Duration
			tc.tell(whenReplica(func(d time.Duration) { asked = append(asked, d) }))
			if tc.want {
				assert.Equal(t, []time.Duration{countAfter}, asked)
			} else {
				assert.Empty(t, asked)
			}
		})
	}
}
