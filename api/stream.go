package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/sirupsen/logrus"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/manager"
)

// The paths of streams: pathStreams, optionally a period, and then the path of a kind.
const (
	streamSegment = "ws"
	pathStreams   = "/v1/" + streamSegment + "/"
)

// Time intervals of a stream.
const (
	// defaultPeriod is the minimum time between two messages if the client sets none. maxPeriod is the longest that it
	// can set.
	defaultPeriod = time.Second
	maxPeriod     = 15 * time.Second
	// minPeriod is the shortest that a client can set.
	minPeriod = 100 * time.Millisecond
	// pingInterval is how often a client must prove that it is connected, and pongTimeout how long it may take.
	pingInterval = 15 * time.Second
	pongTimeout  = 10 * time.Second
	// heartbeatInterval is the time between two heartbeats.
	heartbeatInterval = 15 * time.Second
	// reviewInterval is how often a stream that has nothing to send checks whether its client still has the right to
	// read it. A stream that has something to send checks before each message.
	reviewInterval = 30 * time.Second
	// sendTimeout is how long a client may take to read one message.
	sendTimeout = 30 * time.Second
)

// queryHeartbeat in a stream's URL requests heartbeats. The page in a browser does so: it sees no pings, so a dead
// connection looks to it like a collection that does not change. Programs of Longhorn interpret every message as a
// collection, so only clients that request heartbeats get them.
const queryHeartbeat = "heartbeat"

// heartbeat is the message. The first one follows the first collection, so that the client knows that more heartbeats
// will come.
var heartbeat = []byte(`{"type":"heartbeat"}`)

// streams sends collections to clients over websockets. A client gets the whole collection at first and after each
// change of its bytes, at most once in a period. Clients that request heartbeats get these too.
//
//	informers ──► collectionFeed ──► stream, one per client: waits for the period, checks the client's right, sends
//
// A stream runs in the goroutine of its request. A second goroutine reads the client's pongs and its close message. A
// stream holds a message in memory only while it sends it. A client that does not read in time is disconnected.
type streams struct {
	feeds map[string]*collectionFeed // by the path of the kind; guarded by mu
	watch func(of manager.View, changed func()) (stop func(), err error)
	clock clock.Clock
	log   *logrus.Entry
	// sendTimeout is the constant, except in tests.
	sendTimeout time.Duration

	stopping chan struct{} // closed when all streams must end
	running  sync.WaitGroup
	mu       sync.Mutex
	stopped  bool // guarded by mu
}

func newStreams(d Deps) *streams {
	return &streams{
		feeds: map[string]*collectionFeed{}, watch: d.Manager.OnChange, clock: d.Clock, log: d.Log, sendTimeout: sendTimeout, stopping: make(chan struct{}),
	}
}

// close ends all streams, and returns when they have ended.
func (s *streams) close() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// start counts a stream; false: no stream is accepted any longer.
func (s *streams) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.running.Add(1)
	return true
}

func (s *streams) feedOf(k *kind) *collectionFeed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.feeds[k.path()]
	if !ok {
		f = newCollectionFeed(k, nil)
		if k.view != "" {
			f.watch = func(changed func()) (stop func(), err error) { return s.watch(k.view, changed) }
		}
		s.feeds[k.path()] = f
	}
	return f
}

// of answers the requests for streams of a kind. Every refusal that is possible is sent before the connection changes
// its protocol.
func (s *streams) of(k *kind) func(*http.Request) (reply, error) {
	return func(r *http.Request) (reply, error) {
		period, err := periodOf(r.PathValue("period"))
		if err != nil {
			return reply{}, err
		}
		if err := checkUpgrade(r); err != nil {
			return reply{}, err
		}
		return reply{http.StatusSwitchingProtocols, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, k, period) })}, nil
	}
}

// periodOf reads a period; the empty text is the default.
func periodOf(text string) (time.Duration, error) {
	if text == "" {
		return defaultPeriod, nil
	}
	period, err := time.ParseDuration(text)
	if err != nil || period <= 0 {
		return 0, &manager.Invalid{Field: "period", Value: fmt.Sprintf("%.40s", text), Rule: "must be a duration greater than 0, such as 5s"}
	}
	return min(max(period, minPeriod), maxPeriod), nil
}

// checkUpgrade refuses a request that is not for a websocket, and a request of a page of another origin. A browser also
// sends a user's cookies with a websocket request of such a page, and does not check whether the page may read the
// answer. A client that is not a browser sends no Origin.
func checkUpgrade(r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Method != http.MethodGet {
		return &refusal{http.StatusUpgradeRequired, "this path is a stream: read it over a websocket"}
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	origin, err := url.Parse(origins[0])
	if err == nil && len(origins) == 1 && origin.Host != "" && (strings.EqualFold(origin.Host, r.Host) || isOrigin(baseURL(r), origin)) {
		return nil
	}
	return errOtherOrigin
}

// isOrigin reports whether the origin has the scheme and host of the base URL. Behind a proxy, headers contain the
// scheme and host that the client used; a page cannot set these headers for a websocket.
func isOrigin(base string, origin *url.URL) bool {
	u, err := url.Parse(base)
	return err == nil && u.Scheme == origin.Scheme && strings.EqualFold(u.Host, withoutDefaultPort(origin.Scheme, origin.Host))
}

// serve sends until the client or the daemon ends the stream.
func (s *streams) serve(w http.ResponseWriter, r *http.Request, k *kind, period time.Duration) {
	if !s.start() {
		respond(w, r, &refusal{http.StatusServiceUnavailable, "the leader is changing; try again"})
		return
	}
	defer s.running.Done()
	changed := make(chan struct{}, 1)
	f := s.feedOf(k)
	leave, err := f.subscribe(changed)
	if err != nil {
		s.log.WithError(err).Error("the stream could not be opened")
		respond(w, r, &refusal{http.StatusInternalServerError, textFailed})
		return
	}
	defer leave()
	// checkUpgrade has checked the origin
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		s.log.WithError(err).Debug("the stream could not be opened") // Accept has answered
		return
	}
	t := &stream{
		conn: conn, feed: f, changed: changed, stopping: s.stopping, clock: s.clock,
		base: baseURL(r), period: period, sendsHeartbeats: r.URL.Query().Get(queryHeartbeat) == "true", sendTimeout: s.sendTimeout, review: reviewOf(r.Context()),
	}
	// Only pongs and the close message are read from clients.
	err = t.run(conn.CloseRead(r.Context()))
	end, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		end = websocket.CloseError{Code: websocket.StatusInternalError, Reason: "the stream failed; the logs of the longhorn-manager pods contain the cause"}
		s.log.WithError(err).WithField("path", r.URL.Path).Error("stream failed")
	}
	if end == clientGone {
		_ = conn.CloseNow()
		return
	}
	_ = conn.Close(end.Code, end.Reason)
}

// The reasons for which streams end.
var (
	// clientGone: the client has closed the stream, does not answer pings or does not read. It gets no close message.
	clientGone   = websocket.CloseError{Code: websocket.StatusNoStatusRcvd}
	endShutdown  = websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "the daemon is shutting down or is no longer the leader; connect again"}
	endRefused   = websocket.CloseError{Code: websocket.StatusPolicyViolation, Reason: "the token, or its right to list this collection, is no longer valid"}
	endUndecided = websocket.CloseError{Code: websocket.StatusTryAgainLater, Reason: "the Kubernetes API server could not check the token; try again"}
)

// stream is the stream of one client.
type stream struct {
	conn            *websocket.Conn
	feed            *collectionFeed
	changed         <-chan struct{}
	stopping        <-chan struct{}
	clock           clock.Clock
	base            string
	period          time.Duration
	sendsHeartbeats bool // the client asked for heartbeats
	review          func(context.Context) error

	sendTimeout time.Duration

	sum                                   [32]byte  // of the last message; zero: nothing was sent
	isDirty                               bool      // the collection may have changed since then
	sent, heartbeatSent, pinged, reviewed time.Time // the times of the last of each
}

// run always returns an error: a websocket.CloseError that says how the stream ends, or the reason why it cannot
// continue. ctx ends with the connection.
func (t *stream) run(ctx context.Context) error {
	// The end of the stream cancels all that it is doing.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := t.clock.Now()
	t.pinged, t.reviewed, t.isDirty = now, now, true
	timer := t.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return clientGone
		case <-t.stopping:
			return endShutdown
		case <-t.changed:
			t.isDirty = true
		case <-timer.C():
		}
		if err := t.runDueSteps(ctx); err != nil {
			if ctx.Err() != nil {
				return clientGone
			}
			return err
		}
		timer.Stop()
		timer.Reset(max(t.nextStep().Sub(t.clock.Now()), 0))
	}
}

// nextStep returns the time of the next step.
func (t *stream) nextStep() time.Time {
	at := t.pinged.Add(pingInterval)
	if review := t.reviewed.Add(reviewInterval); review.Before(at) {
		at = review
	}
	if beat := t.heartbeatSent.Add(heartbeatInterval); t.sendsHeartbeats && beat.Before(at) {
		at = beat
	}
	if send := t.sent.Add(t.period); t.isDirty && send.Before(at) {
		at = send
	}
	return at
}

// runDueSteps does the steps that are due now.
func (t *stream) runDueSteps(ctx context.Context) error {
	now := t.clock.Now()
	if t.isDirty && !now.Before(t.sent.Add(t.period)) {
		t.isDirty, t.sent = false, now
		if err := t.send(ctx); err != nil {
			return err
		}
	}
	if t.sendsHeartbeats && !now.Before(t.heartbeatSent.Add(heartbeatInterval)) {
		t.heartbeatSent = now
		if err := t.write(ctx, heartbeat); err != nil {
			return err
		}
	}
	if !now.Before(t.reviewed.Add(reviewInterval)) {
		if err := t.reviewAgain(ctx); err != nil {
			return err
		}
	}
	if !now.Before(t.pinged.Add(pingInterval)) {
		t.pinged = now
		return t.ping(ctx)
	}
	return nil
}

// send sends the collection, unless the client already has it. A client gets nothing while its right is not known.
func (t *stream) send(ctx context.Context) error {
	if err := t.reviewAgain(ctx); err != nil {
		return err
	}
	latest, err := t.feed.render(ctx, t.base)
	if err != nil || latest.sum == t.sum {
		return err
	}
	if err := t.write(ctx, latest.data); err != nil {
		return err
	}
	t.sum = latest.sum
	return nil
}

func (t *stream) write(ctx context.Context, message []byte) error {
	limited, cancel := context.WithTimeout(ctx, t.sendTimeout)
	defer cancel()
	if t.conn.Write(limited, websocket.MessageText, message) != nil {
		return clientGone
	}
	return nil
}

func (t *stream) ping(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, pongTimeout)
	defer cancel()
	if t.conn.Ping(limited) != nil {
		return clientGone
	}
	return nil
}

// reviewAgain repeats the review of the request that opened the stream.
func (t *stream) reviewAgain(ctx context.Context) error {
	t.reviewed = t.clock.Now()
	err := t.review(ctx)
	switch {
	case err == nil:
		return nil
	case isRefused(err):
		return endRefused
	}
	return endUndecided
}
