package replica

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// A disk may never answer, and nothing can end a call that waits for it in the kernel. How long callers wait for such a call:
//
//	Admit, Fence, Control, Close   a caller whose context ends leaves with a *HangError; the call goes on in the replica's lane
//	Session.Close, View.Close      return after closeWait; the gate stays occupied until the request has ended
//	Lose, State                    never wait
//	ReadAt, WriteAt, Flush …       wait with their caller, who has the buffer; they hold the gate
//	open, create, remove, look     have no replica yet: Call bounds them for each disk

// closeWait is how long the Close of a session or view waits for requests that hang.
const closeWait = 5 * time.Second

// HangError is the error of a caller that gave up on a disk that has not answered.
type HangError struct {
	// Asked is what the caller asked for.
	Asked string
	// Begun: what was asked for is with the disk and may still happen; the error wraps nbd.ErrUnknownOutcome. Otherwise nothing of it
	// has happened, and nothing will.
	Begun bool
	// Call is the one that the disk has not answered, Since when it began; "" and the zero time when it has answered by now.
	Call  string
	Since time.Time
	// Err is why the caller gave up: the error of a context, or ErrBusy.
	Err error
}

// Error names what was asked for, whether it may still happen, and since when the disk has not answered.
func (e *HangError) Error() string {
	state := "not begun"
	if e.Begun {
		state = "not known whether it happened"
	}
	if e.Since.IsZero() {
		return fmt.Sprintf("%s: %s: %v", e.Asked, state, e.Err)
	}
	return fmt.Sprintf("%s: %s: the disk has not answered since %s (%s): %v", e.Asked, state, e.Since.UTC().Format(time.RFC3339), e.Call, e.Err)
}

// Unwrap returns the cause, and nbd.ErrUnknownOutcome if it is not known whether it happened.
func (e *HangError) Unwrap() []error {
	if e.Begun {
		return []error{nbd.ErrUnknownOutcome, e.Err}
	}
	return []error{e.Err}
}

// StuckSince returns the replica's call to the disk that has not returned for the longest time, and since when: the zero time when
// there is none. For reads, writes and flushes it compares with the call before: such a request is found by the second of two calls
// after it began, and its time is that of the first. So it must be called every few seconds. It does not wait.
func (r *Replica) StuckSince() (since time.Time, what string) {
	since, what = r.lane.oldest()
	if r.out != nil {
		if t := r.out.stuckSince(); !t.IsZero() && (since.IsZero() || t.Before(since)) {
			since, what = t, "write out"
		}
	}
	r.mu.Lock()
	gates := []*gate{}
	if r.current != nil {
		gates = append(gates, r.current.gate)
	}
	for v := range r.views {
		gates = append(gates, v.gate)
	}
	r.mu.Unlock()
	now := r.opts.Clock.Now()
	for _, g := range gates {
		if t := g.look(now); !t.IsZero() && (since.IsZero() || t.Before(since)) {
			since, what = t, "read, write or flush"
		}
	}
	return since, what
}

// gaveUp is the error of a caller that left before the call it asked for began.
func (r *Replica) gaveUp(asked string, cause error) error {
	since, what := r.StuckSince()
	return &HangError{Asked: asked, Since: since, Call: what, Err: cause}
}
