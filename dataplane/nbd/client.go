package nbd

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// DialOptions tune a Client. The zero value is suitable for an export without authentication.
type DialOptions struct {
	// Secret, if not empty, is proved to the server before the export is opened. A server that does not offer
	// authentication is then refused, because it is not the intended server.
	Secret []byte
	// TLS sends the connection through TLS 1.3. Over it, client and server prove Secret to each other; it must not be
	// empty. The client refuses a server that does not do so, even if only an attacker in between makes it appear so.
	// TLS says nothing about the demands of the server.
	TLS bool
	// Timeout limits connecting and the handshake together; 10 s if zero.
	Timeout time.Duration
	// CancelGrace limits how long a cancelled request waits for the socket to release the caller's memory. After that
	// the client abandons the whole connection; 1 s if zero. See Client.
	CancelGrace time.Duration
	// CloseTimeout limits how long Close waits for the server to finish; 2 s if zero.
	CloseTimeout time.Duration
	// DialContext creates the connection. If it is nil, a net.Dialer does so.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Log receives the reason when the client abandons a connection; nil discards it.
	Log *logrus.Entry
}

func (o DialOptions) withDefaults() DialOptions {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.CancelGrace <= 0 {
		o.CancelGrace = time.Second
	}
	if o.CloseTimeout <= 0 {
		o.CloseTimeout = 2 * time.Second
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = discardLog()
	}
	return o
}

// ExportInfo is the description that the server gave when the export was opened.
type ExportInfo struct {
	Name, Description string
	Size              int64 // bytes
	ReadOnly          bool
	MultiConn         bool
	CanFlush          bool
	CanFUA            bool
	CanTrim           bool
	CanZero           bool
	Structured        bool      // replies are structured: errors have texts
	CanExtents        bool      // Extents asks the server; otherwise it reports everything as data
	BlockSize         BlockSize // Max is at most MaxPayload
}

// Client is one connection to one export, and a Backend. Any number of requests may be under way at once. The Client
// does not limit them, so callers should. A connection that failed stays failed: create another one.
//
// The context of a request may be done at any time. If no byte of the request was sent, the error wraps ErrNotSent and
// the context's error. Otherwise it wraps ErrUnknownOutcome and the context's error, and the reply is dropped when it
// comes. In both cases the caller's memory is not used after the return. The socket may hold that memory at this
// moment, half written or half filled. Then the call waits for the socket, for at most DialOptions.CancelGrace. After
// that the peer counts as stalled, and the client abandons the whole connection.
type Client struct {
	in        source
	opts      DialOptions
	info      ExportInfo
	limits    limits       // except the size
	size      atomic.Int64 // of the export
	statusID  uint32       // the server's number for base:allocation
	out       *sendQueue
	done      chan struct{} // closed when the connection is unusable
	reading   chan struct{} // closed when the reader has returned
	closeOnce sync.Once

	mu       sync.Mutex
	calls    map[uint64]*call // guarded by mu; unanswered requests, including abandoned ones
	cookie   uint64           // guarded by mu; of the last request
	closed   bool             // guarded by mu; Close was called
	err      error            // guarded by mu; set when done is closed
	toNotify *call            // guarded by mu; settled calls to notify when mu is released, see unlock
}

var _ Backend = (*Client)(nil)

// Dial connects to addr and opens exportName. If Dial fails, it has sent no request to the export, but the server may
// have opened and closed the export. The error wraps ErrUnknownExport, a *PolicyError or an *OptionError if the server
// sent that.
func Dial(ctx context.Context, network, addr, exportName string, opts DialOptions) (*Client, error) {
	opts = opts.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	conn, err := opts.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to NBD export %q: %w", exportName, err)
	}
	tuneTCP(conn)
	return NewClient(ctx, conn, exportName, opts)
}

// Describe requests the description of an export from a server without opening the export (NBD_OPT_INFO). A
// *PolicyError is the server's refusal.
func Describe(ctx context.Context, network, addr, exportName string, opts DialOptions) (ExportInfo, error) {
	opts = opts.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	conn, err := opts.DialContext(ctx, network, addr)
	if err != nil {
		return ExportInfo{}, fmt.Errorf("connect to NBD export %q: %w", exportName, err)
	}
	defer func() { _ = conn.Close() }()
	h := &clientHandshake{conn: conn, in: newSource(conn), name: exportName, secret: opts.Secret, tls: opts.TLS, describe: true}
	if err := h.runWithin(ctx); err != nil {
		return ExportInfo{}, fmt.Errorf("describe NBD export %q: %w", exportName, err)
	}
	return h.exportInfo(), nil
}

// NewClient is Dial on a connection that the caller created. It takes conn over, and closes it if it fails.
func NewClient(ctx context.Context, conn net.Conn, exportName string, opts DialOptions) (*Client, error) {
	opts = opts.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	h := &clientHandshake{conn: conn, in: newSource(conn), name: exportName, secret: opts.Secret, tls: opts.TLS}
	if err := h.runWithin(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open NBD export %q: %w", exportName, err)
	}
	c := &Client{
		in: h.in, opts: opts, info: h.exportInfo(), statusID: h.statusID,
		out: newSendQueue(h.conn), done: make(chan struct{}), reading: make(chan struct{}), calls: map[uint64]*call{},
	}
	c.limits = limits{
		readOnly: c.info.ReadOnly, blockMin: c.info.BlockSize.Min, maxPayload: c.info.BlockSize.Max,
		structured: c.info.Structured, blockStatus: c.info.CanExtents,
		control: c.info.Structured && !c.info.ReadOnly,
	}
	c.size.Store(c.info.Size)
	go c.readReplies()
	return c, nil
}

// Size returns the size of the export in bytes.
func (c *Client) Size() int64 { return c.size.Load() }

// Grow says that the export has become larger. The caller must know this from the server by other means
// (Export.SizeNow). Grow never makes the export smaller.
func (c *Client) Grow(size int64) {
	for {
		now := c.size.Load()
		if size <= now || c.size.CompareAndSwap(now, size) {
			return
		}
	}
}

// limitsNow returns the limits by which requests are checked.
func (c *Client) limitsNow() limits {
	l := c.limits
	l.size = uint64(c.size.Load())
	return l
}

// Info returns the server's description of the export.
func (c *Client) Info() ExportInfo { return c.info }

// Done returns a channel that is closed when the connection is unusable.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while the connection is usable. It returns ErrClosed after Close, and otherwise the reason for the
// loss.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close informs the server that no further request follows. It waits, up to DialOptions.CloseTimeout, until the server
// has answered the requests under way and closed the connection. A server of this package has then released the export.
// Requests that are still unanswered after that return ErrUnknownOutcome. Close always succeeds. It returns when every
// goroutine of the Client has exited: closing the socket makes them exit, whatever the peer does.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.sendDisconnect()
		timer := time.NewTimer(c.opts.CloseTimeout)
		defer timer.Stop()
		select {
		case <-c.reading:
		case <-timer.C:
		}
		c.fail(ErrClosed)
	})
	<-c.reading
	c.out.fail(ErrClosed) // a goroutine that failed the client in the meantime may not have done this yet
	c.out.wait()
	return nil
}

// Cut abandons the connection at once, for the given reason, and does not inform the server. Calls under way fail with
// ErrUnknownOutcome, or with ErrNotSent if no byte of them was sent. Later calls fail with ErrNotSent. Cut never
// blocks. The socket may be using the memory of a call at this moment: such a call fails as soon as the socket releases
// the memory, which Cut brings about.
//
// Cut itself may call the done of a WriteAsync, so its caller must not hold a lock that done takes. Close must be
// called as well; after Cut it does not wait for the server.
func (c *Client) Cut(cause error) { c.fail(cause) }

// sendDisconnect refuses further requests. It queues the DISC, unless the connection is already lost.
func (c *Client) sendDisconnect() {
	c.mu.Lock()
	c.closed = true
	lost := c.err != nil
	c.mu.Unlock()
	if !lost {
		head := make([]byte, requestLen)
		request{Type: cmdDisc}.encode(head)
		c.out.send(frame{head: head, owner: noOwner{}})
	}
}

// A frame that has no reply has this frameOwner.
type noOwner struct{}

func (noOwner) frameDone(sendResult) {}

// maxRange is the longest range, in bytes, of one trim, zero or block status request. Lengths have 32 bits on the wire.
const maxRange = 1 << 30

// ReadAt implements Backend. len(p) must be within Info().BlockSize.Max.
func (c *Client) ReadAt(ctx context.Context, p []byte, off int64) error {
	if len(p) > MaxPayload {
		return errorf(EINVAL, "a read of %d bytes exceeds the maximum of %d", len(p), MaxPayload)
	}
	_, err := c.do(ctx, request{Type: cmdRead, Offset: uint64(off), Length: uint32(len(p))}, p)
	return err
}

// WriteAt implements Backend. len(p) must be within Info().BlockSize.Max.
func (c *Client) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	if len(p) > MaxPayload {
		return errorf(EINVAL, "a write of %d bytes exceeds the maximum of %d", len(p), MaxPayload)
	}
	return c.durable(ctx, fua, func(flags uint16) error {
		_, err := c.do(ctx, request{Flags: flags, Type: cmdWrite, Offset: uint64(off), Length: uint32(len(p))}, p)
		return err
	})
}

// WriteAsync is WriteAt without waiting. Some goroutine, perhaps this one, calls done once, with the outcome. done must
// not block. The caller must not change p until then. WriteAsync never blocks in the socket, whatever the peer does. So
// one goroutine may send to several peers one after another, and no peer delays the others.
func (c *Client) WriteAsync(p []byte, off int64, fua bool, done func(error)) {
	if len(p) > MaxPayload {
		done(errorf(EINVAL, "a write of %d bytes exceeds the maximum of %d", len(p), MaxPayload))
		return
	}
	r := request{Type: cmdWrite, Offset: uint64(off), Length: uint32(len(p))}
	switch {
	case fua && !c.info.CanFUA:
		c.doAsync(r, p, func(err error) {
			if err != nil {
				done(err)
				return
			}
			c.flushAsync(done)
		})
		return
	case fua:
		r.Flags = cmdFlagFUA
	}
	c.doAsync(r, p, done)
}

// Flush implements Backend. On a read-only export that does not offer it, there is nothing to flush.
func (c *Client) Flush(ctx context.Context) error {
	if !c.info.CanFlush {
		if c.info.ReadOnly {
			return nil
		}
		return errorf(ENOTSUP, "the server does not offer flush")
	}
	_, err := c.do(ctx, request{Type: cmdFlush}, nil)
	return err
}

// flushAsync is Flush in the form that WriteAsync needs.
func (c *Client) flushAsync(done func(error)) {
	if !c.info.CanFlush {
		done(errorf(ENOTSUP, "the server does not offer flush"))
		return
	}
	c.doAsync(request{Type: cmdFlush}, nil, done)
}

// Trim implements Backend.
func (c *Client) Trim(ctx context.Context, off, length int64, fua bool) error {
	if !c.info.CanTrim && !c.info.ReadOnly {
		return errorf(ENOTSUP, "the server does not offer trim")
	}
	return c.durable(ctx, fua, func(flags uint16) error {
		return c.pieces(ctx, request{Flags: flags, Type: cmdTrim}, off, length)
	})
}

// Zero implements Backend.
func (c *Client) Zero(ctx context.Context, off, length int64, zf ZeroFlags) error {
	if !c.info.CanZero && !c.info.ReadOnly {
		return errorf(ENOTSUP, "the server does not offer write zeroes")
	}
	return c.durable(ctx, zf&ZeroFUA != 0, func(flags uint16) error {
		if zf&ZeroNoHole != 0 {
			flags |= cmdFlagNoHole
		}
		return c.pieces(ctx, request{Flags: flags, Type: cmdWriteZeroes}, off, length)
	})
}

// Extents implements Backend. One call is one request, so the result may cover less than a long range.
func (c *Client) Extents(ctx context.Context, off, length int64) ([]Extent, error) {
	if size := c.Size(); off < 0 || length <= 0 || off > size || length > size-off {
		return nil, errorf(EINVAL, "block status of %d bytes at offset %d exceeds the size of %d bytes", length, off, size)
	}
	if !c.info.CanExtents {
		return []Extent{{Offset: off, Length: length}}, nil
	}
	a, err := c.do(ctx, request{Type: cmdBlockStatus, Offset: uint64(off), Length: uint32(min(length, maxRange))}, nil)
	return a.extents, err
}

// durable performs a change with the FUA flag. If the server has no such flag, a flush follows the change.
func (c *Client) durable(ctx context.Context, fua bool, change func(flags uint16) error) error {
	var flags uint16
	if fua && c.info.CanFUA {
		flags = cmdFlagFUA
	}
	if err := change(flags); err != nil {
		return err
	}
	if fua && !c.info.CanFUA {
		return c.Flush(ctx)
	}
	return nil
}

// pieces performs r on a range of any length, in parts of at most maxRange. The whole range is checked before the first
// part is sent.
func (c *Client) pieces(ctx context.Context, r request, off, length int64) error {
	if size := c.Size(); off < 0 || length <= 0 || off > size || length > size-off {
		no := EINVAL
		if r.Type == cmdWriteZeroes {
			no = ENOSPC
		}
		return errorf(no, "%s of %d bytes at offset %d exceeds the size of %d bytes", r.Type, length, off, size)
	}
	for length > 0 {
		n := min(length, maxRange)
		r.Offset, r.Length = uint64(off), uint32(n)
		if _, err := c.do(ctx, r, nil); err != nil {
			return err
		}
		off, length = off+n, length-n
	}
	return nil
}
