package page

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func snapshotOf(volume, name string, change func(*longhorn.Snapshot)) *longhorn.Snapshot {
	s := &longhorn.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: name, Finalizers: []string{types.Finalizer}, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: volume, UID: build.Volume(volume).UID,
		}}},
		Spec: longhorn.SnapshotSpec{Volume: volume, CreateSnapshot: true},
		Status: longhorn.SnapshotStatus{
			Number: 2, ReadyToUse: true, UserCreated: true, CreationTime: "2030-01-01T00:00:00Z", Size: 4096,
			Labels: map[string]longhorn.SnapshotLabel{"app": "db"},
		},
	}
	change(s)
	return s
}

// TestSnapshots: the page lists the snapshots of the volume, says what they wait for, and sends what the user confirms.
func TestSnapshots(t *testing.T) {
	b := newBench(t, append(cluster(),
		snapshotOf("archive", "nightly", func(*longhorn.Snapshot) {}),
		snapshotOf("archive", "waits", func(s *longhorn.Snapshot) {
			s.Status = longhorn.SnapshotStatus{Conditions: []longhorn.Condition{{
				Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionFalse, Reason: "Attaching", Message: "the volume is being attached for it",
			}}}
		}),
		snapshotOf("orders-db", "foreign", func(*longhorn.Snapshot) {}),
	)...)
	e, err := b.Longhorn.LonghornV1beta2().Engines(types.Namespace).Get(t.Context(), "archive-e-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.Status.Line = &longhorn.Line{Counter: 2, Points: []longhorn.LinePoint{{Number: 2, Nonce: 7, Name: "nightly", State: longhorn.PointStateReady}}}
	b.change(e)
	b.login("admin")
	b.Open(b.url + "/volumes/archive")
	b.Has("button", "Delete nightly")
	b.SeesNot("foreign")
	b.Sees("app: db")
	b.Sees("the volume is being attached for it")
	b.Axe(root, "the snapshots of a volume")

	b.Click("button", "Take a snapshot")
	b.Axe(root, "the form of a new snapshot")
	b.Type("textbox", "Labels", "app=db")
	b.Describes("textbox", "Labels", "is not a label")
	b.Type("textbox", "Labels", "app: db")
	b.Type("textbox", "Name", "S1")
	b.Click("button", "Take the snapshot")
	b.Describes("textbox", "Name", `name: "S1" must consist of lower-case letters`)
	b.ExpectWrites()
	b.Type("textbox", "Name", "new")
	b.Click("button", "Take the snapshot")
	b.HasNot("dialog", "Take a snapshot of archive")
	b.ExpectWrites("create snapshots/new")

	b.Click("button", "Return to nightly")
	b.Axe(root, "a return to a snapshot")
	b.Type("textbox", "Type “archive” to confirm", "archive")
	b.Click("button", "Return to the snapshot")
	b.HasNot("dialog", "Return archive to snapshot nightly")
	b.ExpectWrites("update engines/archive-e-0/status")

	b.Click("button", "Delete nightly")
	b.Sees("frees up to 4 KiB")
	b.Type("textbox", "Type “nightly” to confirm", "nightly")
	b.Click("button", "Delete permanently")
	b.HasNot("dialog", "Delete snapshot nightly of archive")
	b.ExpectWrites("delete snapshots/nightly")
}
