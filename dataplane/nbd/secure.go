package nbd

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"sync"
)

// TLS starts by the protocol's own option. The peers then prove the volume's secret to each other over a value that
// only the two ends of one TLS connection share (see auth.go). So certificates prove nothing, and no certificate is
// issued or stored. A server creates a certificate at its start, because TLS requires one, and forgets its key when it
// exits. Every connection has its own keys.

// exporterLabel is the name of the channel binding of RFC 9266, which has bindingLen bytes.
const (
	exporterLabel = "EXPORTER-Channel-Binding"
	bindingLen    = 32
)

// tlsRules is the configuration of both sides: one version, no resumption, and records of the maximum length. Bulk data
// needs long records, and they do not slow down a single request.
func tlsRules() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true}
}

// newServerTLS returns the configuration of one server, with a key that is created for it.
func newServerTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create a key for TLS: %w", err)
	}
	// No peer reads the content of the certificate.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("create a certificate for TLS: %w", err)
	}
	c := tlsRules()
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}
	return c, nil
}

// newClientTLS returns the configuration of a client.
func newClientTLS() *tls.Config {
	c := tlsRules()
	// The certificate proves nothing; the server proves the secret before the client sends anything else.
	c.InsecureSkipVerify = true
	return c
}

// secureConn is one end of a TLS connection over another connection. Its deadlines, addresses and Close are those of
// the underlying connection. It is closed without TLS's close message, because nothing is concluded from the way in
// which it ends.
//
// Reads must come from one goroutine, and writes from one at a time. While it holds records, no write blocks in the
// underlying connection, see hold.
type secureConn struct {
	net.Conn // the underlying connection
	tls      *tls.Conn
	records  *recordConn
	binding  []byte // a value that only this connection and its other end share
	plain    []byte // room to collect the content of one record
}

// newSecureConn performs a handshake over conn; in is the source of conn. The handshake ends with the deadline of conn,
// or when conn is closed.
func newSecureConn(conn net.Conn, in source, wrap func(net.Conn) *tls.Conn) (*secureConn, error) {
	if in.Buffered() > 0 {
		return nil, fmt.Errorf("%w: %d bytes arrived before the TLS handshake", ErrProtocol, in.Buffered())
	}
	records := &recordConn{Conn: conn, in: in}
	s := &secureConn{Conn: conn, tls: wrap(records), records: records}
	if err := s.tls.Handshake(); err != nil { //nolint:noctx // the deadline of conn, or its end, ends it
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	state := s.tls.ConnectionState()
	if state.Version != tls.VersionTLS13 {
		return nil, fmt.Errorf("%w: TLS version %#x", ErrProtocol, state.Version)
	}
	var err error
	if s.binding, err = state.ExportKeyingMaterial(exporterLabel, nil, bindingLen); err != nil {
		return nil, fmt.Errorf("bind to the TLS connection: %w", err)
	}
	return s, nil
}

// Read implements net.Conn. It returns at most the rest of one record.
func (s *secureConn) Read(p []byte) (int, error) { return s.tls.Read(p) }

// Write implements net.Conn, for handshakes. It sends at once, and must not be called after hold.
func (s *secureConn) Write(p []byte) (int, error) { return s.tls.Write(p) }

// hold makes the connection keep all records from now on, until they are taken.
func (s *secureConn) hold() { s.records.hold() }

const (
	// maxRecord is the maximum content of one record, in bytes.
	maxRecord = 16 << 10
	// maxSeal is the number of bytes that are sealed before they are sent.
	maxSeal = 8 * maxRecord
)

// seal turns parts into records, one after the other. It calls full whenever at least maxSeal bytes are held. It reads
// the parts and does not keep them. Small parts share a record.
func (s *secureConn) seal(parts [][]byte, full func() error) error {
	if s.plain == nil {
		s.plain = make([]byte, 0, maxRecord)
	}
	defer func() { s.plain = s.plain[:0] }()
	for _, part := range parts {
		for len(part) > 0 {
			n := min(len(part), maxSeal)
			if len(s.plain) == 0 && n >= maxRecord {
				n -= n % maxRecord
				if err := s.sealPlain(part[:n], full); err != nil {
					return err
				}
				part = part[n:]
				continue
			}
			n = min(n, maxRecord-len(s.plain))
			s.plain, part = append(s.plain, part[:n]...), part[n:]
			if len(s.plain) == maxRecord {
				if err := s.sealPlain(s.plain, full); err != nil {
					return err
				}
				s.plain = s.plain[:0]
			}
		}
	}
	if len(s.plain) == 0 {
		return nil
	}
	return s.sealPlain(s.plain, full)
}

func (s *secureConn) sealPlain(p []byte, full func() error) error {
	if _, err := s.tls.Write(p); err != nil {
		return err
	}
	if s.records.heldBytes() < maxSeal {
		return nil
	}
	return full()
}

// recordConn is the connection that the TLS layer reads and writes. After hold, its Write keeps the records. So data is
// sealed without blocking, and is sent with few system calls.
type recordConn struct {
	net.Conn
	in source

	mu    sync.Mutex
	holds bool    // guarded by mu
	held  *[]byte // guarded by mu; nil if empty. The reader may add to it too: TLS answers some of the records
}

var heldPool = sync.Pool{New: func() any { b := make([]byte, 0, maxSeal+8*maxRecordOverhead+maxRecord); return &b }}

// maxRecordOverhead is the difference in bytes between the length of a record and its content. TLS 1.3 needs less with
// any of its ciphers.
const maxRecordOverhead = 32

// Read implements net.Conn.
func (r *recordConn) Read(p []byte) (int, error) { return r.in.Read(p) }

// Write implements net.Conn.
func (r *recordConn) Write(p []byte) (int, error) {
	r.mu.Lock()
	if !r.holds {
		r.mu.Unlock()
		return r.Conn.Write(p)
	}
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = heldPool.Get().(*[]byte)
	}
	*r.held = append(*r.held, p...)
	return len(p), nil
}

func (r *recordConn) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = true
}

func (r *recordConn) heldBytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		return 0
	}
	return len(*r.held)
}

// take returns the held records, or nil. After sending them the caller must pass the buffer to putRecordBuffer.
func (r *recordConn) take() *[]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.held
	r.held = nil
	return b
}

// putRecordBuffer returns a buffer of take to the pool.
func putRecordBuffer(b *[]byte) {
	*b = (*b)[:0]
	heldPool.Put(b)
}

// Close implements net.Conn. The TLS layer never calls it, because that layer is never closed itself.
func (r *recordConn) Close() error { return r.Conn.Close() }

// serverTLS creates the configuration of a server when it is first needed.
type serverTLS struct {
	once   sync.Once
	config *tls.Config
	err    error
}

func (t *serverTLS) get() (*tls.Config, error) {
	t.once.Do(func() { t.config, t.err = newServerTLS() })
	return t.config, t.err
}
