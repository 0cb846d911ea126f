package page

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/page/browser"
)

// network is the network between the browser and the daemon. It can close streams, silently drop their data, and delay
// or fail answers.
type network struct {
	mu       sync.Mutex
	isCut    bool                     // guarded by mu
	ends     chan struct{}            // guarded by mu; closed when cut closes the open streams
	silent   chan struct{}            // guarded by mu; closed when forget makes the open streams silent
	beats    map[string]chan struct{} // guarded by mu; by path; closed at the first heartbeat
	delays   map[string]*delayed      // guarded by mu; by method and path
	failures map[string]chan struct{} // guarded by mu; by path; gets an element for each request
}

func newNetwork() *network {
	return &network{ends: make(chan struct{}), silent: make(chan struct{}), beats: map[string]chan struct{}{}, delays: map[string]*delayed{}, failures: map[string]chan struct{}{}}
}

func isStream(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/v1/ws/") }

// cut closes all streams, and accepts none until the network works again.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = true
	close(n.ends)
}

func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut, n.ends = false, make(chan struct{})
}

// forget leaves the open streams open, but drops everything that is written to them from now on.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.silent)
	n.silent = make(chan struct{})
}

// beat returns a channel that is closed when a stream has sent a heartbeat.
func (n *network) beat(path string) chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.beats[path] == nil {
		n.beats[path] = make(chan struct{})
	}
	return n.beats[path]
}

// delayed is an answer that is ready but not sent yet.
type delayed struct {
	ready chan struct{} // closed when the answer is ready
	left  chan struct{} // closed when the page has cancelled its request
	gives chan struct{} // closed when the answer may be sent
}

func (d *delayed) give() { close(d.gives) }

// delay holds back the answer to the next request of a method and path.
func (n *network) delay(request string) *delayed {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := &delayed{ready: make(chan struct{}), left: make(chan struct{}), gives: make(chan struct{})}
	n.delays[request] = d
	return d
}

// fail answers reads of a path with an error from now on, and reports each read in failed.
func (n *network) fail(path string) (failed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures[path] = make(chan struct{}, 1000)
	return n.failures[path]
}

func (n *network) over(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isStream(r) {
			n.stream(next, w, r)
			return
		}
		n.mu.Lock()
		request := r.Method + " " + r.URL.Path
		late, fails := n.delays[request], n.failures[r.URL.Path]
		delete(n.delays, request)
		n.mu.Unlock()
		switch {
		case fails != nil && r.Method == http.MethodGet:
			http.Error(w, "the proxy has a bad day", http.StatusInternalServerError)
			fails <- struct{}{}
		case late != nil:
			late.serve(next, w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (d *delayed) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	close(d.ready)
	select {
	case <-d.gives:
	case <-r.Context().Done():
		close(d.left)
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w) // the page may be gone
}

// stream serves a stream until the network is cut.
func (n *network) stream(next http.Handler, w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	isCut, ends, silent := n.isCut, n.ends, n.silent
	n.mu.Unlock()
	if isCut {
		http.Error(w, "cut", http.StatusBadGateway)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() { // returns when the request ends
		select {
		case <-ends:
			cancel()
		case <-ctx.Done():
		}
	}()
	beat := n.beat(r.URL.Path)
	var once sync.Once
	next.ServeHTTP(&hijackable{w, silent, func() { once.Do(func() { n.began(beat) }) }}, r.WithContext(ctx))
}

// began closes beat, unless another stream of the path has closed it.
func (n *network) began(beat chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-beat:
	default:
		close(beat)
	}
}

// hijackable returns a connection that can become silent.
type hijackable struct {
	http.ResponseWriter
	silent <-chan struct{}
	beat   func()
}

// Hijack implements http.Hijacker.
func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffers, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	f := &forgotten{Conn: c, of: h}
	buffers.Writer.Reset(f)
	return f, buffers, nil
}

// forgotten is a connection that a router forgets: written data is lost, and neither side gets an error.
type forgotten struct {
	net.Conn
	of *hijackable
}

func (c *forgotten) Write(p []byte) (int, error) {
	select {
	case <-c.of.silent:
		return len(p), nil
	default:
	}
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte(`"heartbeat"`)) {
		c.of.beat()
	}
	return n, err
}

// await waits until something has happened.
func await(t testing.TB, what string, happened <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browser.Patience)
	defer cancel()
	select {
	case <-happened:
	case <-ctx.Done():
		require.FailNow(t, what+" did not come")
	}
}
