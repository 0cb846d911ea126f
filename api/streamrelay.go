package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// relays are the streams that a daemon which does not lead passes on from the leader. Each consists of two websockets.
// So this daemon disconnects a client that does not read, and each side learns why the other side closed. A message is
// copied piece by piece and is never in memory as a whole.
//
//	client ◄── websocket ── relay ◄── websocket ── stream of the leader, which checks the client's token
type relays struct {
	sendTimeout time.Duration // the constant, except in tests

	stopping chan struct{} // closed when all relays must end
	running  sync.WaitGroup
	mu       sync.Mutex
	stopped  bool // guarded by mu
}

func (s *relays) close() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *relays) start() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.running.Add(1)
	}
	return !s.stopped
}

func isStream(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, pathStreams) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// relayedHeaders are passed to the leader, in addition to the headers that rewrite adds. Each side has its own
// websocket headers.
var relayedHeaders = []string{
	"Accept", "Authorization", "Cookie", "Origin", "User-Agent", "X-Api-Request-Url", "X-Forwarded-Port",
}

// relay opens the stream at the leader, and then the client's stream.
func (f *Forwarder) relay(w http.ResponseWriter, r *http.Request, leader *url.URL) {
	if !f.relays.start() {
		respond(w, r, &refusal{http.StatusServiceUnavailable, "this daemon is shutting down; try again"})
		return
	}
	defer f.relays.running.Done()
	from, response, err := f.dial(r)
	if err != nil && response != nil && response.StatusCode != http.StatusSwitchingProtocols {
		copyResponse(w, response)
		return
	}
	if err != nil {
		f.proxy.ErrorHandler(w, r, err)
		return
	}
	defer func() { _ = from.CloseNow() }()
	// No message is in memory here, however long it is.
	from.SetReadLimit(-1)
	// The leader has checked the origin.
	to, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return // Accept has answered
	}
	end := f.relayMessages(to.CloseRead(r.Context()), to, from, leader)
	if end == clientGone {
		_ = to.CloseNow()
		return
	}
	_ = to.Close(end.Code, end.Reason)
}

// dial opens the stream at the leader with the parameters of the client's request.
func (f *Forwarder) dial(r *http.Request) (*websocket.Conn, *http.Response, error) {
	out := &http.Request{URL: new(url.URL), Header: http.Header{}}
	*out.URL = *r.URL
	for _, name := range relayedHeaders {
		if values := r.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	rewrite(&httputil.ProxyRequest{In: r, Out: out})
	return websocket.Dial(r.Context(), out.URL.String(), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: f.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		HTTPHeader: out.Header, Host: out.Host,
	})
}

// copyResponse answers with the leader's refusal.
func copyResponse(w http.ResponseWriter, response *http.Response) {
	for _, name := range []string{"Content-Type", "X-Api-Schemas", "X-Content-Type-Options", "Cache-Control", "Retry-After", "Www-Authenticate", "Upgrade", "Allow"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // the client may have disconnected
}

// lastWriteTimeout is how long the current write may take after the stream has ended. Without this time the write would
// be cancelled, which closes the connection, and the client would not learn the reason.
const lastWriteTimeout = time.Second

// relayMessages copies until one side closes, and returns how the client's side is closed. ctx ends with the client's
// connection.
func (f *Forwarder) relayMessages(ctx context.Context, to, from *websocket.Conn, leader *url.URL) websocket.CloseError {
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	copied := make(chan websocket.CloseError, 1)
	go func() { copied <- copyMessages(reading, writing, to, from, f.relays.sendTimeout) }()
	end, isCopied := f.waitForEnd(ctx, to, leader, copied)
	stopReading()
	if !isCopied {
		late := time.AfterFunc(lastWriteTimeout, stopWriting)
		defer late.Stop()
		<-copied //nolint:errcheck // the result is already known
	}
	return end
}

// waitForEnd waits for the end. Until then it checks that the client answers and that the leader still leads.
func (f *Forwarder) waitForEnd(ctx context.Context, to *websocket.Conn, leader *url.URL, copied <-chan websocket.CloseError) (end websocket.CloseError, isCopied bool) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		select {
		case end := <-copied:
			return end, true
		case <-ctx.Done():
			return clientGone, false
		case <-f.relays.stopping:
			return endShutdown, false
		case <-ticker.C:
		}
		if now, ok := f.leaderURL(); !ok || now != leader.String() {
			return endShutdown, false
		}
		limited, cancel := context.WithTimeout(ctx, pongTimeout)
		err := to.Ping(limited)
		cancel()
		if err != nil {
			return clientGone, false
		}
	}
}

// copyMessages copies from the leader to the client until one of them closes.
func copyMessages(reading, writing context.Context, to, from *websocket.Conn, timeout time.Duration) websocket.CloseError {
	for {
		kind, message, err := from.Reader(reading)
		if err != nil {
			return endOfLeader(reading, err)
		}
		if err := copyMessage(writing, to, kind, message, timeout); err != nil {
			if errors.Is(err, errClientWrite) {
				return clientGone
			}
			return endOfLeader(reading, err)
		}
	}
}

// errClientWrite: the client does not read, or has disconnected.
var errClientWrite = errors.New("send to the client")

func copyMessage(ctx context.Context, to *websocket.Conn, kind websocket.MessageType, message io.Reader, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	writer, err := to.Writer(ctx, kind)
	if err != nil {
		return errors.Join(errClientWrite, err)
	}
	if _, err := io.Copy(clientWriter{writer}, message); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return errors.Join(errClientWrite, err)
	}
	return nil
}

// clientWriter marks its errors, so that they can be distinguished from errors of reading.
type clientWriter struct{ io.Writer }

func (w clientWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		err = errors.Join(errClientWrite, err)
	}
	return n, err
}

// endOfLeader returns the close message to the client after the leader has closed a stream.
func endOfLeader(ctx context.Context, err error) websocket.CloseError {
	end, ok := errors.AsType[websocket.CloseError](err)
	switch {
	case ctx.Err() != nil:
		return clientGone
	case ok && end.Code != websocket.StatusNoStatusRcvd:
		return end
	}
	return endShutdown
}
