package page

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/test/page/browser"
	"github.com/longhorn-lep/longhorn-manager/ui"
)

// root is the root of the module.
const root = "../.."

// screenshots is the directory to which pictures of all pages are written. If it is empty, none are written.
var screenshots = flag.String("screenshots", "", "directory for pictures of all pages, dark and light (docs/images)")

// access knows four tokens: "admin", "reader", "operator" and "guest". The operator may do everything with Longhorn's
// objects and must not see Events. The guest may only see volumes.
type access struct{ revoked sync.Map } // by token

func (a *access) Authenticate(_ context.Context, token string) (api.Identity, error) {
	_, isRevoked := a.revoked.Load(token)
	if !isRevoked && slices.Contains([]string{"admin", "reader", "operator", "guest"}, token) {
		return api.Identity{User: "system:serviceaccount:default:" + token}, nil
	}
	return api.Identity{}, api.ErrUnauthenticated
}

func (*access) Allowed(_ context.Context, who api.Identity, what api.Attributes) (bool, error) {
	switch {
	case strings.HasSuffix(who.User, ":admin"):
		return true, nil
	case strings.HasSuffix(who.User, ":operator"):
		return what.Group != api.GroupCore, nil
	case strings.HasSuffix(who.User, ":guest"):
		return what.Resource == "volumes" && (what.Verb == "get" || what.Verb == "list"), nil
	}
	return what.Verb == "get" || what.Verb == "list", nil
}

// hastyClock lets every timer fire as soon as it is set: caches change only between requests.
type hastyClock struct{ *testclock.FakeClock }

func (c hastyClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// bench is the page of a cluster of fakes, and the browser of its user.
type bench struct {
	*testutil.Harness
	*browser.Browser
	url string
	mu  sync.Mutex // guards the caches and the API server of fakes

	readers readers
	network *network
	access  access
	daemons daemons
}

// toldEvents are Events whose changes are reported like those of the caches.
type toldEvents struct {
	manager.EventStore
	readers *readers
}

// OnChange implements manager.EventStore.
func (e toldEvents) OnChange(changed func()) (stop func(), err error) {
	return e.readers.OnChange(changed)
}

// readers are the open streams. The caches of fakes do not report changes, so tell does.
type readers struct {
	mu   sync.Mutex
	last int            // guarded by mu
	all  map[int]func() // guarded by mu
}

// OnChange implements manager.ChangeSource.
func (r *readers) OnChange(changed func(), _ ...datastore.Kind) (stop func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	id := r.last
	if r.all == nil {
		r.all = map[int]func(){}
	}
	r.all[id] = changed
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, id)
	}, nil
}

func (r *readers) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, changed := range r.all {
		changed()
	}
}

// newBench needs a built page and a browser. Without them the test is skipped, unless LONGHORN_PAGE=required.
func newBench(t *testing.T, objs ...runtime.Object) *bench {
	t.Helper()
	page, err := ui.New()
	require.NoError(t, err)
	missing := ""
	switch {
	case !page.Built():
		missing = "the page is not built; run scripts/ui.sh"
	case browser.Executable() == "":
		missing = "chromium is missing; run scripts/setup"
	}
	if missing != "" {
		if os.Getenv("LONGHORN_PAGE") == "required" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	h := testutil.New(t, objs...)
	b := &bench{Harness: h, network: newNetwork()}
	deps := manager.DepsOf(h.Datastore(datastore.Options{}), datastore.NewWorkloads(h.Kube), hastyClock{h.Clock}, h.Log)
	deps.Changes, deps.Events, deps.Daemons = &b.readers, toldEvents{deps.Events, &b.readers}, &b.daemons
	m := manager.New(deps)
	never := func() bool { return false }
	guard := api.NewGuard(&b.access, never, api.NewServer(api.Deps{Manager: m, Log: h.Log}), h.Log)
	server := httptest.NewUnstartedServer(b.network.over(api.NewBrowserGateway(&b.access, never, page, b.cached(guard), h.Log)))
	server.StartTLS()
	t.Cleanup(server.Close)
	b.url = server.URL
	b.Browser = browser.New(t, 1280, 800)
	b.SetClock(testutil.Now)
	t.Cleanup(b.ExpectNoFailures)
	return b
}

// cached lets each request see what earlier requests wrote. It does not lock for streams, because they wait for the
// caches.
func (b *bench) cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r) {
			next.ServeHTTP(w, r)
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		next.ServeHTTP(w, r)
		if r.Method != http.MethodGet {
			b.CatchUp()
			b.readers.tell()
		}
	})
}

// add creates objects, and lets the caches see them.
func (b *bench) add(objs ...runtime.Object) {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Seed(objs...)
	b.CatchUp()
	b.readers.tell()
}

// change writes objects as controllers would, and lets the caches see them.
func (b *bench) change(objs ...runtime.Object) {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Overwrite(objs...)
	b.CatchUp()
	b.readers.tell()
}

// login logs in with a token.
func (b *bench) login(token string) {
	b.T.Helper()
	b.Open(b.url + "/")
	b.Type("textbox", "Token", token)
	b.Click("button", "Log in")
	b.Has("heading", "Dashboard")
}

// now is for conditions that have changed recently.
var now = metav1.Time{Time: testutil.Now}.Format(time.RFC3339)

var created = testutil.Now.Add(-48 * time.Hour)
