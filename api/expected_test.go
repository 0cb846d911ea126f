package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// ownReplica returns a replica of volume vol, which is good if healthyAt is set.
func ownReplica(name, healthyAt string, change ...func(*longhorn.Replica)) *longhorn.Replica {
	return build.Replica(name, "vol", append([]func(*longhorn.Replica){func(r *longhorn.Replica) {
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}}
		r.Spec.NodeID, r.Spec.LastHealthyAt = "node-1", healthyAt
	}}, change...)...)
}

func leaving(r *longhorn.Replica) {
	now := metav1.Now()
	r.DeletionTimestamp, r.Finalizers = &now, []string{"longhorn.io"}
}

func volumeWith(t *testing.T, change func(*longhorn.Volume), objects ...runtime.Object) v1.Volume {
	t.Helper()
	b := newBench(t, append(objects, build.Volume("vol", func(v *longhorn.Volume) {
		v.UID, v.Spec.NumberOfReplicas, v.Spec.Size = "uid-vol", 2, 2<<30
		v.Status.State, v.Status.Size = longhorn.VolumeStateDetached, 1<<30
		change(v)
	}))...)
	w := do(t, b.server, "GET", "/v1/volumes/vol", "")
	require.Equal(t, 200, w.Code, w.Body)
	return decoded[v1.Volume](t, w)
}

func attached(v *longhorn.Volume) {
	v.Spec.NodeID, v.Status.CurrentNodeID, v.Status.State = "node-1", "node-1", longhorn.VolumeStateAttached
}

func asIs(*longhorn.Volume) {}

func namesOf(v v1.Volume) (names []string) {
	for _, r := range v.Replicas {
		names = append(names, r.Name)
	}
	return names
}

func ownEngine(change func(*longhorn.Engine)) *longhorn.Engine {
	return build.Engine("vol", func(e *longhorn.Engine) {
		e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: "vol", UID: "uid-vol"}}
		e.Spec.NodeID = "node-1"
		change(e)
	})
}

func TestTheControllerOfADetachedVolumeHasItsSize(t *testing.T) {
	stopped := volumeWith(t, asIs, ownEngine(func(e *longhorn.Engine) { e.Status.CurrentState = "stopped" }))
	assert.Equal(t, "1073741824", stopped.Controllers[0].Size)
	running := volumeWith(t, attached, ownEngine(func(e *longhorn.Engine) { e.Status.CurrentState, e.Status.CurrentSize = "running", 4096 }))
	assert.Equal(t, "4096", running.Controllers[0].Size)
}

func TestReplicasAreListedAsClientsCountThem(t *testing.T) {
	const healthy = "2030-01-02T03:04:05Z"
	for _, c := range []struct {
		name    string
		change  func(*longhorn.Volume)
		objects []runtime.Object
		want    []string
	}{
		{"never used, one has no place → a placeholder", asIs, []runtime.Object{ownReplica("vol-r-1", "")}, []string{"vol-r-1", "vol-r-unplaced-1"}},
		{"has data, one has no place → degraded, and no placeholder", asIs, []runtime.Object{ownReplica("vol-r-1", healthy)}, []string{"vol-r-1"}},
		{"attached, one has no place → no placeholder", attached, []runtime.Object{ownReplica("vol-r-1", "")}, []string{"vol-r-1"}},
		{"one was removed → it is not listed beside the others", asIs, []runtime.Object{ownReplica("vol-r-1", healthy), ownReplica("vol-r-2", healthy, leaving)}, []string{"vol-r-1"}},
		{"the removed one has the last data → it is listed", asIs, []runtime.Object{ownReplica("vol-r-1", ""), ownReplica("vol-r-2", healthy, leaving)}, []string{"vol-r-1", "vol-r-2"}},
		{"the removed one still serves → it is listed", attached, []runtime.Object{
			ownReplica("vol-r-1", healthy), ownReplica("vol-r-2", healthy, leaving),
			ownEngine(func(e *longhorn.Engine) {
				e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-2": longhorn.ReplicaModeRW}
			}),
		}, []string{"vol-r-1", "vol-r-2"}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, namesOf(volumeWith(t, c.change, c.objects...))) })
	}
}

func TestARebuildOfARemovedReplicaIsNotListed(t *testing.T) {
	v := volumeWith(t, attached, ownReplica("vol-r-1", ""), ownReplica("vol-r-2", "", leaving), ownEngine(func(e *longhorn.Engine) {
		e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{
			"vol-r-1": {IsRebuilding: true, Progress: 7}, "vol-r-2": {Error: "it was removed from the volume"}, "vol-r-3": {Error: "it was removed from the volume"},
		}
	}))
	require.Len(t, v.RebuildStatus, 1)
	assert.Equal(t, "vol-r-1", v.RebuildStatus[0].Replica)
}

func TestASettingOfAnEarlyLonghornIsNotSupported(t *testing.T) {
	for name, status := range map[string]int{"backup-target": 500, "backup-target-credential-secret": 500, "backupstore-poll-interval": 500, "nonsense": 404} {
		w := do(t, newBench(t).server, "GET", "/v1/settings/"+name, "")
		assert.Equal(t, status, w.Code, name)
		if status == 500 {
			assert.Contains(t, w.Body.String(), "setting "+name+" is not supported")
		}
	}
}
