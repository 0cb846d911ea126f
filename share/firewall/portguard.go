package firewall

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/util/repeat"
)

// Question asks whether the volume's engine is in force. limited says that the port closes automatically 4 s after the
// question, unless the answer is Yes. The error is for messages. Question must return soon after ctx is done.
type Question func(ctx context.Context, limited bool) (Verdict, error)

// PortGuard keeps the NFS port of this network open only while the volume's engine is in force:
// docs/dataplane/PROTOCOL.md, "Whether a generation is in force". Otherwise a server on a node that is cut off would
// continue to grant locks. It would also answer reads from its cache, without a disk.
type PortGuard struct {
	gate gate
	ask  Question
	now  func() time.Duration
	log  *logrus.Entry

	closed     atomic.Bool
	isReported bool          // that the port is closed
	fault      repeat.Filter // the last refusal of the kernel
}

// NewPortGuard closes a port of this network, until Run opens it. now is the time since some fixed moment; it
// continues while this process is paused. An error says that the kernel cannot limit the port, which is open as before.
// In that case the caller must send no limited question, because members would treat it as proof that the port is
// limited (AskWithoutLimit).
func NewPortGuard(port int, ask Question, now func() time.Duration, log *logrus.Entry) (*PortGuard, error) {
	k := &PortGuard{gate: gate{port: port, ttl: confirmationTTL}, ask: ask, now: now, log: log}
	if err := k.gate.install(); err != nil {
		return nil, errors.Join(err, k.gate.remove())
	}
	k.closed.Store(true)
	return k, nil
}

// IsClosed reports whether the port is closed, as far as this process knows.
func (k *PortGuard) IsClosed() bool { return k.closed.Load() }

// Remove opens the port permanently. The server must have exited.
func (k *PortGuard) Remove() error { return k.gate.remove() }

// reply is the answer to the question with a number.
type reply struct {
	number  int
	verdict Verdict
	err     error
}

// Run asks, and opens and closes the port. It runs until ctx is done, when it returns nil, or until the port was closed
// for too long (ErrNotConfirmed). It leaves the port as it is: an open port closes when its time is over.
func (k *PortGuard) Run(ctx context.Context) error {
	rule, replies := newPortRule(k.now()), make(chan reply)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reason error
	answered := false
	for {
		now := k.now()
		acts, err := rule.step(now)
		if err = errors.Join(err, k.do(ctx, rule, acts, replies)); err != nil {
			return err
		}
		k.tell(!rule.isOpen(now), answered, rule.verdict, reason)
		timer := time.NewTimer(rule.due(now) - now)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case r := <-replies:
			timer.Stop()
			now := k.now()
			if acts, err = rule.step(now); err != nil { // this process may have been paused since
				return err
			}
			reason, answered = r.err, true
			if err := k.do(ctx, rule, append(acts, rule.answer(now, r.number, r.verdict)...), replies); err != nil {
				return err
			}
		}
	}
}

// do acts, and informs the rule about refusals of the kernel. An error says that the port may be open and must not be.
func (k *PortGuard) do(ctx context.Context, rule *portRule, acts []portAction, replies chan<- reply) error {
	var failed error
	for _, a := range acts {
		var err error
		switch a.verb {
		case doArm:
			err = k.gate.arm(a.slot)
		case doConfirm:
			err = k.gate.confirm(a.slot)
		case doOpen:
			err = k.gate.open()
		case doLimit:
			err = k.gate.limit(a.slot)
		case doClose:
			err = k.gate.close()
		case doAsk:
			k.startQuestion(ctx, rule.number, rule.limited, failed, replies)
		}
		switch {
		case err != nil && a.verb == doClose:
			return err
		case err != nil:
			rule.refused(a.verb)
		}
		failed = errors.Join(failed, err)
	}
	k.refused(failed)
	return nil
}

// startQuestion asks in the background. If the slot of a question could not be armed, the question is not sent: the
// port must be limited when members hear that it is.
func (k *PortGuard) startQuestion(ctx context.Context, number int, limited bool, failed error, replies chan<- reply) {
	go func() {
		r := reply{number: number, verdict: Unanswered, err: failed}
		if failed == nil {
			askCtx, cancel := context.WithTimeout(ctx, questionTimeout)
			defer cancel()
			r.verdict, r.err = k.ask(askCtx, limited)
		}
		select {
		case replies <- r:
		case <-ctx.Done():
		}
	}()
}

// refused logs once that the kernel refused a change.
func (k *PortGuard) refused(err error) {
	if k.fault.NoteError(err) {
		k.log.WithError(err).Warn("The kernel refused to open or close the NFS port. An open port closes automatically")
	}
}

// tell logs once when clients are not served, and when they are served again. If a port is closed at the start, this is
// not logged before the first answer.
func (k *PortGuard) tell(closed, answered bool, last Verdict, reason error) {
	wasClosed := k.closed.Swap(closed)
	switch log := k.log.WithField("verdict", last.String()); {
	case closed && !k.isReported && (answered || !wasClosed):
		k.isReported = true
		if reason != nil {
			log = log.WithError(reason)
		}
		log.Warn("The NFS port is closed to clients until the volume's engine is confirmed to be in force")
	case !closed && wasClosed:
		k.isReported = false
		log.Info("The NFS port is open to clients")
	}
}
