package nbd

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peerWatch distinguishes a dead peer from a slow one while the peer's kernel has not answered something that was sent.
// The kernel's own mechanisms do not: keepalive rests while anything is unsent or unacknowledged. TCP_USER_TIMEOUT also
// ends a connection to a peer that answers every probe of its closed window. The kernel of a frozen or slow process
// does so.
//
//	the last transmission was answered                          alive, however long its window has been closed
//	it was not, nor were two more, and nothing else arrived     dead, if deadAfter has passed
//
// One unanswered transmission proves nothing. Probes of a closed window are up to two minutes apart, a packet may be
// lost, and a kernel does not answer probes that come too soon. So if a peer dies while its window has been closed for
// a long time, this is noticed late.
//
// It costs nothing while the connection is idle: sending arms a timer, and the timer stops once the peer has taken
// everything.
type peerWatch struct {
	raw  syscall.RawConn
	busy func() bool // reports whether a write is under way, so that more may enter the kernel at any time
	dead func(error)

	every, after time.Duration // watchEvery and deadAfter, except in tests

	armed atomic.Bool // the timer runs

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu; nil before the first arm
	stopped bool        // guarded by mu
	suspect suspicion   // guarded by mu
}

const (
	// watchEvery is the pause between two checks of a connection with something unanswered.
	watchEvery = 5 * time.Second
	// deadAfter is how long a peer's kernel may leave transmissions unanswered.
	deadAfter = 20 * time.Second
)

var errPeerDead = errors.New("the node at the other end of the connection does not answer")

func newPeerWatch(raw syscall.RawConn, busy func() bool, dead func(error)) *peerWatch {
	return &peerWatch{raw: raw, busy: busy, dead: dead, every: watchEvery, after: deadAfter}
}

// arm starts the timer of the next check. It is called after bytes were given to the kernel.
func (w *peerWatch) arm() {
	if !w.armed.CompareAndSwap(false, true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.every, w.look)
	default:
		w.timer.Reset(w.every)
	}
}

// stop stops the watch. A check that is under way finds the connection closed.
func (w *peerWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look checks the connection once.
func (w *peerWatch) look() {
	// Clear armed before asking the kernel: a later send arms the timer again, and the kernel's answer covers an
	// earlier one.
	w.armed.Store(false)
	var info *unix.TCPInfo
	var err error
	if closed := w.raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); closed != nil || err != nil {
		return
	}
	w.mu.Lock()
	dead := w.suspect.confirms(time.Now(), info, w.after)
	stopped := w.stopped
	w.mu.Unlock()
	switch {
	case stopped:
	case dead:
		w.dead(errPeerDead)
	case w.busy() || info.Unacked > 0 || info.Notsent_bytes > 0:
		w.arm()
	}
}

// suspicion records the time since which a peer's kernel has answered nothing. The zero value means no suspicion.
type suspicion struct {
	since time.Time
	sent  uint32 // segments sent by then
}

// enoughUnanswered is the number of further segments that must be unanswered, after the segment that caused the
// suspicion.
const enoughUnanswered = 2

// confirms takes the kernel's information at a moment and reports whether the peer is dead.
func (s *suspicion) confirms(now time.Time, info *unix.TCPInfo, after time.Duration) (dead bool) {
	// Times in milliseconds: since the last segment with data was sent, and since the last acknowledgement came. A
	// probe of a closed window has no data, but is counted until anything arrives.
	unanswered := info.Unacked > 0 && info.Last_ack_recv > info.Last_data_sent || info.Probes > 0
	lastAnswer := now.Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
	switch {
	case !unanswered:
		*s = suspicion{}
	case s.since.IsZero() || lastAnswer.After(s.since):
		*s = suspicion{since: now, sent: info.Segs_out}
	default:
		return now.Sub(s.since) >= after && info.Segs_out-s.sent >= enoughUnanswered
	}
	return false
}
