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

// frame is one message to send: a header and, for some, a payload that is not copied.
type frame struct {
	head, payload []byte
	owner         frameOwner
}

// size is the length of what is left to send, in bytes.
func (f frame) size() int { return len(f.head) + len(f.payload) }

// after returns what is left of f once n bytes of it were sent.
func (f frame) after(n int) frame {
	fromHead := min(n, len(f.head))
	f.head, f.payload = f.head[fromHead:], f.payload[n-fromHead:]
	return f
}

// frameOwner learns the fate of its frame by one call, without any lock held. After that the frame's bytes are no longer used.
type frameOwner interface {
	frameDone(f fate)
}

// fate is how a frame ended.
type fate int

const (
	fateSent   fate = iota // every byte was given to the kernel
	fateBroken             // the connection failed while it was being written
	fateUnsent             // the connection had failed before its first byte
)

// sendQueue writes frames to a connection, whole and one after another. No sender blocks in the socket:
//
//	send, socket free      the sender takes the socket, lets other goroutines run, and offers its own frame and those that were left with
//	                       it meanwhile to the kernel, in one system call that does not block
//	  taken                the frames are done
//	  taken in part        the writer sends the rest first
//	  not taken            the frames are the first that wait
//	send, socket in use    the frame waits
//	frames wait, and the sender that has the socket is through with its turn   the writer starts
//
// Over TLS senders offer nothing: the writer seals what waits and sends it.
//
// The writer is a goroutine that may block. It sends what waits, many frames with one system call, and ends when nothing does. So
// an idle connection costs nothing, a lone small request no switch of goroutines, and a busy connection few calls per frame.
type sendQueue struct {
	conn    net.Conn
	secure  *secureConn     // nil: frames are sent as they are; else conn is beneath it
	raw     syscall.RawConn // nil if conn cannot be written without blocking; then the writer sends everything
	watch   *peerWatch      // nil if the kernel cannot tell whether the peer is alive
	writers sync.WaitGroup  // the writer; Add only under mu while not failed

	mu      sync.Mutex
	pending []frame // guarded by mu; of none was a byte sent
	writing bool    // guarded by mu; a sender or the writer has the socket, and owns the fields at the end
	failed  bool    // guarded by mu
	cause   error   // guarded by mu; why it failed

	patience atomic.Int64 // nanoseconds that one write may take, see hurry; 0: no bound

	batch   []frame // being sent; the first may have been sent in part
	vec     [][]byte
	bufs    net.Buffers
	yield   func() // lets other goroutines run, which may have something to send
	offered func(fd uintptr) bool
	n       int
	err     error
}

// maxBatch is the payload, in bytes, after which a batch is closed: a frame's owner hears of it only when its batch is out.
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
		f.owner.frameDone(fateUnsent)
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

// maxVector is how many pieces of memory one system call takes (IOV_MAX).
const maxVector = 1024

// writeOnce writes vec to the connection's descriptor for offer. The descriptor is non-blocking, as all of package net are.
// writeOnce always returns true: false would wait for the socket.
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

// endOffer ends the turn of a sender after the kernel took n bytes of the batch. What it did not begin waits again, first of all.
func (q *sendQueue) endOffer(n int, err error) {
	rest := q.batch
	for len(rest) > 0 && n >= rest[0].size() {
		n -= rest[0].size()
		rest[0].owner.frameDone(fateSent)
		rest[0], rest = frame{}, rest[1:]
	}
	if err != nil {
		q.fail(fmt.Errorf("send: %w", err))
	}
	if q.giveBack(rest, n) {
		return
	}
	for i, f := range rest { // the socket stays taken: nothing is sent any more
		if i == 0 && n > 0 {
			f.owner.frameDone(fateBroken)
		} else {
			f.owner.frameDone(fateUnsent)
		}
	}
	clear(q.batch)
}

// giveBack gives the socket up after an offer, of which the kernel left rest but for the first n bytes. It returns false if the queue has
// failed.
func (q *sendQueue) giveBack(rest []frame, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed {
		return false
	}
	begun := min(n, 1) // of rest[0]
	q.pending = slices.Insert(q.pending, 0, rest[begun:]...)
	if begun > 0 {
		q.batch[0] = rest[0].after(n)
	}
	clear(q.batch[begun:])
	q.batch, q.writing = q.batch[:begun], false
	if len(q.pending) > 0 || len(q.batch) > 0 {
		q.startWriterLocked()
	}
	return true
}

// startWriterLocked starts the writer unless a sender has the socket, which starts it when it is through, or the writer itself.
func (q *sendQueue) startWriterLocked() {
	if q.writing || q.failed {
		return
	}
	q.writing = true
	q.writers.Add(1)
	go q.write()
}

// write is the writer.
func (q *sendQueue) write() {
	defer q.writers.Done()
	if q.secure != nil {
		q.yield() // no sender has: what others are about to send shares a record and a system call
	}
	for q.takeBatch() {
		q.sendBatch()
	}
}

// takeBatch moves frames from pending to batch, or gives the socket up if there is nothing to send.
func (q *sendQueue) takeBatch() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for i := range q.batch { // the rest of a frame that a sender began
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

// sendBatch writes the batch and tells the owners.
func (q *sendQueue) sendBatch() {
	f := fateSent
	if err := q.writeBatch(); err != nil {
		f = fateBroken
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
	_, err := q.bufs.WriteTo(q.conn) // one writev where the connection can
	clear(q.vec)
	return err
}

// writeSealed sends the records that are held.
func (q *sendQueue) writeSealed() error {
	sealed := q.secure.records.take()
	if sealed == nil {
		return nil
	}
	defer giveBack(sealed)
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

// hurry bounds every write from now on, the one under way included: for a peer that has nothing more to ask and must only take its
// replies.
func (q *sendQueue) hurry(patience time.Duration) {
	q.patience.Store(int64(patience))
	q.extend()
}

func (q *sendQueue) extend() {
	if p := time.Duration(q.patience.Load()); p > 0 {
		_ = q.conn.SetWriteDeadline(time.Now().Add(p))
	}
}

func (q *sendQueue) isWriting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writing
}

// fail ends the queue: frames not begun are returned to their owners, later ones at once. It closes the connection, for a frame
// cut short leaves the stream without meaning; that also wakes a writer that is blocked in it.
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
		unsent[i].owner.frameDone(fateUnsent)
	}
}

// explain returns why the connection ended, for a reader that has found it closed with err.
func (q *sendQueue) explain(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cause != nil {
		return q.cause
	}
	return err
}

// wait returns when the writer has ended. Nothing may be sent any more, or the queue must have failed.
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
