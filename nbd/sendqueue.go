package nbd

import (
	"net"
	"sync"
)

// frame is one message to send: a header and, for some, a payload that is not copied.
type frame struct {
	head, payload []byte
	owner         frameOwner
}

// frameOwner is told what became of its frame, once, without any lock held. After that the frame's bytes are no longer used.
type frameOwner interface {
	frameDone(f fate)
}

// fate is what became of a frame.
type fate int

const (
	fateSent   fate = iota // every byte was given to the kernel
	fateBroken             // the connection failed while it was being written
	fateUnsent             // the connection had failed before its first byte
)

// sendQueue writes frames to a connection, whole and one after another. There is no writer goroutine: the first to send while
// nobody writes becomes the writer, and what others add meanwhile goes out with its next system call. So an idle connection costs
// nothing and a busy one few calls per frame.
type sendQueue struct {
	conn net.Conn

	mu      sync.Mutex
	pending []frame // guarded by mu
	writing bool    // guarded by mu; whoever set it owns the fields below
	failed  bool    // guarded by mu

	batch []frame
	vec   [][]byte
	bufs  net.Buffers
}

// maxBatch is the payload, in bytes, after which a batch is closed: a frame's owner hears of it only when its batch is out.
const maxBatch = 256 << 10

// push queues f and says whether the caller has become the writer and must now call drain.
func (q *sendQueue) push(f frame) (mustDrain bool) {
	q.mu.Lock()
	if q.failed {
		q.mu.Unlock()
		f.owner.frameDone(fateUnsent)
		return false
	}
	q.pending = append(q.pending, f)
	mustDrain = !q.writing
	q.writing = true
	q.mu.Unlock()
	return mustDrain
}

// send queues f and, if nobody else is writing, writes until the queue is empty.
func (q *sendQueue) send(f frame) {
	if q.push(f) {
		q.drain()
	}
}

// drain writes batches until the queue is empty. Only the caller that push or an earlier drain made the writer may call it.
func (q *sendQueue) drain() {
	for q.takeBatch() {
		q.sendBatch()
	}
}

// drainOne writes one batch, which holds the writer's own frame if push has just made it the writer. If it returns true there are
// more, and somebody must call drain.
func (q *sendQueue) drainOne() (more bool) {
	if !q.takeBatch() {
		return false
	}
	q.sendBatch()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing = len(q.pending) > 0
	return q.writing
}

// sendBatch writes the batch and tells the owners.
func (q *sendQueue) sendBatch() {
	f := fateSent
	if err := q.writeBatch(); err != nil {
		f = fateBroken
		q.fail()
	}
	for i := range q.batch {
		q.batch[i].owner.frameDone(f)
	}
}

// takeBatch moves frames from pending to batch, or ends the caller's time as the writer if there are none.
func (q *sendQueue) takeBatch() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.batch)
	q.batch = q.batch[:0]
	if len(q.pending) == 0 {
		q.writing = false
		return false
	}
	n, size := 0, 0
	for n < len(q.pending) && size < maxBatch {
		size += len(q.pending[n].payload)
		n++
	}
	q.batch = append(q.batch, q.pending[:n]...)
	rest := copy(q.pending, q.pending[n:])
	clear(q.pending[rest:])
	q.pending = q.pending[:rest]
	return true
}

func (q *sendQueue) writeBatch() error {
	v := q.vec[:0]
	for i := range q.batch {
		v = append(v, q.batch[i].head)
		if len(q.batch[i].payload) > 0 {
			v = append(v, q.batch[i].payload)
		}
	}
	q.vec, q.bufs = v, v
	_, err := q.bufs.WriteTo(q.conn) // one writev where the connection can
	clear(q.vec)
	return err
}

// fail ends the queue: frames not begun are returned to their owners, later ones at once. It closes the connection, for a frame
// cut short leaves the stream without meaning.
func (q *sendQueue) fail() {
	q.mu.Lock()
	q.failed = true
	unsent := q.pending
	q.pending = nil
	q.mu.Unlock()
	_ = q.conn.Close()
	for i := range unsent {
		unsent[i].owner.frameDone(fateUnsent)
	}
}

// withdraw removes the frame of owner if its first byte has not been written. The owner is not told.
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
