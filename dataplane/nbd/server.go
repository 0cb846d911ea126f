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
	// Secret returns the secret of an export and whether a peer must prove that it knows it. Nil means that no peer must, and that the
	// authentication option is not offered. It must answer for names that do not exist as it does for those that do.
	Secret func(export string) (secret []byte, required bool)
	// Secrets returns all that Secret returns of exports which exist, in any order. Peers may begin TLS, and prove one of them over it; nil
	// means that TLS is not offered. Secret must be set too.
	Secrets func() [][]byte
	// TLSOnly says whether an export is opened over TLS alone; nil: none is. It is asked only when the peer has proved the export's secret,
	// if it must, and about names that do not exist too.
	TLSOnly func(export string) bool
	// Log receives what is worth knowing of connections; nil discards it.
	Log *logrus.Entry
	// MaxInFlight bounds the requests that one connection may have unanswered; 128 if zero. Above it the server stops reading.
	MaxInFlight int64
	// MaxInFlightBytes bounds the payload bytes held for one connection; 64 MiB if zero, and never under MaxPayload.
	MaxInFlightBytes int64
	// HandshakeTimeout bounds the time from accept to the end of negotiation, less the time that the Exporter takes to open; 5 s if
	// zero.
	HandshakeTimeout time.Duration
	// CutGrace is how long Shutdown waits for Backends to return once it has run out of patience; 1 s if zero.
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

	// base is the parent of every Backend call; abort cancels it when Shutdown loses patience.
	base  context.Context
	abort context.CancelFunc

	tls    *serverTLS   // nil: not offered
	lobby  lobby        // those of conns that have proved no secret
	sparse *sparseLog   // for what a peer can have logged before it has an export
	inside atomic.Int64 // requests in their Backend

	farewell time.Duration // the constant, except in tests

	mu        sync.Mutex
	stopping  bool                      // guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
	conns     map[*serverConn]struct{}  // guarded by mu
	empty     chan struct{}             // closed when stopping and conns is empty
}

// NewServer makes a Server that serves nothing yet.
func NewServer(e Exporter, opts ServerOptions) *Server {
	s := &Server{
		exporter: e, opts: opts.withDefaults(),
		lobby: lobby{places: maxUnproved}, sparse: newSparseLog(), farewell: farewell,
		listeners: map[net.Listener]struct{}{}, conns: map[*serverConn]struct{}{}, empty: make(chan struct{}),
	}
	if s.opts.Secrets != nil {
		s.tls = &serverTLS{}
	}
	s.base, s.abort = context.WithCancel(context.Background())
	return s
}

// acceptRetry is the pause after an accept that failed for want of descriptors or memory.
const acceptRetry = 50 * time.Millisecond

// Serve accepts connections until ctx is done or Shutdown is called, then returns nil; or until the listener fails, then returns
// why. It closes the listener. Connections it accepted go on: only Shutdown ends them.
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
				return fmt.Errorf("accept nbd connections on %s: %w", l.Addr(), err)
			}
			s.sparse.log(s.opts.Log.WithError(err), logrus.WarnLevel, "Accepting a connection did not work, trying again")
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

// ServeConn serves one connection that the caller made, and returns when it has ended. It takes conn over and closes it.
func (s *Server) ServeConn(conn net.Conn) {
	if c := s.admit(conn); c != nil {
		c.serve()
	}
}

// Shutdown stops accepting, lets every request that was read finish and be answered, closes all connections and returns when the
// last one's Closed has been called.
//
// When ctx ends first, it closes the connections as they are and cancels the contexts given to Backends. It returns when they have
// returned, or after ServerOptions.CutGrace, with an error that wraps ctx's and counts what is left behind. What is left behind
// belongs only to the goroutines that are inside the Backend, or the Exporter: their answers go nowhere, and when the last call of a
// connection returns its Closed is called. One that never returns keeps its goroutine, its buffer and its export.
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
	return fmt.Errorf("%w: left %d connections behind, with %d requests inside their backends", ctx.Err(), left, s.inside.Load())
}

// cut ends all connections without waiting for anything. They are closed first: no answer must tell a client that its request was
// cancelled, for it may have happened.
func (s *Server) cut() {
	s.mu.Lock()
	for c := range s.conns {
		_ = c.conn.Close()
	}
	s.mu.Unlock()
	s.abort()
}

// admit makes a serverConn of conn, or closes it if the server is stopping.
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
	if s.lobby.enter(&c.guest) {
		s.sparse.log(s.opts.Log, logrus.WarnLevel, "Cut a connection that had proved nothing, for there were too many")
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
