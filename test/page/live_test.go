package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// event returns an Event about an object, some minutes before the harness's time.
func event(id, kind, name, reason string, minutes int) *corev1.Event {
	at := metav1.Time{Time: testutil.Now.Add(-time.Duration(minutes) * time.Minute)}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: id, Namespace: types.Namespace, CreationTimestamp: at},
		InvolvedObject: corev1.ObjectReference{APIVersion: longhorn.SchemeGroupVersion.String(), Kind: kind, Namespace: types.Namespace, Name: name},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: reason + " of " + name, Count: 3, LastTimestamp: at,
	}
}

// lately returns recent Events of the objects of cluster, as its controllers would create them.
func lately() []runtime.Object {
	var objs []runtime.Object
	for i, e := range []struct{ kind, name, reason, message string }{
		{"Volume", "orders-queue", "Degraded", "volume orders-queue has 2 of 3 copies"},
		{"Replica", "orders-queue-r-3", "Rebuilding", "replica orders-queue-r-3 is rebuilt on node node-3"},
		{"Volume", "search-index", types.ReasonLocalReplicaSchedulingFailure, "node-3: insufficient storage"},
		{"Node", "node-3", "Ready", "node node-3 is ready"},
	} {
		one := event(fmt.Sprintf("lately-%d", i), e.kind, e.name, e.reason, 2*i+1)
		one.Message, one.Count = e.message, 1
		if e.reason == "Rebuilding" || e.reason == "Ready" {
			one.Type = corev1.EventTypeNormal
		}
		objs = append(objs, one)
	}
	return objs
}

// TestEvents: the dashboard has all Events, the newest first, and adds new ones as they arrive. A volume's page has the
// Events of the volume and of its replicas.
func TestEvents(t *testing.T) {
	objs := cluster()
	for i := range 12 {
		objs = append(objs, event(fmt.Sprintf("old-%d", i), "Node", "node-1", "Older", 60+i))
	}
	b := newBench(t, append(objs, event("a", "Replica", "archive-r-1", "ReplicaEvent", 5), event("b", "Volume", "orders-db", "OtherEvent", 1))...)
	b.login("admin")
	b.Has("region", "Recent Events")
	b.Sees("OtherEvent of orders-db")
	b.Has("link", "Volume orders-db")
	b.Axe(root, "Events")
	var at struct{ Text, Title string }
	b.Evaluate(`(({innerText, title}) => ({Text: innerText, Title: title}))(document.querySelector('.events time'))`, &at)
	assert.Regexp(t, `^\d+ min\.? ago$`, at.Text)
	assert.Contains(t, at.Title, "2030", "the time itself")
	b.Has("button", "Show all 14")
	b.add(event("c", "Volume", "archive", "NewEvent", 0))
	b.Sees("NewEvent of archive")
	var first string
	b.Evaluate("document.querySelector('.events li').innerText", &first)
	assert.Contains(t, first, "NewEvent of archive")
	b.Click("button", "Show all 15")
	b.Has("button", "Show fewer")

	b.Click("link", "Volume archive")
	b.Has("heading", "archive")
	b.Has("region", "Events")
	b.Sees("ReplicaEvent of archive-r-1")
	b.Sees("NewEvent of archive")
	b.SeesNot("OtherEvent of orders-db")
}

// TestWhoMayNotSeeEvents: the page reports only the missing right. It does not report a lost connection, because a new
// one would not help.
func TestWhoMayNotSeeEvents(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("operator")
	b.Sees(`Not shown: user "system:serviceaccount:default:operator" has no right to list events`)
	b.Matches(".connection[data-state=open]")
}

// healthy returns a healthy volume of a size.
func healthy(name string, sizeGiB int) []runtime.Object {
	return volume(name, sizeGiB, state{robustness: longhorn.VolumeRobustnessHealthy, node: "node-1", replicas: everywhere})
}

// TestALostConnection: the page reports the lost connection, restores it, and then shows the changes that it missed.
// The known data stays visible although it cannot be read again.
func TestALostConnection(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Matches(".connection[data-state=open]")
	failed := b.network.fail("/v1/volumes")
	b.network.cut()
	await(t, "a read of the volumes", failed)
	b.Sees("Live updates have been interrupted since ")
	b.Has("link", "orders-db")
	b.SeesNot("the proxy has a bad day")
	b.change(healthy("orders-db", 21)...)
	b.network.mend()
	b.SeesNot("Live updates have been interrupted")
	b.Sees("21 GiB")
}

// noChecks stops the timer with which the page checks that its connections work, as a sleep of the machine does.
const noChecks = `{
	const set = window.setTimeout;
	window.setTimeout = (call, ms, ...rest) => (ms === 5000 ? 0 : set(call, ms, ...rest));
} true`

// TestAConnectionThatIsForgotten: a router forgot the connection, or the machine slept. The page connects again
// although neither side closed the connection.
func TestAConnectionThatIsForgotten(t *testing.T) {
	for _, tc := range []struct{ name, happens string }{
		{"the browser is online again", `window.dispatchEvent(new Event('online')); true`},
		{"the page is seen after a sleep", `{
			const now = Date.now;
			Date.now = () => now() + 60_000;
			document.dispatchEvent(new Event('visibilitychange', {bubbles: true}));
		} true`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, cluster()...)
			b.Open(b.url + "/volumes")
			b.Has("heading", "Log in to Longhorn")
			var done bool
			b.Evaluate(noChecks, &done)
			b.Type("textbox", "Token", "admin")
			b.Click("button", "Log in")
			b.Matches(".connection[data-state=open]")
			await(t, "a heartbeat", b.network.beat("/v1/ws/volumes"))
			b.network.forget()
			b.change(healthy("orders-db", 21)...)
			b.Evaluate(tc.happens, &done)
			b.Sees("21 GiB")
			b.change(healthy("orders-db", 22)...)
			b.Sees("22 GiB")
			b.Matches(".connection[data-state=open]")
		})
	}
}

// TestAnOlderAnswerDoesNotReplaceANewerList: the page cancels a read of the list when the stream brings a newer one.
func TestAnOlderAnswerDoesNotReplaceANewerList(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Matches(".connection[data-state=open]")
	old := b.network.delay("GET /v1/volumes")
	b.network.cut()
	await(t, "an answer", old.ready)
	b.change(healthy("orders-db", 21)...)
	b.network.mend()
	b.Sees("21 GiB")
	await(t, "the end of the read", old.left)
	b.Sees("21 GiB")
}

// TestFindingsThatAreOld: the page shows them with the time of the last successful read, and the error since then.
func TestFindingsThatAreOld(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/volumes/orders-queue")
	b.Has("region", "What needs attention")
	b.SeesNot("could not be read")
	b.network.fail("/v1/findings")
	b.change(healthy("orders-db", 21)...)
	b.Sees("Since then, findings could not be read: the proxy has a bad day")
	b.Matches(".finding")
}

// seenAgain makes the page believe that it was hidden and is visible again. It waits until the page has read the
// session of the login.
const seenAgain = `new Promise((done) => {
	const real = window.fetch, frame = (next) => requestAnimationFrame(next);
	window.fetch = async (...request) => {
		const answer = await real(...request);
		if (String(request[0]).endsWith('/v1/session')) frame(() => frame(() => frame(() => done(true))));
		return answer;
	};
	document.dispatchEvent(new Event('visibilitychange', {bubbles: true}));
})`

// TestALoginForgetsTheOneBefore: the page notices that a login has expired. The next user sees nothing that only the
// previous user could see.
func TestALoginForgetsTheOneBefore(t *testing.T) {
	b := newBench(t, append(cluster(), event("b", "Volume", "orders-db", "OtherEvent", 1))...)
	b.login("admin")
	b.Sees("OtherEvent of orders-db")
	b.access.revoked.Store("admin", true)
	var done bool
	b.Evaluate(seenAgain, &done)
	b.Has("heading", "Log in to Longhorn")
	b.Type("textbox", "Token", "operator")
	b.Click("button", "Log in")
	b.Sees(`Not shown: user "system:serviceaccount:default:operator" has no right to list events`)
	b.SeesNot("OtherEvent of orders-db")
}

// TestASessionThatHasEnded: the login page says so, and leads back to where the user was.
func TestASessionThatHasEnded(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.SeesNot("Your session has ended")
	b.Click("link", "Volumes")
	b.Click("link", "archive")
	b.Act("Actions on archive", "Number of replicas")
	b.Type("textbox", "Number of replicas", "2")
	// The API answers the click with 401. A request of the page's stream may get this answer first; then the button is
	// gone.
	var done bool
	b.Evaluate(`window.save = [...document.querySelectorAll("button")].find((b) => b.textContent === "Save"), Boolean(window.save)`, &done)
	b.access.revoked.Store("admin", true)
	b.Evaluate(`window.save.click(), true`, &done)
	b.Has("heading", "Log in to Longhorn")
	b.Sees("Your session has ended")
	b.Axe(root, "the login after a session")
	b.access.revoked.Delete("admin")
	b.Type("textbox", "Token", "admin")
	b.Click("button", "Log in")
	b.Has("heading", "archive")
	b.ExpectWrites()
}

// TestAnAddressWithoutAPage: the page says that the address does not exist, and has a link to the dashboard.
func TestAnAddressWithoutAPage(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Open(b.url + "/no/such/page")
	b.Has("heading", "This page does not exist")
	b.Sees("There is no page at the address /no/such/page.")
	b.Axe(root, "an address without a page")
	b.Click("link", "Go to the dashboard")
	b.Has("heading", "Dashboard")
}

// TestAReadOfTheLoginThatFails: the page and the typed text stay as they are.
func TestAReadOfTheLoginThatFails(t *testing.T) {
	b := newBench(t, cluster()...)
	b.login("admin")
	b.Click("link", "Volumes")
	b.Click("button", "Create volume")
	b.Type("textbox", "Name", "mine")
	failed := b.network.fail("/v1/session")
	var done bool
	b.Evaluate(seenAgain, &done)
	await(t, "a read of the login", failed)
	b.Click("button", "Create")
	b.HasNot("dialog", "Create volume")
	b.ExpectWrites("create volumes/mine")
}

// TestAPartThatFails: the part reports its error, and the rest of the page works. The user can retry the part.
func TestAPartThatFails(t *testing.T) {
	b := newBench(t, cluster()...)
	b.Tolerate("no dates")
	b.login("admin")
	b.Click("link", "Volumes")
	var done bool
	b.Evaluate(`window.dates = Intl.DateTimeFormat; Intl.DateTimeFormat = function () { throw new Error('no dates') }; true`, &done)
	b.Click("link", "archive")
	b.Has("heading", "This part of the page failed")
	b.Sees("Error: no dates")
	b.Axe(root, "a part that failed")
	b.Click("link", "Volumes")
	b.Click("link", "archive")
	b.Has("heading", "This part of the page failed")
	b.Evaluate(`Intl.DateTimeFormat = window.dates; true`, &done)
	b.Click("button", "Try again")
	b.Has("region", "Conditions")
}

// TestACommandIsSelectedWhereThePageMayNotCopy: copying is forbidden over plain HTTP, for example.
func TestACommandIsSelectedWhereThePageMayNotCopy(t *testing.T) {
	b := newBench(t)
	b.Open(b.url + "/")
	var done bool
	b.Evaluate(`Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true}); true`, &done)
	b.Click("button", "Copy the command")
	b.Sees("Selected: copy it with the keyboard")
	var selected string
	b.Evaluate(`getSelection().toString()`, &selected)
	assert.Equal(t, "kubectl -n longhorn-system create token ACCOUNT --audience longhorn-backend", selected)
}
