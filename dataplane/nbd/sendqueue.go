package nbd

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// frame is one message to send: a header and sometimes a payload, which is not copied.
type frame struct {
	head, payload []byte
	owner         frameOwner
}

// size returns the number of bytes that are left to send.
func (f frame) size() int { return len(f.head) + len(f.payload) }

// after returns the rest of f after n bytes of it were sent.
func (f frame) after(n int) frame {
	fromHead := min(n, len(f.head))
	f.head, f.payload = f.head[fromHead:], f.payload[n-fromHead:]
	return f
}

// frameOwner learns the result of its frame by one call, without any lock held. After that the frame's bytes are no
// longer used.
type frameOwner interface {
	frameDone(f sendResult)
}

// sendResult is the outcome of a frame.
type sendResult int

const (
	frameSent   sendResult = iota // every byte was given to the kernel
	frameBroken                   // the connection failed while it was being written
	frameUnsent                   // the connection had failed before its first byte
)

// sendQueue writes frames to a connection, whole and one after another. No sender blocks in the socket:
//
//	send, socket free     the sender takes the socket, lets other goroutines run, and then offers frames to the kernel
//	                      in one system call that does not block: its own frame, and those that others left with it
//	                      in the meantime
//	  taken               the frames are done
//	  taken in part       the writer sends the rest first
//	  not taken           the frames are the first that wait
//	send, socket in use   the frame waits
//	frames wait, and the sender that has the socket has finished its turn   the writer starts
//
// Over TLS senders offer nothing: the writer seals and sends the waiting frames.
//
// The writer is a goroutine that may block. It sends the waiting frames, many with one system call, and exits when no
// frame waits. So an idle connection costs nothing, a single small request needs no switch of goroutines, and a busy
// connection needs few system calls per frame.
type sendQueue struct {
	conn    net.Conn
	secure  *secureConn     // nil: frames are sent unchanged; otherwise conn is the connection below it
	raw     syscall.RawConn // nil if conn cannot be written without blocking; then the writer sends everything
	watch   *peerWatch      // nil if the kernel cannot show whether the peer is alive
	writers sync.WaitGroup  // the writer; Add only under mu while not failed

	mu      sync.Mutex
	pending []frame // guarded by mu; no byte of them was sent
	writing bool    // guarded by mu; a sender or the writer has the socket, and owns the fields at the end
	failed  bool    // guarded by mu
	cause   error   // guarded by mu; the reason of the failure

	writeLimit atomic.Int64 // nanoseconds that one write may take, see limitWrites; 0: no limit

	batch   []frame // being sent; the first may have been sent in part
	vec     [][]byte
	bufs    net.Buffers
	yield   func() // lets other goroutines run, which may have frames to send
	offered func(fd uintptr) bool
	n       int
	err     error
}

// maxBatch is the payload, in bytes, after which a batch is closed. A frame's owner is informed only after the whole
// batch was sent.
const maxBatch = 256 << 10

func newSendQueue(conn net.Conn) *sendQueue {
	q := &sendQueue{conn: conn, yield: runtime.Gosched}
	if s, ok := conn.(*secureConn); ok {
		q.secure, q.conn = s, s.Conn
		s.hold()
	}
	raw := rawOf(q.conn)
	if raw == nil {
		return q
	}
	q.raw, q.offered = raw, q.writeOnce
	if _, ok := q.conn.(*net.TCPConn); ok {
		q.watch = newPeerWatch(raw, q.isWriting, q.fail)
	}
	return q
}

// send sends f, or leaves it to the writer. It never blocks in the socket.
func (q *sendQueue) send(f frame) {
	q.mu.Lock()
	switch {
	case q.failed:
		q.mu.Unlock()
		f.owner.frameDone(frameUnsent)
		return
	case q.writing || q.raw == nil || q.secure != nil:
		q.pending = append(q.pending, f)
		q.startWriterLocked()
		q.mu.Unlock()
		return
	}
	q.writing = true
	q.pending = append(q.pending, f)
	q.mu.Unlock()
	q.yield()
	if q.takeBatch() {
		n, err := q.offer()
		q.endOffer(n, err)
	}
}

// offer offers the batch to the kernel once. It returns how many bytes the kernel took, which may be none.
func (q *sendQueue) offer() (int, error) {
	q.extend()
	q.gather()
	q.n, q.err = 0, nil
	err := q.raw.Write(q.offered)
	clear(q.vec)
	if err == nil {
		err = q.err
	}
	n := q.n
	if q.watch != nil {
		q.watch.arm()
	}
	return n, err
}

// maxVector is how many pieces of memory one system call accepts (IOV_MAX).
const maxVector = 1024

// writeOnce writes vec to the connection's descriptor for offer. The descriptor is non-blocking, like all descriptors
// of package net. writeOnce always returns true: false would wait for the socket.
func (q *sendQueue) writeOnce(fd uintptr) bool {
	n, err := unix.Writev(int(fd), q.vec[:min(len(q.vec), maxVector)])
	switch err {
	case nil:
		q.n = n
	case unix.EAGAIN, unix.EINTR:
	default:
		q.err = err
	}
	return true
}

// endOffer ends the turn of a sender after the kernel took n bytes of the batch. The frames of which the kernel took no
// byte wait again, before all others.
func (q *sendQueue) endOffer(n int, err error) {
	rest := q.batch
	for len(rest) > 0 && n >= rest[0].size() {
		n -= rest[0].size()
		rest[0].owner.frameDone(frameSent)
		rest[0], rest = frame{}, rest[1:]
	}
	if err != nil {
		q.fail(fmt.Errorf("send: %w", err))
	}
	if q.requeue(rest, n) {
		return
	}
	for i, f := range rest { // the socket stays taken: nothing more is sent
		if i == 0 && n > 0 {
			f.owner.frameDone(frameBroken)
		} else {
			f.owner.frameDone(frameUnsent)
		}
	}
	clear(q.batch)
}

// requeue releases the socket after an offer. The kernel took only the first n bytes of rest. requeue returns false
// if the queue has failed.
func (q *sendQueue) requeue(rest []frame, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed {
		return false
	}
	started := min(n, 1) // of rest[0]
	q.pending = slices.Insert(q.pending, 0, rest[started:]...)
	if started > 0 {
		q.batch[0] = rest[0].after(n)
	}
	clear(q.batch[started:])
	q.batch, q.writing = q.batch[:started], false
	if len(q.pending) > 0 || len(q.batch) > 0 {
		q.startWriterLocked()
	}
	return true
}

// startWriterLocked starts the writer, unless a sender or the writer itself has the socket. A sender starts the writer
// after its turn. The caller holds mu.
func (q *sendQueue) startWriterLocked() {
	if q.writing || q.failed {
		return
	}
	q.writing = true
	q.writers.Add(1)
	go q.write()
}

// write is the writer goroutine.
func (q *sendQueue) write() {
	defer q.writers.Done()
	if q.secure != nil {
		// No sender has called yield: frames that others are about to send share a record and a system call.
		q.yield()
	}
	for q.takeBatch() {
		q.sendBatch()
	}
}

// takeBatch moves frames from pending to batch, or releases the socket if there is nothing to send.
func (q *sendQueue) takeBatch() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for i := range q.batch { // the rest of a frame that a sender has started
		size += len(q.batch[i].payload)
	}
	for n < len(q.pending) && size < maxBatch {
		size += len(q.pending[n].payload)
		n++
	}
	q.batch = append(q.batch, q.pending[:n]...)
	rest := copy(q.pending, q.pending[n:])
	clear(q.pending[rest:])
	q.pending = q.pending[:rest]
	q.writing = len(q.batch) > 0
	return q.writing
}

// sendBatch writes the batch and informs the owners.
func (q *sendQueue) sendBatch() {
	f := frameSent
	if err := q.writeBatch(); err != nil {
		f = frameBroken
		q.fail(fmt.Errorf("send: %w", err))
	}
	for i := range q.batch {
		q.batch[i].owner.frameDone(f)
	}
	clear(q.batch)
	q.batch = q.batch[:0]
}

func (q *sendQueue) writeBatch() error {
	q.gather()
	if q.secure != nil {
		defer clear(q.vec)
		if err := q.secure.seal(q.vec, q.writeSealed); err != nil {
			return err
		}
		return q.writeSealed()
	}
	q.bufs = q.vec
	q.extend()
	if q.watch != nil {
		q.watch.arm()
	}
	_, err := q.bufs.WriteTo(q.conn) // one writev if the connection supports it
	clear(q.vec)
	return err
}

// writeSealed sends the held records.
func (q *sendQueue) writeSealed() error {
	sealed := q.secure.records.take()
	if sealed == nil {
		return nil
	}
	defer putRecordBuffer(sealed)
	q.extend()
	if q.watch != nil {
		q.watch.arm()
	}
	_, err := q.conn.Write(*sealed)
	return err
}

// gather lists the memory of the batch in vec.
func (q *sendQueue) gather() {
	q.vec = q.vec[:0]
	for i := range q.batch {
		for _, part := range [2][]byte{q.batch[i].head, q.batch[i].payload} {
			if len(part) > 0 {
				q.vec = append(q.vec, part)
			}
		}
	}
}

// limitWrites limits the time of every write from now on, including the write under way. It is for a peer that will
// send no further request and must only take its replies.
func (q *sendQueue) limitWrites(limit time.Duration) {
	q.writeLimit.Store(int64(limit))
	q.extend()
}

func (q *sendQueue) extend() {
	if p := time.Duration(q.writeLimit.Load()); p > 0 {
		_ = q.conn.SetWriteDeadline(time.Now().Add(p))
	}
}

func (q *sendQueue) isWriting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing
}

// fail ends the queue. It returns the frames that were not started to their owners, and later frames at once. It closes
// the connection, because the stream has no meaning after an incomplete frame. Closing also wakes a writer that is
// blocked in the connection.
func (q *sendQueue) fail(cause error) {
	q.mu.Lock()
	if !q.failed {
		q.failed, q.cause = true, cause
	}
	unsent := q.pending
	q.pending = nil
	q.mu.Unlock()
	if q.watch != nil {
		q.watch.stop()
	}
	_ = q.conn.Close()
	for i := range unsent {
		unsent[i].owner.frameDone(frameUnsent)
	}
}

// explain returns the reason for the end of the connection, to a reader that has found it closed with err.
func (q *sendQueue) explain(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cause != nil {
		return q.cause
	}
	return err
}

// wait returns when the writer has exited. The caller must send nothing more, or the queue must have failed.
func (q *sendQueue) wait() { q.writers.Wait() }

// withdraw removes the frame of owner if its first byte has not been written. It does not call frameDone.
func (q *sendQueue) withdraw(owner frameOwner) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.pending {
		if q.pending[i].owner == owner {
			q.pending = append(q.pending[:i], q.pending[i+1:]...)
			return true
		}
	}
	return false
}
