package firewall

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotConfirmed means that clients were not served for so long that another share manager must try: no question was
// answered with yes.
var ErrNotConfirmed = errors.New("the volume's engine was not confirmed to be in force")

// Verdict is the answer to the question whether the volume's engine is in force.
type Verdict int

const (
	// Unanswered: no answer came in time, or it was neither yes nor no. Members may have heard the question.
	Unanswered Verdict = iota
	// NotOffered: the instance manager is of an earlier release. It has no socket, or does not know the question. No
	// member has heard the question.
	NotOffered
	// Refused: no process listens on the instance manager's socket. No member has heard the question. The instance
	// manager may be starting, or an instance manager of an earlier release has replaced a later one.
	Refused
	// Unconfirmed: the answer was neither yes nor no.
	Unconfirmed
	// Yes: the engine is in force at all members of the volume.
	Yes
	// No: the engine is gone permanently.
	No
	// CannotTell: a member is of an earlier release. All others have heard the question.
	CannotTell
)

func (v Verdict) String() string {
	switch v {
	case NotOffered:
		return "the instance manager is of an earlier release and cannot answer"
	case Refused:
		return "no process listens on the instance manager's socket"
	case Unconfirmed:
		return "not confirmed by all members"
	case Yes:
		return "in force"
	case No:
		return "no longer in force"
	case CannotTell:
		return "a member is of an earlier release and cannot answer"
	}
	return "no answer"
}

const (
	// questionInterval is the time between two questions. questionRetryInterval is the time after a question that did
	// not open a closed port.
	questionInterval      = time.Second
	questionRetryInterval = 200 * time.Millisecond
	// questionTimeout is how long an answer may take.
	questionTimeout = 2 * time.Second
	// maxStepInterval is the longest time between two steps. After maxStepGap between two steps, earlier answers no
	// longer count.
	maxStepInterval = 250 * time.Millisecond
	maxStepGap      = 2 * time.Second
	// maxClosedGone is how long a port may be closed if the engine is gone permanently. maxClosedUnconfirmed is how
	// long if it was not confirmed. In that case a member or the API server does not answer, no successor can start
	// either, and the engine may be confirmed again.
	maxClosedGone, maxClosedUnconfirmed = 15 * time.Second, time.Minute
	// refusedStart is the time after which a socket without a listener counts as left over by an earlier release. An
	// instance manager of this release that starts listens sooner.
	refusedStart = 10 * time.Second
)

// portVerb is an action on the gate.
type portVerb int

const (
	doArm     portVerb = iota + 1 // the slot of the next question
	doAsk                         // the question; answer receives the result
	doConfirm                     // the slot of the question
	doOpen                        // without limit
	doLimit                       // a port that is open without limit closes after the time of the slot
	doClose                       // at once
)

// portAction is a verb and the slot that it is about.
type portAction struct {
	verb portVerb
	slot int
}

// portRule decides when the port is open. Its methods receive events and their times, and decide. The times count from
// some fixed moment and continue while the process is paused. The methods do nothing themselves.
//
//	asked with limit       yes            open for 4 s from before the question
//	                       no             closed at once
//	                       cannot tell    asked again without limit; an open port closes when its time is over
//	                       else           an open port closes when its time is over
//	                       not offered    open without limit, if no question can have been heard; else as no answer
//	                       refused        the same, after refusedStart
//	asked without limit    cannot tell    open without limit: the members that remember questions have heard that they
//	                                      have no limit
//	                       yes            all members are of this release now: open for 4 s, asked with limit from now on
//	                       no             closed at once, and asked with limit from now on
//	                       else           as before
//
// The members must learn of it before the port opens without a limit. Otherwise a successor treats the age of a
// question as proof that this server no longer reaches clients. So an instance manager that does not answer never opens
// the port: it may have passed the question on.
type portRule struct {
	limited    bool
	open       bool // without limit
	slot       int  // of the question under way, or the next one
	mayBeHeard bool // a member may have heard a question of this process
	// lateQuestions are earlier questions without an answer so far: a member may have heard them.
	lateQuestions int

	started, lastStep time.Duration
	until             time.Duration // the port is open until then, as far as this process knows
	// closedAt is when the port was seen to be closed; while it is open, when it was last seen.
	closedAt time.Duration
	isAsking bool
	// number is the number of the question, so that a late answer can be recognised.
	number  int
	askedAt time.Duration
	next    time.Duration
	verdict Verdict // the last one
}

func newPortRule(now time.Duration) *portRule {
	return &portRule{limited: true, started: now, lastStep: now, closedAt: now, next: now}
}

// isOpen reports whether clients are served, as far as the process knows.
func (m *portRule) isOpen(now time.Duration) bool { return m.open || now < m.until }

// step must be called at least every maxStepInterval, and before answer.
func (m *portRule) step(now time.Duration) ([]portAction, error) {
	var acts []portAction
	if now-m.lastStep > maxStepGap && m.limited {
		if m.isAsking {
			m.lateQuestions++
		}
		// the code below asks a new question, so the answer to the earlier one no longer counts
		m.until, m.isAsking, m.next = 0, false, now
		acts = append(acts, portAction{verb: doClose})
	}
	m.lastStep = now
	if m.isOpen(now) {
		m.closedAt = now
	}
	if limit := closedLimit(m.verdict); now-m.closedAt >= limit {
		return acts, fmt.Errorf("%w within %s: %s", ErrNotConfirmed, limit, m.verdict)
	}
	if m.isAsking || now < m.next {
		return acts, nil
	}
	m.isAsking, m.askedAt = true, now
	m.number++
	if m.limited {
		acts = append(acts, portAction{doArm, m.slot})
	}
	return append(acts, portAction{verb: doAsk}), nil
}

// due is the latest time for the next step.
func (m *portRule) due(now time.Duration) time.Duration {
	if m.isAsking {
		return now + maxStepInterval
	}
	return max(now, min(now+maxStepInterval, m.next))
}

// answer receives the result of the question with a number.
func (m *portRule) answer(now time.Duration, number int, v Verdict) []portAction {
	if v != NotOffered && v != Refused {
		m.mayBeHeard = true // also if this answer is too late
	}
	switch {
	case number != m.number:
		m.lateQuestions--
		return nil
	case !m.isAsking:
		return nil
	}
	m.isAsking, m.verdict = false, v
	slot, wasLimited := m.slot, m.limited
	verb := m.decide(now, v)
	switch {
	case m.limited != wasLimited:
		m.next = now
	case m.isOpen(now):
		m.next = max(now, m.askedAt+questionInterval)
	default:
		m.next = now + questionRetryInterval
	}
	if verb == 0 {
		return nil
	}
	return []portAction{{verb, slot}}
}

// decide returns the verb for a verdict; 0: nothing.
func (m *portRule) decide(now time.Duration, v Verdict) portVerb {
	old := isEarlierRelease(v, now-m.started)
	switch {
	case v == No:
		m.limited, m.open, m.until = true, false, 0
		return doClose
	case old && !m.mayBeHeard && m.lateQuestions == 0:
		return m.openUnlimited()
	case v == CannotTell && m.limited:
		m.limited = false
	case v == CannotTell:
		return m.openUnlimited()
	case v == Yes && m.limited:
		m.until = max(m.until, m.askedAt+confirmationTTL)
		m.slot = (m.slot + 1) % slots
		return doConfirm
	case v == Yes && m.open:
		m.limited, m.open, m.until = true, false, now+confirmationTTL
		m.slot = (m.slot + 1) % slots
		return doLimit
	case v == Yes:
		m.limited = true
	}
	return 0
}

// isEarlierRelease reports whether an answer, so long after the first question, shows that this node's instance manager
// does not support questions.
func isEarlierRelease(v Verdict, waited time.Duration) bool {
	return v == NotOffered || v == Refused && waited >= refusedStart
}

// closedLimit is how long a port may be closed after this answer.
func closedLimit(v Verdict) time.Duration {
	if v == No {
		return maxClosedGone
	}
	return maxClosedUnconfirmed
}

// openUnlimited opens the port without limit, once.
func (m *portRule) openUnlimited() portVerb {
	m.limited = false
	if m.open {
		return 0
	}
	m.open = true
	return doOpen
}

// refused records that the kernel refused an action: the port is as it was before.
func (m *portRule) refused(d portVerb) {
	switch d {
	case doConfirm:
		m.until = 0
	case doOpen:
		m.open = false
	case doLimit:
		m.limited, m.open, m.until = false, true, 0
	}
}
