package nbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/semaphore"
)

// serverConn is one connection of a Server. One goroutine reads. Each request has one more goroutine until its reply is
// written.
//
//	reader:  header -> validate -> wait for room -> payload -> go handle
//	handle:  Backend -> reply into the send queue -> (written) -> room released
type serverConn struct {
	server   *Server
	conn     net.Conn
	in       source
	log      *logrus.Entry
	unproved unprovedConn // until the peer has proved a secret or has an export

	deadline time.Time // of the handshake

	mu      sync.Mutex
	stopped bool // guarded by mu; no read may wait any longer

	// Set once negotiation is over.
	export     *Export
	limits     limits
	structured bool
	out        *sendQueue
	slots      *semaphore.Weighted // requests
	room       *semaphore.Weighted // payload bytes
	tasks      sync.WaitGroup      // requests not yet answered
}

func newServerConn(s *Server, conn net.Conn) *serverConn {
	return &serverConn{
		unproved: unprovedConn{from: hostOf(conn.RemoteAddr()), cut: func() { _ = conn.Close() }},
		server:   s, conn: conn, in: newSource(conn), out: newSendQueue(conn),
		log:   s.opts.Log.WithField("remote", conn.RemoteAddr().String()),
		slots: semaphore.NewWeighted(s.opts.MaxInFlight), room: semaphore.NewWeighted(s.opts.MaxInFlightBytes),
	}
}

// stopReading makes the reader return as soon as it waits for the client.
func (c *serverConn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
}

// setDeadline sets the deadline of reads and writes, unless reading was stopped.
func (c *serverConn) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		_ = c.conn.SetDeadline(t)
	}
}

// serve runs the connection from the greeting to its end.
func (c *serverConn) serve() {
	defer c.server.forget(c)
	defer c.conn.Close()
	n, exp := c.negotiate()
	if exp == nil {
		return
	}
	if s, ok := n.conn.(*secureConn); ok {
		c.in, c.out = n.in, newSendQueue(s)
	}
	c.setDeadline(time.Time{})
	c.transmit(exp, n.structured, n.metaSet && n.metaFor == n.openedName)
}

// transmit serves requests until the connection ends.
func (c *serverConn) transmit(exp *Export, structured, blockStatus bool) {
	c.export, c.structured = exp, structured
	c.limits = exp.limits(structured, blockStatus)
	c.log = c.log.WithField("export", exp.Name)
	c.log.Debug("A connection opened an export")

	err := c.readRequests()
	c.out.limitWrites(c.server.lastWriteTimeout)
	c.tasks.Wait()
	c.out.wait()
	c.log.WithField("reason", c.out.explain(err)).Debug("A connection ended")
	if exp.Closed != nil {
		exp.Closed()
	}
}

// lastWriteTimeout limits each write of the remaining replies to a peer that can send no further request. A write to
// any other peer has no limit: the peer may be slow, and the memory that it can make the server hold is limited.
const lastWriteTimeout = 10 * time.Second

// negotiate runs the handshake. The export is nil if the peer opened none.
func (c *serverConn) negotiate() (*negotiator, *Export) {
	defer c.server.unproved.leave(&c.unproved)
	c.deadline = time.Now().Add(c.server.opts.HandshakeTimeout)
	c.setDeadline(c.deadline)
	n := &negotiator{
		exporter: c.server.exporter, conn: c.conn, in: c.in, log: c.log, sparse: c.server.sparse,
		auth: authenticator{secret: c.server.opts.Secret, secrets: c.server.opts.Secrets},
		tls:  c.server.tls, tlsOnly: c.server.opts.TLSOnly, drop: func() { _ = c.conn.Close() },
		proved: func() { c.server.unproved.leave(&c.unproved) },
		opened: func(took time.Duration) { // the peer cannot influence how long it took
			c.deadline = c.deadline.Add(took)
			c.setDeadline(c.deadline)
		},
	}
	exp, err := n.run(c.server.base)
	if err != nil && !errors.Is(err, errClientLeft) && !errors.Is(err, io.EOF) {
		c.server.sparse.log(c.log.WithError(err), logrus.DebugLevel, "A handshake ended without an export")
	}
	return n, exp
}

// readRequests reads until the client disconnects or breaks the protocol, or until the server stops. It returns the
// reason.
func (c *serverConn) readRequests() error {
	var head [requestLen]byte
	for {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		r, err := decodeRequest(head[:])
		if err != nil {
			return err
		}
		if r.Type == cmdDisc {
			return errClientLeft
		}
		if err := c.accept(r); err != nil {
			return err
		}
	}
}

// accept takes one request: it waits for room, reads the payload and starts the work. It allocates nothing for a
// payload before the request was found valid. The payload of an invalid request is read and dropped. If it is longer
// than any peer may send, the connection ends after the reply.
func (c *serverConn) accept(r request) error {
	if c.export.SizeNow != nil {
		c.limits.size = max(c.limits.size, uint64(c.export.SizeNow()))
	}
	invalid := validate(r, c.limits)
	t := taskPool.Get().(*task)
	t.conn, t.request = c, r
	if invalid != nil {
		t.err = invalid
	} else if r.Type == cmdRead || r.hasPayload() {
		t.weight = int64(r.Length)
	}
	if err := c.acquire(t.weight); err != nil {
		return err
	}
	c.tasks.Add(1)
	if t.weight > 0 {
		t.buf = getBuffer(int(t.weight))
	}
	var err error
	if r.hasPayload() {
		switch {
		case invalid == nil && t.buf == nil: // empty
		case invalid == nil:
			_, err = io.ReadFull(c.in, t.buf.data)
		case r.Length <= MaxPayload:
			_, err = c.in.Discard(int(r.Length))
		default:
			err = fmt.Errorf("%w: %s of %d bytes", ErrProtocol, r.Type, r.Length)
			t.handle()
			return err
		}
	}
	if err != nil { // cut in the middle of a payload: this was no request
		t.frameDone(frameUnsent)
		return fmt.Errorf("read the payload: %w", err)
	}
	go t.handle()
	return nil
}

// acquire waits for one slot and weight bytes. It returns early only when the server is cut. Room is always released:
// requests finish, and a reply that the peer does not read ends with the connection.
func (c *serverConn) acquire(weight int64) error {
	if err := c.slots.Acquire(c.server.base, 1); err != nil {
		return err
	}
	if weight == 0 {
		return nil
	}
	if err := c.room.Acquire(c.server.base, weight); err != nil {
		c.slots.Release(1)
		return err
	}
	return nil
}

// task is one request being served, with everything that it holds.
type task struct {
	conn    *serverConn
	request request
	buf     *buffer // of a read or write, otherwise nil
	weight  int64   // payload bytes taken from room
	err     error   // set before handle if the request is invalid
	head    [offsetDataLen]byte
	extra   []byte // payload of an error, block status or control chunk; its array is kept for the next use
}

var taskPool = sync.Pool{New: func() any { return new(task) }}

// handle performs the request and sends its reply.
func (t *task) handle() {
	if t.err == nil {
		s := t.conn.server
		s.inside.Add(1)
		late, ok := t.conn.export.Backend.(LateReader)
		left := false
		if ok && t.request.Type == cmdRead && !t.conn.structured {
			left = t.readLate(late)
		} else {
			t.err = t.perform(s.base)
		}
		s.inside.Add(-1)
		if left {
			return
		}
	}
	f := frame{owner: t}
	switch {
	case t.err != nil:
		f.head, f.payload = t.errorReply()
	case !t.conn.structured:
		simpleReply{Cookie: t.request.Cookie}.encode(t.head[:])
		f.head = t.head[:simpleLen]
		if t.request.Type == cmdRead {
			f.payload = t.buf.data
		}
	default:
		f.head, f.payload = t.structuredReply()
	}
	t.conn.out.send(f)
}

func (t *task) perform(ctx context.Context) error {
	r, b := t.request, t.conn.export.Backend
	off, length, fua := int64(r.Offset), int64(r.Length), r.Flags&cmdFlagFUA != 0
	switch r.Type {
	case cmdRead:
		return b.ReadAt(ctx, t.buf.data, off)
	case cmdWrite:
		return b.WriteAt(ctx, t.buf.data, off, fua)
	case cmdFlush:
		return b.Flush(ctx)
	case cmdTrim:
		return b.Trim(ctx, off, length, fua)
	case cmdWriteZeroes:
		var flags ZeroFlags
		if fua {
			flags |= ZeroFUA
		}
		if r.Flags&cmdFlagNoHole != 0 {
			flags |= ZeroNoHole
		}
		return b.Zero(ctx, off, length, flags)
	case cmdControl:
		return t.control(ctx)
	case cmdBlockStatus:
		extents, err := b.Extents(ctx, off, length)
		if err != nil {
			return err
		}
		if extents, err = clipExtents(extents, off, length, r.Flags&cmdFlagReqOne != 0); err != nil {
			t.conn.log.WithError(err).Error("BUG: a backend returned invalid extents of an export")
			return err
		}
		t.extra = appendStatusPayload(t.extra[:0], contextID, extents)
		return nil
	}
	panic("BUG: a request of an unknown type passed validation: " + r.Type.String())
}

func (t *task) structuredReply() (head, payload []byte) {
	c := chunk{Flags: chunkFlagDone, Cookie: t.request.Cookie}
	switch t.request.Type {
	case cmdRead:
		c.Type, c.Length = chunkOffsetData, 8+t.request.Length
		be.PutUint64(t.head[chunkLen:], t.request.Offset)
		c.encode(t.head[:])
		return t.head[:offsetDataLen], t.buf.data
	case cmdBlockStatus:
		c.Type, payload = chunkBlockStatus, t.extra
	case cmdControl:
		c.Type, payload = chunkControl, t.extra
	default:
		c.Type = chunkNone
	}
	c.Length = uint32(len(payload))
	c.encode(t.head[:])
	return t.head[:chunkLen], payload
}

func (t *task) errorReply() (head, payload []byte) {
	errno, text := wireError(t.err)
	if !t.conn.structured {
		simpleReply{Errno: errno, Cookie: t.request.Cookie}.encode(t.head[:])
		return t.head[:simpleLen], nil
	}
	t.extra = appendErrorPayload(t.extra[:0], errno, text)
	c := chunk{Flags: chunkFlagDone, Type: chunkError, Cookie: t.request.Cookie, Length: uint32(len(t.extra))}
	c.encode(t.head[:])
	return t.head[:chunkLen], t.extra
}

// frameDone releases everything that the request held. It no longer matters whether the reply was sent.
func (t *task) frameDone(sendResult) {
	c := t.conn
	if t.buf != nil {
		t.buf.release()
	}
	c.slots.Release(1)
	if t.weight > 0 {
		c.room.Release(t.weight)
	}
	extra := t.extra[:0]
	if cap(extra) > maxName {
		extra = nil
	}
	*t = task{extra: extra}
	taskPool.Put(t)
	c.tasks.Done()
}

// clipExtents checks a Backend's description of a range. It cuts the description to the part that may be sent.
func clipExtents(extents []Extent, off, length int64, one bool) ([]Extent, error) {
	if one && len(extents) > 1 {
		extents = extents[:1]
	}
	extents = extents[:min(len(extents), maxExtents)]
	end := off + length
	out := make([]Extent, 0, len(extents))
	for _, e := range extents {
		if off == end {
			break
		}
		if e.Offset != off || e.Length <= 0 {
			return nil, fmt.Errorf("extent of %d bytes at offset %d, expected an extent at offset %d: %w", e.Length, e.Offset, off, EIO)
		}
		e.Length = min(e.Length, end-off)
		out = append(out, e)
		off += e.Length
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no extent at offset %d: %w", off, EIO)
	}
	return out, nil
}
