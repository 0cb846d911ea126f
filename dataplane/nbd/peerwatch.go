package nbd

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// peerWatch tells a dead peer from a slow one while something sent to it is unanswered by its kernel. The kernel's own means do not:
// keepalive rests while anything is unsent or unacknowledged, and TCP_USER_TIMEOUT also ends a connection whose peer answers every
// probe of its closed window, as the kernel of a process does that is frozen or slow.
//
//	the last transmission was answered                 alive, however long its window has been closed
//	it was not, nor two more, nor came anything else   dead, if deadAfter has passed
//
// One unanswered transmission proves nothing: probes of a closed window are up to two minutes apart, a packet may be lost, and a
// kernel leaves probes that come too soon unanswered. So a peer that dies while its window has been closed for long is noticed late.
//
// It costs nothing while the connection is idle: sending arms a timer, and the timer stops once the peer has taken everything.
type peerWatch struct {
	raw  syscall.RawConn
	busy func() bool // whether a write is under way, so that more may enter the kernel at any time
	dead func(error)

	every, after time.Duration // watchEvery and deadAfter, but for tests

	armed atomic.Bool // the timer runs

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu; nil before the first arm
	stopped bool        // guarded by mu
	suspect suspicion   // guarded by mu
}

const (
	// watchEvery is the pause between two looks at a connection with something unanswered.
	watchEvery = 5 * time.Second
	// deadAfter is how long a peer's kernel may leave transmissions unanswered.
	deadAfter = 20 * time.Second
)

var errPeerDead = errors.New("the peer's machine does not answer")

func newPeerWatch(raw syscall.RawConn, busy func() bool, dead func(error)) *peerWatch {
	return &peerWatch{raw: raw, busy: busy, dead: dead, every: watchEvery, after: deadAfter}
}

// arm starts the timer of the next look. It is called after bytes were given to the kernel.
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

// stop ends the watch. A look that is under way finds the connection closed.
func (w *peerWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look examines the connection once.
func (w *peerWatch) look() {
	// Before the kernel is asked: a later send arms the timer again, and the kernel's answer covers an earlier one.
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

// suspicion remembers since when a peer's kernel has answered nothing. The zero value suspects nothing.
type suspicion struct {
	since time.Time
	sent  uint32 // segments sent by then
}

// enoughUnanswered is how many segments, after the one that made the peer suspect, must have gone unanswered.
const enoughUnanswered = 2

// confirms takes what the kernel knows at a moment and says whether the peer is dead.
func (s *suspicion) confirms(now time.Time, info *unix.TCPInfo, after time.Duration) (dead bool) {
	// Times since the last segment with data was sent and since the last acknowledgement came, in milliseconds. A probe of a closed
	// window has no data, but is counted until anything comes.
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
