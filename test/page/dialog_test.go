package page

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// TestADialogStaysWhileItsChangeIsUnderWay: if the dialog closed earlier, the change would continue, and the user would
// not see its refusal.
func TestADialogStaysWhileItsChangeIsUnderWay(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Act("Actions on orders-db", "Number of replicas")
	b.Type("textbox", "Number of replicas", "99")
	change := b.network.delay("POST /v1/volumes/orders-db")
	b.Press(kb.Enter) // the field keeps the focus, so the dialog receives the next key
	await(t, "the change", change.ready)
	b.Press(kb.Escape)
	b.Click("button", "Cancel")
	change.give()
	b.Describes("textbox", "Number of replicas", "must be 1 to 20")
	b.Press(kb.Escape)
	b.HasNot("dialog", "Replicas of orders-db")
}

// TestADialogOutlivesItsRow: while the user fills in the form, the row leaves the filter, and the volume leaves the
// cluster.
func TestADialogOutlivesItsRow(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Degraded")
	b.Sees("2 of 5 volumes")
	b.Act("Actions on orders-queue", "Number of replicas")
	b.Type("textbox", "Number of replicas", "2")
	b.change(healthy("orders-queue", 5)...)
	b.Sees("1 of 5 volumes")
	b.Click("button", "Save")
	b.HasNot("dialog", "Replicas of orders-queue")
	b.ExpectWrites("update volumes/orders-queue")
}

// TestASecondClickIsIgnored: while the change of the first click is in progress, a second click has no effect.
func TestASecondClickIsIgnored(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Act("Actions on orders-db", "Number of replicas")
	b.Type("textbox", "Number of replicas", "2")
	var done bool
	b.Evaluate(`{
		const real = window.fetch;
		window.changes = 0;
		window.fetch = (link, init) => {
			if (init.method !== 'GET') window.changes += 1;
			return real(link, init);
		};
		const submit = document.querySelector('button[type=submit]');
		submit.click();
		submit.click();
	} true`, &done)
	b.HasNot("dialog", "Replicas of orders-db")
	var changes int
	b.Evaluate("window.changes", &changes)
	assert.Equal(t, 1, changes)
	b.ExpectWrites("update volumes/orders-db")
}

// TestManyAtOnce: the dialog shows its progress, stops on request, and continues with the remaining volumes.
func TestManyAtOnce(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	for _, name := range []string{"archive", "orders-db", "orders-queue"} {
		b.Click("checkbox", "Select "+name)
	}
	b.Act("Actions on selected volumes", "Number of replicas")
	b.Type("textbox", "Number of replicas", "2")
	second := b.network.delay("POST /v1/volumes/orders-db")
	b.Click("button", "Save")
	await(t, "the second change", second.ready)
	b.Has("progressbar", "Replicas of 3 volumes")
	b.Sees("1 of 3")
	b.Axe(root, "a change of many volumes")
	b.Click("button", "Stop after this volume")
	second.give()
	b.Sees("Stopped: 2 of 3 are done, 1 skipped")
	b.ExpectWrites("update volumes/archive", "update volumes/orders-db")
	b.Click("button", "Save")
	b.HasNot("dialog", "Replicas of 3 volumes")
	b.ExpectWrites("update volumes/orders-queue")
}

// TestAVolumeThatIsMadeAgainIsNotChosen: the new volume is not selected, although the deleted volume of the same name
// was.
func TestAVolumeThatIsMadeAgainIsNotChosen(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Click("checkbox", "Select archive")
	b.Sees("5 volumes, 1 selected")
	b.Act("Actions on selected volumes", "Delete")
	b.Type("textbox", "Type “archive” to confirm", "archive")
	b.Click("button", "Delete permanently")
	b.HasNot("dialog", "Delete archive")
	b.Sees("4 volumes")
	b.add(healthy("archive", 40)[0])
	b.Sees("5 volumes")
	b.SeesNot("selected")
}

// TestAWrongNumberOfReplicas: the form reports it before it sends a request to the API.
func TestAWrongNumberOfReplicas(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Click("button", "Create volume")
	b.Type("textbox", "Name", "mine")
	b.Type("textbox", "Replicas", "three")
	b.Describes("textbox", "Replicas", "must be a whole number")
	b.Click("button", "Create")
	b.ExpectWrites()
	b.Type("textbox", "Replicas", "3")
	b.Click("button", "Create")
	b.HasNot("dialog", "Create volume")
	b.ExpectWrites("create volumes/mine")
}

// TestFieldsThatNothingWasWrittenTo: the page does not show them as blank.
func TestFieldsThatNothingWasWrittenTo(t *testing.T) {
	objs := healthy("bare", 1)
	v, ok := objs[0].(*longhorn.Volume)
	assert.True(t, ok)
	v.Spec.DataLocality, v.Spec.AccessMode = "", ""
	b := newBench(t, append(threeNodes(), objs...)...)
	b.login("admin")
	b.Open(b.url + "/volumes/bare")
	b.Sees("Data locality not set")
	b.Sees("Access mode not set")
}

// TestSalvage: the page offers it only for a faulted volume. The API refuses a replica that lacks acknowledged writes,
// and accepts one that has all.
func TestSalvage(t *testing.T) {
	lost := volume("lost", 5, state{robustness: longhorn.VolumeRobustnessFaulted, replicas: map[string]string{"node-1": "RW", "node-2": "RW"}})
	for _, obj := range lost {
		switch o := obj.(type) {
		case *longhorn.Engine:
			o.Status.Epoch.Members = []string{"lost-r-1"}
		case *longhorn.Replica:
			o.Spec.FailedAt = metav1.Time{Time: created}.Format("2006-01-02T15:04:05Z07:00")
		}
	}
	b := newBench(t, append(append([]runtime.Object{}, cluster()...), lost...)...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-db")
	b.Click("button", "Actions on orders-db")
	b.Has("menuitem", "Delete")
	b.HasNot("menuitem", "Salvage")
	b.Open(b.url + "/volumes/lost")
	b.Act("Actions on lost", "Salvage")
	b.Has("dialog", "Salvage lost")
	b.Sees("lost-r-2 on node-2, failed ")
	b.Axe(root, "a salvage")
	b.Click("button", "Salvage")
	b.Click("checkbox", "lost-r-2")
	b.Click("button", "Salvage")
	b.Sees("replica lost-r-2 lacks acknowledged writes that replicas lost-r-1 have")
	b.Click("checkbox", "lost-r-2")
	b.Click("checkbox", "lost-r-1")
	b.Click("button", "Salvage")
	b.HasNot("dialog", "Salvage lost")
	b.ExpectWrites()
}
