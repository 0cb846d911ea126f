package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recorded is the status of a volume that claim shop/data uses.
var recorded = longhorn.KubernetesStatus{PVName: "pv-1", PVStatus: "Bound", Namespace: "shop", PVCName: "data"}

func TestTheClaimOfAVolume(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"no claim → none", func(*world) {}, ""},
		{"the volume records it → it", func(w *world) { w.v.Status.KubernetesStatus = recorded }, "shop/data"},
		{"the PersistentVolume alone names it → it", func(w *world) { w.claimed() }, "shop/data"},
		{"the claim was deleted → none", func(w *world) {
			w.claimed()
			w.v.Status.KubernetesStatus = recorded
			w.v.Status.KubernetesStatus.LastPVCRefAt = ago(0)
		}, ""},
		{"the PersistentVolume is released → none", func(w *world) {
			_, pv, _ := w.claimed()
			pv.Status.Phase = corev1.VolumeReleased
		}, ""},
	} {
		w := newWorld()
		tc.change(w)
		assert.Equal(t, tc.want, w.ClaimOf("v"), tc.name)
		assert.Empty(t, w.ClaimOf("other"), tc.name)
	}
}

func TestObjectsAreTitledByTheirClaim(t *testing.T) {
	w := newWorld()
	w.ticket("n2", types.ReasonAttachedElsewhere, "m")
	objects := []Object{
		{Kind: KindVolume, Name: "v"},
		{Kind: KindEngine, Name: "v-e-0"},
		{Kind: KindReplica, Name: "v-r-1", Node: "n1"},
		{Kind: KindShareManager, Name: "v"},
		{Kind: KindTicket, Name: "t", Node: "n2"},
		{Kind: KindNode, Name: "n1"},
		{Kind: KindVolume, Name: "gone"},
	}
	titles := func() []string {
		var all []string
		for _, o := range objects {
			all = append(all, w.TitleOf(o))
		}
		return all
	}
	assert.Equal(t, []string{"volume v", "engine v-e-0", "replica v-r-1", "share manager v", "ticket t", "node n1", "volume gone"}, titles())
	w.v.Status.KubernetesStatus = recorded
	assert.Equal(t, []string{
		"volume shop/data (v)", "engine v-e-0 of shop/data", "replica v-r-1 of shop/data", "share manager shop/data (v)", "ticket t of shop/data", "node n1", "volume gone",
	}, titles())
}

// TestSentencesNameTheClaimAndCommandsTheVolume: users copy commands.
func TestSentencesNameTheClaimAndCommandsTheVolume(t *testing.T) {
	w := newWorld()
	w.rename("pvc-1")
	w.v.Status.KubernetesStatus = recorded
	w.lose(3, types.ReasonDiskUnmounted, "m")
	w.volumeSays(types.ConditionDeviceInUse, longhorn.ConditionTrue, types.ConditionDeviceInUse, "pid 17 (dd)")
	w.ticket("n2", types.ReasonAttachedElsewhere, "m")
	w.share(longhorn.ShareManagerStateError, types.ReasonPodFailed, "m").Name = "pvc-1"
	found, err := Volume(&w.Snapshot, "pvc-1")
	require.NoError(t, err)
	named := map[Kind]bool{}
	for _, f := range found {
		for _, text := range append([]string{f.What}, f.Why...) {
			rest := strings.NewReplacer("shop/data (pvc-1)", "", "pvc-1-e-0", "").Replace(text)
			assert.NotContains(t, rest, "pvc-1", "%v", f.Object)
			named[f.Object.Kind] = named[f.Object.Kind] || rest != text || strings.Contains(text, "v-r-3 of shop/data")
		}
		for _, step := range f.Next {
			assert.NotContains(t, step.Command, "shop/data", "%v", f.Object)
		}
	}
	assert.Equal(t, map[Kind]bool{KindVolume: true, KindReplica: true, KindTicket: true, KindShareManager: true}, named)
}

func TestMessagesOfConditionsGetTheClaim(t *testing.T) {
	w := newWorld()
	w.v.Status.KubernetesStatus = recorded
	add := w.claimsInMessages()
	for message, want := range map[string]string{
		"the engine of volume v runs on it":                 "the engine of volume shop/data (v) runs on it",
		"of volumes a, v, w. The conditions say more":       "of volumes a, shop/data (v), w. The conditions say more",
		"the last healthy replicas of volumes a and v":      "the last healthy replicas of volumes a and shop/data (v)",
		"volume v: no place":                                "volume shop/data (v): no place",
		"it waits for volume v.":                            "it waits for volume shop/data (v).",
		"volume shop/data (v) is attached to node n1":       "volume shop/data (v) is attached to node n1",
		"volume v/x and volume v.x have other names":        "volume v/x and volume v.x have other names",
		"the v of the message, and replica v-r-1, are not":  "the v of the message, and replica v-r-1, are not",
		"volume v-2 has another name, and the volume has v": "volume v-2 has another name, and the volume has v",
	} {
		assert.Equal(t, want, add(message))
	}
	w.v.Status.KubernetesStatus = longhorn.KubernetesStatus{}
	assert.Equal(t, "volume v", w.claimsInMessages()("volume v"))
}

func TestAListOfVolumesHasTheirClaims(t *testing.T) {
	w := newWorld()
	w.v.Status.KubernetesStatus = recorded
	_, err := Volume(&w.Snapshot, "x")
	assert.EqualError(t, err, `volume "x" does not exist; there are shop/data (v)`)
	_, err = Volume(&w.Snapshot, "v-")
	assert.ErrorContains(t, err, "there are shop/data (v)")
}
