package share

import (
	"errors"
	"fmt"
	"time"
)

// Why a share manager gives up.
var (
	// ErrStalled means that this process did not run for longer than its clients' leases
	// last, so that another share manager may have taken its place.
	ErrStalled = errors.New("this process stood still for longer than the lease")
	// ErrServerDies means that the NFS server cannot be kept running.
	ErrServerDies = errors.New("the NFS server dies again and again")
	// ErrServerStuck means that the NFS server was killed and does not end.
	ErrServerStuck = errors.New("the NFS server was killed and does not end")
	// ErrVolumeHangs means that the volume does not answer.
	ErrVolumeHangs = errors.New("the volume does not answer")
	// ErrVolumeFailed means that the volume answers with errors.
	ErrVolumeFailed = errors.New("the volume failed")
)

// timing is how often a share is looked at, and how much is put up with.
type timing struct {
	// pulse is the longest time between two steps, and early that between two probes of
	// a server that has not answered yet.
	pulse, early time.Duration
	// round is the time between two probes, and between two checks of the volume.
	round time.Duration
	// lease is the longest time that may lie between two of them.
	lease time.Duration
	// failures is after how many probes without an answer a server is killed.
	failures int
	// starting is how long a server may take for its first answer.
	starting time.Duration
	// patience is how long a volume may take to answer, and a killed server to end.
	patience time.Duration
	// A server that dies younger than young is started again after backoff, which
	// doubles up to maxBackoff; deaths of them within window are too many.
	young, backoff, maxBackoff, window time.Duration
	deaths                             int
}

func defaultTiming(lease time.Duration) timing {
	return timing{
		pulse: time.Second, early: 100 * time.Millisecond, round: 3 * time.Second, lease: lease, failures: 2,
		starting: 30 * time.Second, patience: 30 * time.Second,
		young: 10 * time.Second, backoff: 500 * time.Millisecond, maxBackoff: 4 * time.Second, window: time.Minute, deaths: 5,
	}
}

// act is what the supervisor shall do.
type act int

const (
	// actStart starts a server; its end is told by exited.
	actStart act = iota + 1
	// actKill ends it at once.
	actKill
	// actLookup asks the server for the export, actNull for any answer; told by probed.
	actLookup
	actNull
	// actCheck reads from the volume, actWrite writes to it, too; told by checked.
	actCheck
	actWrite
)

// watch is what the supervisor knows of a share. Its methods are told what happened and
// when, in time since some fixed moment, and decide; they do nothing themselves.
//
//	            exited                          exited
//	   ┌───────────────────────┐      ┌──────────────────────┐
//	   ▼                       │      ▼                      │
//	no server ──actStart──► started ──answer──► answered ──actKill──► killed
//	   ▲                       └───── too late ────────────────────────►│
//	   └──────────────────────────────────────────────── exited ────────┘
//
// A server that does not answer is killed only when the volume was written after its
// first silence, and it was silent to a probe after that: a server that waits for its
// volume does not hang.
type watch struct {
	t        timing
	last     time.Duration // of the last awake; 0: none
	running  bool
	answered bool
	// number is that of the server, so that news of a former one is known as such.
	number int

	started, killedAt, restartAt time.Duration
	killed                       bool
	deaths                       []time.Duration
	barren                       int // servers in succession that died without an answer
	youngDeaths                  int // in succession

	probing    bool
	probeSince time.Duration
	nextProbe  time.Duration
	failures   int // probes without an answer in succession

	checking   bool
	checkSince time.Duration
	nextCheck  time.Duration
	wantWrite  bool          // at the next check
	writing    bool          // the check under way writes
	wroteAt    time.Duration // the volume was written since the first of failures; 0: not yet
}

// awake must be called before anything else is done, and at least every pulse.
func (w *watch) awake(now time.Duration) error {
	if w.last != 0 && now-w.last > w.t.lease {
		return fmt.Errorf("%w: %s", ErrStalled, (now - w.last).Round(time.Millisecond))
	}
	w.last = now
	return nil
}

// step decides what is to be done now.
func (w *watch) step(now time.Duration) ([]act, error) {
	switch {
	case w.killed && now-w.killedAt > w.t.patience:
		return nil, fmt.Errorf("%w for %s", ErrServerStuck, now-w.killedAt)
	case w.checking && now-w.checkSince > w.t.patience:
		return nil, fmt.Errorf("%w for %s", ErrVolumeHangs, now-w.checkSince)
	}
	var acts []act
	if !w.checking && now >= w.nextCheck {
		w.checking, w.checkSince, w.writing = true, now, w.wantWrite
		if w.wantWrite {
			acts = append(acts, actWrite)
		} else {
			acts = append(acts, actCheck)
		}
	}
	switch {
	case !w.running && now >= w.restartAt:
		w.running, w.answered, w.probing, w.killed, w.failures = true, false, false, false, 0
		w.started, w.nextProbe = now, now+w.t.early
		w.number++
		acts = append(acts, actStart)
	case !w.running || w.killed:
	case !w.answered && now-w.started > w.t.starting:
		acts = append(acts, w.kill(now))
	case !w.probing && now >= w.nextProbe:
		w.probing, w.probeSince = true, now
		if w.answered {
			acts = append(acts, actNull)
		} else {
			acts = append(acts, actLookup)
		}
	}
	return acts, nil
}

// due is when the next step must be at the latest.
func (w *watch) due(now time.Duration) time.Duration {
	due := now + w.t.pulse
	if !w.running {
		due = min(due, w.restartAt)
	}
	if w.running && !w.probing && !w.killed {
		due = min(due, w.nextProbe)
	}
	if !w.checking {
		due = min(due, w.nextCheck)
	}
	return max(due, now)
}

func (w *watch) kill(now time.Duration) act {
	w.killed, w.killedAt = true, now
	return actKill
}

// exited is told when a server has ended.
func (w *watch) exited(now time.Duration) error {
	if !w.answered {
		w.barren++
	}
	w.deaths = append(w.deaths, now)
	for now-w.deaths[0] > w.t.window {
		w.deaths = w.deaths[1:]
	}
	w.restartAt = now
	if now-w.started < w.t.young {
		w.restartAt += min(w.t.backoff<<min(w.youngDeaths, 10), w.t.maxBackoff)
		w.youngDeaths++
	} else {
		w.youngDeaths = 0
	}
	w.running, w.answered, w.probing, w.killed = false, false, false, false
	if len(w.deaths) >= w.t.deaths || w.barren >= w.t.deaths {
		return fmt.Errorf("%w: %d times within %s, %d times without an answer", ErrServerDies, len(w.deaths), w.t.window, w.barren)
	}
	return nil
}

// probed is told how a probe of the server of a number ended.
func (w *watch) probed(now time.Duration, number int, err error) []act {
	if number != w.number || !w.running || w.killed {
		return nil
	}
	w.probing = false
	switch {
	case err == nil:
		w.answered, w.failures, w.barren, w.wantWrite = true, 0, 0, false
		w.nextProbe = now + w.t.round
		return nil
	case !w.answered:
		w.nextProbe = now + w.t.early
		return nil
	}
	if w.failures == 0 {
		w.wroteAt, w.wantWrite, w.nextCheck = 0, true, now
	}
	w.failures++
	w.nextProbe = now + w.t.early
	if w.failures >= w.t.failures && w.wroteAt != 0 && w.probeSince >= w.wroteAt {
		return []act{w.kill(now)}
	}
	return nil
}

// checked is told how a check of the volume ended.
func (w *watch) checked(now time.Duration, err error) error {
	if w.writing && err == nil {
		w.wroteAt, w.wantWrite = now, false
	}
	w.checking, w.nextCheck = false, now+w.t.round
	if w.wantWrite {
		w.nextCheck = now
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrVolumeFailed, err)
	}
	return nil
}

// serving tells whether clients are served, as far as is known.
func (w *watch) serving(now time.Duration) bool {
	return w.running && w.answered && !w.killed && (!w.checking || now-w.checkSince <= 2*w.t.round)
}
