package share

import (
	"errors"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Why a share manager exits.
var (
	// ErrStalled means that this process did not run for longer than its clients' leases last, so that another share
	// manager may have taken its place.
	ErrStalled = errors.New("this process did not run for longer than the lease")
	// ErrServerExits means that the NFS server exits again and again.
	ErrServerExits = errors.New("the NFS server exits again and again")
	// ErrServerStuck means that the NFS server was killed and does not exit.
	ErrServerStuck = errors.New("the NFS server was killed but does not exit")
	// ErrVolumeHangs means that the volume does not answer.
	ErrVolumeHangs = errors.New("the volume does not answer")
	// ErrVolumeFailed means that the volume answers with errors.
	ErrVolumeFailed = errors.New("the volume failed")
)

// timing is how often a share is checked, and how many failures are tolerated.
type timing struct {
	// maxStepInterval is the longest time between two steps. retryInterval is the time between two questions to a
	// server that has not answered the last one.
	maxStepInterval, retryInterval time.Duration
	// stateInterval is the time between two checks of the state of the server's process. stateRecheck is the time after
	// a check that found it suspended. A server is killed when maxSuspended checks in succession found that.
	stateInterval, stateRecheck time.Duration
	maxSuspended                int
	// probeInterval is the time between two questions to a server that answers. probeTimeout is how long an answer may
	// take.
	probeInterval, probeTimeout time.Duration
	// volumeInterval is the time between two checks of the volume.
	volumeInterval time.Duration
	// lease is the longest time that may lie between two steps.
	lease time.Duration
	// A server is killed after maxUnanswered questions in succession without any answer, or after maxLookups lookups in
	// succession without one while it answers NULL. But its silence must also be slowFactor times as long as the
	// volume's slowest answer in that time.
	maxUnanswered, maxLookups int
	slowFactor                int
	// startLimit is how long a server may take for its first answer.
	startLimit time.Duration
	// hangLimit is how long a volume may take to answer, and a killed server to exit.
	hangLimit time.Duration
	// A server that exits before minUptime is started again after backoff, which doubles up to maxBackoff. If maxExits
	// such servers exit within exitWindow, the share manager exits.
	minUptime, backoff, maxBackoff, exitWindow time.Duration
	maxExits                                   int
}

// defaultTiming has all the numbers for a server that hangs:
//
//	its process is suspended       killed after 0.1 to 0.35 s: 0 to 0.25 until the first check, 0.1 until the second.
//	(state T or t)                 Suspended means: stopped by a signal or by a debugger. The state of the volume does
//	                               not matter: a process that waits for it is in state D
//	it answers nothing             killed after 4.1 to 5.1 s: 0 to 1 until the question, a question without answer (2),
//	                               0.1, another one (2)
//	it answers NULL and no lookup  killed after 8.6 to 9.6 s: 0 to 1, four lookups without answer (2 each), and between
//	                               them 0.1, a NULL that is answered, 0.1
//	either, and the volume is      not before 4 times the volume's slowest answer of that time has passed; not at all
//	slow                           while the volume does not answer; after 30 s of that the share manager exits
//	clients see it (readiness)     when the first question was not answered and the volume was written after that:
//	                               after 2 to 3 s; by the kubelet's probe 2 to 4 s later
func defaultTiming(lease time.Duration) timing {
	return timing{
		maxStepInterval: time.Second, retryInterval: 100 * time.Millisecond, probeInterval: time.Second, probeTimeout: 2 * time.Second,
		stateInterval: 250 * time.Millisecond, stateRecheck: 100 * time.Millisecond, maxSuspended: 2,
		volumeInterval: 3 * time.Second, lease: lease, maxUnanswered: 2, maxLookups: 4, slowFactor: 4,
		startLimit: 30 * time.Second, hangLimit: 30 * time.Second,
		minUptime: 10 * time.Second, backoff: 500 * time.Millisecond, maxBackoff: 4 * time.Second, exitWindow: time.Minute, maxExits: 5,
	}
}

// action is what the supervisor must do.
type action int

const (
	// startServer starts a server; exited reports when it has exited.
	startServer action = iota + 1
	// killServer kills it at once.
	killServer
	// probeLookup asks the server for the export. probeNull asks a server that did not answer a lookup for any answer.
	// probed reports the result.
	probeLookup
	probeNull
	// checkVolume reads from the volume. writeVolume also writes to it. checked reports the result.
	checkVolume
	writeVolume
)

// phase is the state of a server.
//
//	        startServer              lookup answered           lookup not answered
//	stopped ───────────► starting ──────────────────► serving ◄──────────────────► silent
//	   ▲                    │                                    lookup answered      │
//	   │ exited, from any   │ too late: killServer                  hangs: killServer │
//	   │ phase              ▼                                                         │
//	   └───────────────── killed ◄────────────────────────────────────────────────────┘
//
// A server that is suspended in one of the phases starting, serving and silent is killed, too (killServer).
type phase int

const (
	// stopped: no server runs.
	stopped phase = iota
	// starting: a server runs and has not answered a lookup yet.
	starting
	// serving: the server answered the last lookup.
	serving
	// silent: the server has answered before, and not the last lookup.
	silent
	// killed: the server was killed and has not exited yet.
	killed
)

// hasAnswered reports whether the server has answered a lookup since it started. It is false for a killed server.
func (p phase) hasAnswered() bool { return p == serving || p == silent }

// watch is the supervisor's knowledge of a share. Its methods receive events and their times, counted from some fixed
// moment, and decide. They do nothing themselves.
//
// A server that does not answer is killed only if all of this is true. The volume was written after the server's first
// silence. The server did not answer a question after that. A slow volume does not explain so long a silence. A server
// that waits for its volume does not hang.
type watch struct {
	t     timing
	last  time.Duration // of the last checkStall; 0: none
	phase phase
	// number is the number of the server, so that an outcome of a former server can be recognised.
	number int

	started, killedAt, restartAt time.Duration
	exits                        []time.Duration
	neverAnswered                int // servers in succession that exited without an answer
	shortRuns                    int // in succession

	suspended      int           // checks in succession that found the server suspended
	nextStateCheck time.Duration // not before this time

	probing    bool
	probe      action // the open question, or the last one
	probeSince time.Duration
	nextProbe  time.Duration
	unanswered int           // questions without an answer in succession
	lookups    int           // lookups without an answer in succession
	silentFrom time.Duration // when the first of these lookups was sent

	checking   bool
	checkSince time.Duration
	nextCheck  time.Duration
	wantWrite  bool          // at the next check
	writing    bool          // the check under way writes
	wroteAt    time.Duration // when the volume was written since silentFrom; 0: not yet
	slowest    time.Duration // slowest check of the volume since then
}

// checkStall must be called before any other method, and at least every maxStepInterval.
func (w *watch) checkStall(now time.Duration) error {
	if w.last != 0 && now-w.last > w.t.lease {
		return fmt.Errorf("%w: %s", ErrStalled, (now - w.last).Round(time.Millisecond))
	}
	w.last = now
	return nil
}

// step decides what to do now.
func (w *watch) step(now time.Duration) ([]action, error) {
	switch {
	case w.phase == killed && now-w.killedAt > w.t.hangLimit:
		return nil, fmt.Errorf("%w for %s", ErrServerStuck, now-w.killedAt)
	case w.checking && now-w.checkSince > w.t.hangLimit:
		return nil, fmt.Errorf("%w for %s", ErrVolumeHangs, now-w.checkSince)
	}
	var acts []action
	if !w.checking && now >= w.nextCheck {
		w.checking, w.checkSince, w.writing = true, now, w.wantWrite
		if w.wantWrite {
			acts = append(acts, writeVolume)
		} else {
			acts = append(acts, checkVolume)
		}
	}
	switch w.phase {
	case stopped:
		if now >= w.restartAt {
			w.phase, w.probing, w.unanswered, w.lookups = starting, false, 0, 0
			w.started, w.nextProbe = now, now+w.t.retryInterval
			w.suspended, w.nextStateCheck = 0, now+w.t.stateInterval
			w.number++
			acts = append(acts, startServer)
		}
	case starting:
		if now-w.started > w.t.startLimit {
			return append(acts, w.kill(now)), nil
		}
		acts = append(acts, w.nextProbes(now)...)
	case serving, silent:
		acts = append(acts, w.nextProbes(now)...)
	case killed:
	}
	return acts, nil
}

// nextProbes asks the server, if that is due. It asks for the export, or for any answer after a lookup without an
// answer.
func (w *watch) nextProbes(now time.Duration) []action {
	if w.probing || now < w.nextProbe {
		return nil
	}
	w.probing, w.probeSince = true, now
	if w.phase == silent && w.probe == probeLookup {
		w.probe = probeNull
	} else {
		w.probe = probeLookup
	}
	return []action{w.probe}
}

// runs reports whether a server runs that was not killed.
func (w *watch) runs() bool { return w.phase != stopped && w.phase != killed }

// needsStateCheck reports whether it is time to check the state of the server's process. If so, stateChecked must be
// called.
func (w *watch) needsStateCheck(now time.Duration) bool { return w.runs() && now >= w.nextStateCheck }

// stateChecked receives whether the server's process is suspended: it answers nothing until another process lets it
// continue. One check is not enough, because this process and its server may be stopped and continued together.
func (w *watch) stateChecked(now time.Duration, suspended bool) []action {
	w.nextStateCheck = now + w.t.stateInterval
	if !suspended {
		w.suspended = 0
		return nil
	}
	w.suspended++
	w.nextStateCheck = now + w.t.stateRecheck
	if w.suspended < w.t.maxSuspended {
		return nil
	}
	return []action{w.kill(now)}
}

// due is the latest time for the next step.
func (w *watch) due(now time.Duration) time.Duration {
	due := now + w.t.maxStepInterval
	switch {
	case w.phase == stopped:
		due = min(due, w.restartAt)
	case w.runs():
		due = min(due, w.nextStateCheck)
		if !w.probing {
			due = min(due, w.nextProbe)
		}
	}
	if !w.checking {
		due = min(due, w.nextCheck)
	}
	return max(due, now)
}

func (w *watch) kill(now time.Duration) action {
	w.countUnanswered()
	w.phase, w.killedAt = killed, now
	return killServer
}

// countUnanswered counts a server that exits, or is killed, before its first answer.
func (w *watch) countUnanswered() {
	if w.phase == starting {
		w.neverAnswered++
	}
}

// exited must be called when a server has exited.
func (w *watch) exited(now time.Duration) error {
	w.countUnanswered()
	w.exits = append(w.exits, now)
	for now-w.exits[0] > w.t.exitWindow {
		w.exits = w.exits[1:]
	}
	w.restartAt = now
	if now-w.started < w.t.minUptime {
		w.restartAt += backoff.After(w.t.backoff, w.t.maxBackoff, w.shortRuns)
		w.shortRuns++
	} else {
		w.shortRuns = 0
	}
	w.phase, w.probing = stopped, false
	if len(w.exits) >= w.t.maxExits || w.neverAnswered >= w.t.maxExits {
		return fmt.Errorf("%w: %d exits within %s, %d servers in succession without an answer", ErrServerExits, len(w.exits), w.t.exitWindow, w.neverAnswered)
	}
	return nil
}

// probed receives the result of a question to the server with a number.
func (w *watch) probed(now time.Duration, number int, err error) []action {
	if number != w.number || w.phase == stopped || w.phase == killed {
		return nil
	}
	w.probing, w.nextProbe = false, now+w.t.retryInterval
	switch {
	case err == nil && w.probe == probeNull:
		w.unanswered = 0
		return nil
	case err == nil:
		w.phase, w.unanswered, w.lookups, w.neverAnswered, w.wantWrite = serving, 0, 0, 0, false
		w.nextProbe = now + w.t.probeInterval
		return nil
	case w.phase == starting:
		return nil
	case w.phase == serving:
		w.phase = silent
		w.silentFrom, w.wroteAt, w.slowest, w.wantWrite, w.nextCheck = w.probeSince, 0, 0, true, now
	}
	w.unanswered++
	if w.probe == probeLookup {
		w.lookups++
	}
	if w.isServerHung(now) {
		return []action{w.kill(now)}
	}
	return nil
}

// isServerHung reports whether the server itself is the reason for its silence, and the silence is long enough.
func (w *watch) isServerHung(now time.Duration) bool {
	if w.unanswered < w.t.maxUnanswered && w.lookups < w.t.maxLookups {
		return false
	}
	slowest := w.slowest
	if w.checking {
		slowest = max(slowest, now-w.checkSince)
	}
	return w.wroteAt != 0 && w.probeSince >= w.wroteAt && now-w.silentFrom >= time.Duration(w.t.slowFactor)*slowest
}

// checked receives the result of a check of the volume.
func (w *watch) checked(now time.Duration, err error) error {
	w.slowest = max(w.slowest, now-w.checkSince)
	if w.writing && err == nil {
		w.wroteAt, w.wantWrite = now, false
	}
	w.checking, w.nextCheck = false, now+w.t.volumeInterval
	if w.wantWrite {
		w.nextCheck = now
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVolumeFailed, err)
	}
	return nil
}

// serving reports whether clients are served, as far as is known: a server that is silent while the volume accepts
// writes serves none.
func (w *watch) serving(now time.Duration) bool {
	isServed := w.phase == serving || w.phase == silent && w.wroteAt == 0
	return isServed && (!w.checking || now-w.checkSince <= 2*w.t.volumeInterval)
}
