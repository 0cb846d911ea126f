package nbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// ServerOptions tune a Server. The zero value serves without authentication, with the defaults named below.
type ServerOptions struct {
	// Secret returns the secret of an export and whether a peer must prove that it knows it. Nil means that no peer
	// must, and that the authentication option is not offered. Secret must answer for names that do not exist in the
	// same way as for names that exist.
	Secret func(export string) (secret []byte, required bool)
	// Secrets returns all values that Secret returns for existing exports, in any order. Peers may start TLS, and prove
	// one of these secrets over it. Nil means that TLS is not offered. Secret must be set too.
	Secrets func() [][]byte
	// TLSOnly reports whether an export is opened over TLS only; nil means that no export is. It is called only after
	// the peer has proved the export's secret, if it must prove it. It is also called for names that do not exist.
	TLSOnly func(export string) bool
	// Log receives important events of connections; nil discards them.
	Log *logrus.Entry
	// MaxInFlight limits the unanswered requests of one connection; 128 if zero. Above it the server stops reading.
	MaxInFlight int64
	// MaxInFlightBytes limits the payload bytes held for one connection; 64 MiB if zero, and never under MaxPayload.
	MaxInFlightBytes int64
	// HandshakeTimeout limits the time from accept to the end of negotiation, without the time that the Exporter takes
	// for Open; 5 s if zero.
	HandshakeTimeout time.Duration
	// CutGrace is how long Shutdown still waits for Backends to return after its context is done; 1 s if zero.
	CutGrace time.Duration
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.Log == nil {
		o.Log = discardLog()
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 128
	}
	if o.MaxInFlightBytes <= 0 {
		o.MaxInFlightBytes = 64 << 20
	}
	o.MaxInFlightBytes = max(o.MaxInFlightBytes, MaxPayload)
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 5 * time.Second
	}
	if o.CutGrace <= 0 {
		o.CutGrace = time.Second
	}
	return o
}

func discardLog() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// Server serves the exports of an Exporter. It may serve several listeners. The caller of NewServer must call Shutdown.
type Server struct {
	exporter Exporter
	opts     ServerOptions

	// base is the parent of the context of every Backend call. abort cancels it when the context of Shutdown is done.
	base  context.Context
	abort context.CancelFunc

	tls      *serverTLS    // nil if not offered
	unproved unprovedConns // the members of conns that have proved no secret
	sparse   *sparseLog    // for messages that a peer can cause before it has an export
	inside   atomic.Int64  // requests in their Backend

	lastWriteTimeout time.Duration // the constant, except in tests

	mu        sync.Mutex
	stopping  bool                      // guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
	conns     map[*serverConn]struct{}  // guarded by mu
	empty     chan struct{}             // closed when stopping and conns is empty
}

// NewServer creates a Server that serves nothing yet.
func NewServer(e Exporter, opts ServerOptions) *Server {
	s := &Server{
		exporter: e, opts: opts.withDefaults(),
		unproved: unprovedConns{limit: maxUnproved}, sparse: newSparseLog(), lastWriteTimeout: lastWriteTimeout,
		listeners: map[net.Listener]struct{}{}, conns: map[*serverConn]struct{}{}, empty: make(chan struct{}),
	}
	if s.opts.Secrets != nil {
		s.tls = &serverTLS{}
	}
	s.base, s.abort = context.WithCancel(context.Background())
	return s
}

// acceptRetry is the pause after an accept that failed because descriptors or memory were short.
const acceptRetry = 50 * time.Millisecond

// Serve accepts connections until ctx is done or Shutdown is called, and then returns nil. If the listener fails, it
// returns the error. It closes the listener. The accepted connections continue: only Shutdown ends them.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer l.Close()
	if !s.track(l) {
		return nil
	}
	defer s.untrack(l)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || s.isStopping() {
				return nil
			}
			if !isTransientAccept(err) {
				return fmt.Errorf("accept NBD connections on %s: %w", l.Addr(), err)
			}
			s.sparse.log(s.opts.Log.WithError(err), logrus.WarnLevel, "Accepting a connection failed; trying again")
			select {
			case <-time.After(acceptRetry):
			case <-ctx.Done():
			}
			continue
		}
		if c := s.admit(conn); c != nil {
			go c.serve()
		}
	}
}

// ServeConn serves one connection that the caller created. It returns when the connection has ended. It takes conn over
// and closes it.
func (s *Server) ServeConn(conn net.Conn) {
	if c := s.admit(conn); c != nil {
		c.serve()
	}
}

// Shutdown stops accepting. It waits until every request that was read has finished and is answered, closes all
// connections, and returns when the Closed of the last connection has been called.
//
// If ctx is done first, Shutdown closes the connections in their current state and cancels the contexts of Backend
// calls. It returns when these calls have returned, or after ServerOptions.CutGrace. Its error then wraps the error of
// ctx and counts the remaining calls. These calls belong only to the goroutines that are inside the Backend, or the
// Exporter. Their answers are dropped, and when the last call of a connection returns, its Closed is called. A call
// that never returns keeps its goroutine, its buffer and its export.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopping && len(s.conns) == 0 {
		close(s.empty)
	}
	s.stopping = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		c.stopReading()
	}
	s.mu.Unlock()
	defer s.abort()
	select {
	case <-s.empty:
		return nil
	default:
	}
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
	}
	s.cut()
	grace := time.NewTimer(s.opts.CutGrace)
	defer grace.Stop()
	select {
	case <-s.empty:
		return ctx.Err()
	case <-grace.C:
	}
	s.mu.Lock()
	left := len(s.conns)
	s.mu.Unlock()
	return fmt.Errorf("%w: %d connections did not end in time, with %d requests that their backends have not answered", ctx.Err(), left, s.inside.Load())
}

// cut ends all connections without waiting for anything. It closes them first. No answer may tell a client that its
// request was cancelled, because the request may have happened.
func (s *Server) cut() {
	s.mu.Lock()
	for c := range s.conns {
		_ = c.conn.Close()
	}
	s.mu.Unlock()
	s.abort()
}

// admit creates a serverConn for conn, or closes conn if the server is stopping.
func (s *Server) admit(conn net.Conn) *serverConn {
	tuneTCP(conn)
	c := newServerConn(s, conn)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		_ = conn.Close()
		return nil
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if s.unproved.enter(&c.unproved) {
		s.sparse.log(s.opts.Log, logrus.WarnLevel, "Closed an unauthenticated connection because there were too many")
	}
	return c
}

func (s *Server) forget(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.stopping && len(s.conns) == 0 {
		close(s.empty)
	}
}

func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) untrack(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func isTransientAccept(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
