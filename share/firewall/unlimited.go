package firewall

import (
	"context"
	"fmt"
	"time"
)

// AskWithoutLimit asks until it is certain that no member of the volume believes that the port is limited. If the
// kernel cannot limit a server's port, the server must not start before that. Members may remember a limited question
// of an earlier share manager that used the same engine. A successor would treat the age of that question as proof that
// this server no longer reaches clients.
//
//	yes, cannot tell          done: all members that remember questions have heard that the port has no limit
//	not offered               done: an engine of an earlier release remembers nothing
//	refused                   the same, after refusedStart, if no other answer has come
//	no                        asked again for maxClosedGone: then ErrNotConfirmed
//	else                      asked again for maxClosedUnconfirmed: then ErrNotConfirmed
//
// now is the time since some fixed moment. AskWithoutLimit returns ctx's error when ctx is done.
func AskWithoutLimit(ctx context.Context, ask Question, now func() time.Duration) error {
	began, mayBeHeard := now(), false
	for {
		v, err := askOnce(ctx, ask)
		waited := now() - began
		mayBeHeard = mayBeHeard || v != NotOffered && v != Refused
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("asking whether the volume's engine is in force: %w", ctx.Err())
		case v == Yes, v == CannotTell:
			return nil
		case isEarlierRelease(v, waited) && !mayBeHeard:
			return nil
		case waited >= closedLimit(v) && err != nil:
			return fmt.Errorf("%w within %s: %s: %w", ErrNotConfirmed, waited.Round(time.Second), v, err)
		case waited >= closedLimit(v):
			return fmt.Errorf("%w within %s: %s", ErrNotConfirmed, waited.Round(time.Second), v)
		}
		select {
		case <-ctx.Done():
		case <-time.After(questionRetryInterval):
		}
	}
}

func askOnce(ctx context.Context, ask Question) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	return ask(ctx, false)
}
