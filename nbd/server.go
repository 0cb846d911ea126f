package nbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// ServerOptions tune a Server. The zero value serves without authentication, with the defaults named below.
type ServerOptions struct {
	// Secret returns the secret of an export and whether a peer must prove that it knows it. Nil means that nobody must, and that
	// the authentication option is not offered. It must answer for names that do not exist as it does for those that do.
	Secret func(export string) (secret []byte, required bool)
	// Log receives what is worth knowing of connections; nil discards it.
	Log *logrus.Entry
	// MaxInFlight bounds the requests that one connection may have unanswered; 128 if zero. Above it the server stops reading.
	MaxInFlight int64
	// MaxInFlightBytes bounds the payload bytes held for one connection; 64 MiB if zero, and never under MaxPayload.
	MaxInFlightBytes int64
	// HandshakeTimeout bounds the time from accept to the end of negotiation; 30 s if zero.
	HandshakeTimeout time.Duration
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
		o.HandshakeTimeout = 30 * time.Second
	}
	return o
}

func discardLog() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// Server serves the exports of an Exporter. It may serve several listeners. Whoever makes one must call Shutdown.
type Server struct {
	exporter Exporter
	opts     ServerOptions

	// base is the parent of every Backend call; abort cancels it when Shutdown loses patience.
	base  context.Context
	abort context.CancelFunc

	mu        sync.Mutex
	stopping  bool                      // guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
	conns     map[*serverConn]struct{}  // guarded by mu
	work      sync.WaitGroup            // one for each entry of conns; Add only under mu while not stopping
}

// NewServer makes a Server that serves nothing yet.
func NewServer(e Exporter, opts ServerOptions) *Server {
	s := &Server{
		exporter: e, opts: opts.withDefaults(),
		listeners: map[net.Listener]struct{}{}, conns: map[*serverConn]struct{}{},
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
			s.opts.Log.WithError(err).Warn("Accepting a connection did not work, trying again")
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
// last one's Closed has been called. When ctx ends first, it closes the connections as they are, cancels the contexts given to
// Backends, and still waits for the Backends to return; then it returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for c := range s.conns {
		c.stopReading()
	}
	s.mu.Unlock()

	var gaveUp error
	stop := context.AfterFunc(ctx, s.cut)
	s.work.Wait()
	if !stop() {
		gaveUp = ctx.Err()
	}
	s.abort()
	return gaveUp
}

// cut ends all connections without waiting for anything.
func (s *Server) cut() {
	s.abort()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.conn.Close()
	}
}

// admit makes a serverConn of conn, or closes it if the server is stopping.
func (s *Server) admit(conn net.Conn) *serverConn {
	tuneTCP(conn)
	c := newServerConn(s, conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = conn.Close()
		return nil
	}
	s.conns[c] = struct{}{}
	s.work.Add(1)
	return c
}

func (s *Server) forget(c *serverConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.work.Done()
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
