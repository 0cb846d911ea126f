package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections a daemon has; see quota for the share of one address. A probe of the
	// kubelet needs one.
	maxConnections = 1024
	// firstByteTimeout is how long a client that has connected may send nothing.
	firstByteTimeout = 10 * time.Second
)

// tlsHandshake is the first byte of every TLS connection (RFC 8446 section 5.1, ContentType handshake). No HTTP request
// starts with it.
const tlsHandshake = 22

// Listener accepts TLS and plain connections on one port. It distinguishes them by the first byte that a client sends:
// probes, and clients of a release without TLS, use plain HTTP there. Listener does not decide whether plain requests
// are answered; a Guard does.
type Listener struct {
	net.Listener
	config    *tls.Config
	firstByte time.Duration

	accepted chan net.Conn
	failed   chan error
	closed   chan struct{}
	close    sync.Once

	quota   *quota
	mu      sync.Mutex
	pending map[net.Conn]struct{} // guarded by mu; the connections that have sent nothing yet
	workers sync.WaitGroup
}

// NewListener takes over inner. The Listener must be closed, which also closes connections that have sent nothing yet.
func NewListener(inner net.Listener, config *tls.Config) *Listener {
	l := &Listener{
		Listener: inner, config: config, firstByte: firstByteTimeout,
		accepted: make(chan net.Conn), failed: make(chan error, 1), closed: make(chan struct{}),
		quota: newQuota(maxConnections), pending: map[net.Conn]struct{}{},
	}
	l.workers.Go(l.run)
	return l
}

// Accept returns the next connection that has sent a byte; a *tls.Conn if the byte starts a TLS handshake.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case err := <-l.failed:
		l.failed <- err // every later call fails too
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting and waits for the goroutines of the Listener. Connections that Accept returned stay open.
func (l *Listener) Close() (err error) {
	l.close.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
		for _, conn := range l.pendingConns() {
			_ = conn.Close()
		}
	})
	l.workers.Wait()
	return err
}

// run accepts connections until the inner listener fails.
func (l *Listener) run() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if t, ok := err.(interface{ Temporary() bool }); ok && t.Temporary() && l.pause() { //nolint:staticcheck // EMFILE: as net/http does
				continue
			}
			l.failed <- err
			return
		}
		from := sourceOf(conn.RemoteAddr().String())
		if ok, _ := l.quota.acquire(from); !ok {
			_ = conn.Close()
			continue
		}
		l.workers.Go(func() { l.detectTLS(&countedConn{Conn: conn, release: func() { l.quota.release(from) }}) })
	}
}

// acceptPause is how long a listener that has no descriptor for a connection waits for one.
const acceptPause = 100 * time.Millisecond

// pause waits; it returns false if the listener is closed during the wait.
func (l *Listener) pause() bool {
	timer := time.NewTimer(acceptPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// detectTLS waits for the first byte and passes the connection to Accept.
func (l *Listener) detectTLS(conn *countedConn) {
	if !l.addPending(conn) {
		_ = conn.Close()
		return
	}
	// The next reader sets its own deadline: net/http does.
	reader := bufio.NewReaderSize(conn, 16)
	err := conn.SetReadDeadline(time.Now().Add(l.firstByte))
	var first []byte
	if err == nil {
		first, err = reader.Peek(1)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	l.removePending(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	var out net.Conn = &peekedConn{Conn: conn, reader: reader}
	if first[0] == tlsHandshake {
		out = tls.Server(out, l.config)
	}
	select {
	case l.accepted <- out:
	case <-l.closed:
		_ = conn.Close()
	}
}

// pendingConns returns the connections that Close must close.
func (l *Listener) pendingConns() []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.pending))
}

// addPending records a connection that Close must close; false: the listener is closed.
func (l *Listener) addPending(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
		l.pending[conn] = struct{}{}
		return true
	}
}

func (l *Listener) removePending(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, conn)
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *countedConn) Close() error {
	c.once.Do(c.release)
	return c.Conn.Close()
}

// peekedConn is a connection whose first bytes were already read into a buffer.
type peekedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (p *peekedConn) Read(b []byte) (int, error) { return p.reader.Read(b) }

// Certificates returns a daemon's certificate for each TLS handshake.
type Certificates func(ctx context.Context) (*tls.Certificate, error)

// ServerTLS returns the TLS configuration of a daemon.
func ServerTLS(certificates Certificates) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // so the limits of connections also limit requests
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return certificates(hello.Context()) },
	}
}
