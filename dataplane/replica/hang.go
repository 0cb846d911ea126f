package replica

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// A disk may never answer, and nothing can end a call that waits for it in the kernel. This table shows how long
// callers wait for such a call:
//
//	Admit, Fence, Control, Close   leave with a *HangError when the context ends; the call continues in the lane
//	Session.Close, View.Close      return after closeWait; the gate stays occupied until the request has ended
//	Lose, State                    never wait
//	ReadAt, WriteAt, Flush …       wait with their caller, which has the buffer; they hold the gate
//	open, create, remove, look     have no replica yet: Call limits them for each disk

// closeWait is how long the Close of a session or view waits for requests that hang.
const closeWait = 5 * time.Second

// HangError is the error of a caller that has stopped waiting for a disk that has not answered.
type HangError struct {
	// Operation is the operation that the caller requested.
	Operation string
	// If Started is true, the disk has the operation, which may still happen; the error wraps nbd.ErrUnknownOutcome.
	// Otherwise no part of the operation has happened, and none will.
	Started bool
	// Call is the call that the disk has not answered, and Since is its start. They are "" and the zero time if the
	// disk has answered by now.
	Call  string
	Since time.Time
	// Err is the reason why the caller stopped waiting: the error of a context, or ErrBusy.
	Err error
}

// Error names the operation, whether it may still happen, and since when the disk has not answered.
func (e *HangError) Error() string {
	state := "the operation did not start"
	if e.Started {
		state = "it is unknown whether the operation was done"
	}
	if e.Since.IsZero() {
		return fmt.Sprintf("%s: %s: %v", e.Operation, state, e.Err)
	}
	return fmt.Sprintf("%s: %s: the disk has not answered since %s (operation: %s): %v", e.Operation, state, e.Since.UTC().Format(time.RFC3339), e.Call, e.Err)
}

// Unwrap returns the cause, and also nbd.ErrUnknownOutcome if it is unknown whether the operation happened.
func (e *HangError) Unwrap() []error {
	if e.Started {
		return []error{nbd.ErrUnknownOutcome, e.Err}
	}
	return []error{e.Err}
}

// StuckSince returns the replica's call to the disk that has been under way for the longest time, and its start. It
// returns the zero time if there is no such call. For reads, writes and flushes it compares with the previous call of
// StuckSince. The second call after the start of a request finds the request, and reports the time of the first call.
// So StuckSince must be called every few seconds. It does not wait.
func (r *Replica) StuckSince() (since time.Time, what string) {
	since, what = r.lane.oldest()
	if out := r.limit(); out != nil {
		if t := out.stuckSince(); !t.IsZero() && (since.IsZero() || t.Before(since)) {
			since, what = t, "write data back"
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

// hangError is the error of a caller that left before the requested call started.
func (r *Replica) hangError(operation string, cause error) error {
	since, what := r.StuckSince()
	return &HangError{Operation: operation, Since: since, Call: what, Err: cause}
}
