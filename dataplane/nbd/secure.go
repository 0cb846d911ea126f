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

// TLS is begun by the protocol's own option, and the peers then prove the volume's secret to each other over what only the two ends of
// one TLS connection have in common (see auth.go). So certificates vouch for nothing, and no one issues or keeps any: a server makes one
// at its start, because TLS cannot do without, and forgets its key when it ends. Every connection has keys of its own.

// exporterLabel names the channel binding of RFC 9266, which has bindingLen bytes.
const (
	exporterLabel = "EXPORTER-Channel-Binding"
	bindingLen    = 32
)

// tlsRules are what both sides want: one version, no resumption, and records as long as may be, which bulk data need and a lone request
// does not notice.
func tlsRules() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true}
}

// newServerTLS returns the configuration of one server, with a key that was made for it.
func newServerTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for TLS: %w", err)
	}
	// Nobody reads what it says.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for TLS: %w", err)
	}
	c := tlsRules()
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}
	return c, nil
}

// newClientTLS returns the configuration of a client.
func newClientTLS() *tls.Config {
	c := tlsRules()
	c.InsecureSkipVerify = true // the certificate says nothing; the server proves the secret before anything is said to it
	return c
}

// secureConn is one end of a TLS connection over another connection. Its deadlines, addresses and Close are those of the other: a
// connection is closed without TLS's word for it, for nothing is concluded from how it ends.
//
// Reads must come from one goroutine, and writes from one at a time. Beneath it no write blocks while it holds, see hold.
type secureConn struct {
	net.Conn // beneath
	tls      *tls.Conn
	records  *recordConn
	binding  []byte // which this connection has in common with its other end alone
	plain    []byte // room to gather what becomes one record
}

// newSecureConn performs a handshake over conn, of which in is the source. It ends with the deadline of conn, or when that is closed.
func newSecureConn(conn net.Conn, in source, wrap func(net.Conn) *tls.Conn) (*secureConn, error) {
	if in.Buffered() > 0 {
		return nil, fmt.Errorf("%w: %d bytes came before the TLS handshake", ErrProtocol, in.Buffered())
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

// Read implements net.Conn. It returns what is left of one record, at most.
func (s *secureConn) Read(p []byte) (int, error) { return s.tls.Read(p) }

// Write implements net.Conn, for handshakes; it sends at once, and must not be called after hold.
func (s *secureConn) Write(p []byte) (int, error) { return s.tls.Write(p) }

// hold has all records kept from now on until they are taken.
func (s *secureConn) hold() { s.records.hold() }

const (
	// maxRecord is the most, in bytes, that one record carries.
	maxRecord = 16 << 10
	// maxSeal is how much is sealed before it is sent, in bytes.
	maxSeal = 8 * maxRecord
)

// seal makes records of parts, one after the other, and calls full whenever at least maxSeal bytes are held. Parts are read and not kept.
// Small parts share a record.
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

// recordConn is what the TLS layer reads and writes. Once it holds, its Write keeps what it is given: so what is to be sent is sealed
// without blocking, and leaves with few system calls.
type recordConn struct {
	net.Conn
	in source

	mu    sync.Mutex
	holds bool    // guarded by mu
	held  *[]byte // guarded by mu; nil: nothing. The reader may add to it too: TLS answers some of what it reads
}

var heldPool = sync.Pool{New: func() any { b := make([]byte, 0, maxSeal+8*maxRecordOverhead+maxRecord); return &b }}

// maxRecordOverhead is how much longer a record is than what it carries, in bytes; TLS 1.3 with any of its ciphers needs less.
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

// take returns what is held, which must be given to giveBack once it was sent; nil: nothing is.
func (r *recordConn) take() *[]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.held
	r.held = nil
	return b
}

// giveBack takes a buffer back that take has returned.
func giveBack(b *[]byte) {
	*b = (*b)[:0]
	heldPool.Put(b)
}

// Close implements net.Conn; the TLS layer never calls it, for it is never closed itself.
func (r *recordConn) Close() error { return r.Conn.Close() }

// serverTLS makes the configuration of a server when it is needed first.
type serverTLS struct {
	once   sync.Once
	config *tls.Config
	err    error
}

func (t *serverTLS) get() (*tls.Config, error) {
	t.once.Do(func() { t.config, t.err = newServerTLS() })
	return t.config, t.err
}
