package nbd

import (
	"net"
	"sync"
)

// DeviceFlags are the transmission flags of an export from which the kernel's client creates a block device.
const DeviceFlags = txHasFlags | txFlush | txFUA | txTrim

// ServeExport serves one connection to a peer that needs no handshake: this process gave the peer its end. The kernel
// is an example. ServeExport returns when the connection has ended and all requests have been answered. It takes conn
// over and closes it. Its replies are simple replies.
func (s *Server) ServeExport(conn net.Conn, e *Export) {
	c := s.admit(conn)
	if c == nil {
		return
	}
	s.unproved.leave(&c.unproved)
	defer s.forget(c)
	defer conn.Close()
	c.transmit(e, false, false)
}

// readLate performs a read of a Backend that may leave the read in a disk which hangs. It reports whether the reply was
// left to another goroutine. Then the reply is sent when the data come from elsewhere, and the disk keeps the buffer
// until it answers.
func (t *task) readLate(r LateReader) (left bool) {
	c := t.conn
	l := &lateRead{conn: c, cookie: t.request.Cookie, weight: t.weight}
	left, err := r.ReadLate(c.server.base, t.buf.data, int64(t.request.Offset), l.answer)
	if !left {
		t.err = err
		return false
	}
	t.buf.release()
	*t = task{extra: t.extra[:0]}
	taskPool.Put(t)
	return true
}

// lateRead answers a read instead of its task.
type lateRead struct {
	conn   *serverConn
	cookie uint64
	weight int64
	once   sync.Once
	head   [simpleLen]byte
}

func (l *lateRead) answer(got []byte, err error) {
	l.once.Do(func() {
		f := frame{head: l.head[:], owner: l}
		reply := simpleReply{Cookie: l.cookie}
		if err != nil {
			reply.Errno, _ = wireError(err)
		} else {
			f.payload = got
		}
		reply.encode(l.head[:])
		l.conn.out.send(f)
	})
}

// frameDone implements frameOwner.
func (l *lateRead) frameDone(sendResult) {
	l.conn.slots.Release(1)
	l.conn.room.Release(l.weight)
	l.conn.tasks.Done()
}
