package page

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// claimed returns a volume of a claim: provisioners call volumes pvc-<uid>.
func claimed(name, claim string, s state) []runtime.Object {
	objs := volume(name, 10, s)
	v, ok := objs[0].(*longhorn.Volume)
	if !ok {
		panic("BUG: the first object is no volume")
	}
	v.Status.KubernetesStatus = longhorn.KubernetesStatus{PVName: name, Namespace: "default", PVCName: claim}
	return objs
}

const (
	dataVolume = "pvc-6f1c2a34-8d0b-4f57-9c11-2b7de0a4f3aa"
	logsVolume = "pvc-0a4f3aa2-1c2a-4f57-9c11-8d0b2b7de6f1"
)

// TestAVolumeIsCalledByItsClaim: tables, headings, findings, Events and dialogs name the claim together with the volume.
// The links and the search work with both names. The confirmation of a deletion requires the name of the volume.
func TestAVolumeIsCalledByItsClaim(t *testing.T) {
	objs := append(cluster(), claimed(dataVolume, "data", state{replicas: everywhere, condition: &longhorn.Condition{
		Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, LastTransitionTime: now,
		Reason: types.ReasonReplicaSchedulingFailure, Message: "0 of 3 replicas fit: insufficient storage (3 disks)",
	}})...)
	objs = append(objs, claimed(logsVolume, "logs", state{replicas: everywhere})...)
	b := newBench(t, append(objs, event("a", "Volume", dataVolume, "AnEvent", 1), event("b", "Replica", logsVolume+"-r-1", "AnotherEvent", 2))...)
	b.login("admin")
	const both = "default/data (" + dataVolume + ")"
	b.Sees("volume " + both + " has a replica without a place")
	b.Has("link", "Volume "+both)
	b.Has("link", "Replica "+logsVolume+"-r-1 of default/logs")

	b.Click("link", "Volumes")
	b.Has("link", "default/data "+dataVolume)
	var rows []string
	b.Evaluate(`[...document.querySelectorAll('tbody th a')].map((a) => a.innerText.split(/\s/)[0])`, &rows)
	assert.Equal(t, []string{"archive", "default/data", "default/logs", "orders-db", "orders-queue", "search-index", "unplaced"}, rows)
	b.Axe(root, "volumes of claims")
	b.Type("textbox", "Search", "pvc-6f1c")
	b.Sees("1 of 7 volumes")
	b.Type("textbox", "Search", "default/logs")
	b.HasNot("link", dataVolume)
	b.Type("textbox", "Search", "default/")
	b.Sees("2 of 7 volumes")
	b.Click("link", dataVolume)

	b.Has("heading", "default/data "+dataVolume)
	b.Axe(root, "the volume of a claim")
	b.Act("Actions on "+both, "Delete")
	b.Has("dialog", "Delete "+both)
	b.Axe(root, "the deletion of the volume of a claim")
	b.Type("textbox", "Type “"+dataVolume+"” to confirm", "default/data")
	b.Click("button", "Delete permanently")
	b.ExpectWrites()
	b.Type("textbox", "Type “"+dataVolume+"” to confirm", dataVolume)
	b.Click("button", "Delete permanently")
	b.HasNot("dialog", "Delete "+both)
	b.ExpectWrites("delete volumes/" + dataVolume)
}
