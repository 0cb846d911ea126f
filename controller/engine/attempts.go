package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// attempts has the calls by which this process takes snapshots, and what it has passed to each engine. A call must not
// block the sync of its engine: the engine may propose an epoch during the call, and only a sync records it.
//
// An intended point that this process finds when it sees an engine's session for the first time is not its own: an
// earlier process may have made the call. A point with a higher number was intended later.
type attempts struct {
	mu       sync.Mutex
	sessions map[string]*session // by engine; guarded by mu
	calls    sync.WaitGroup
}

type session struct {
	id string
	// known is the counter of the line when this process first saw the session.
	known int64
	// passed says that this process has passed a line to the engine.
	passed bool
	point  layers.Point // of the call; zero: none was made
	ended  *Attempt     // nil while the call is under way
}

// look returns the attempt of the intended point, and whether this process has passed a line to the engine. It forgets
// the session before.
func (a *attempts) look(e *longhorn.Engine, o Observed) (attempt Attempt, passed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.Session == "" || o.Session != e.Status.Session {
		return Attempt{}, false
	}
	if a.sessions == nil {
		a.sessions = map[string]*session{}
	}
	s := a.sessions[e.Name]
	if s == nil || s.id != o.Session {
		s = &session{id: o.Session, known: counterOf(e)}
		a.sessions[e.Name] = s
	}
	intended := line.Intended(e.Status.Line)
	switch {
	case intended == nil:
		return Attempt{}, s.passed
	case s.point == line.Point(*intended) && s.ended != nil:
		return *s.ended, s.passed
	case s.point == line.Point(*intended):
		return Attempt{State: AttemptRunning}, s.passed
	case intended.Number <= s.known:
		return Attempt{State: AttemptUnknown}, s.passed
	}
	return Attempt{State: AttemptNew}, s.passed
}

func counterOf(e *longhorn.Engine) int64 {
	if e.Status.Line == nil {
		return 0
	}
	return e.Status.Line.Counter
}

// forget drops the record of an engine that this node no longer has.
func (a *attempts) forget(engine string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, engine)
}

// begin notes that the call for a point starts. It returns false if this process has started it before, or if the
// session is another one.
func (a *attempts) begin(engine, id string, p layers.Point) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[engine]
	if s == nil || s.id != id || s.point == p {
		return false
	}
	s.point, s.ended = p, nil
	return true
}

func (a *attempts) end(engine, id string, p layers.Point, result Snapshot, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[engine]; s != nil && s.id == id && s.point == p {
		s.ended = &Attempt{State: AttemptEnded, Result: result, Err: err}
	}
}

// notePassed notes whether the last attempt to pass a line has succeeded.
func (a *attempts) notePassed(engine, id string, passed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[engine]; s != nil && s.id == id {
		s.passed = passed
	}
}

// snapshotPatience bounds a call. The barrier has its own deadlines; this one is for a process that hangs.
const snapshotPatience = 2 * time.Minute

// snapshot makes the call for a point, which the API server has recorded as intended. The call outlives the sync.
func (c *Controller) snapshot(ctx context.Context, e *longhorn.Engine, p layers.Point) {
	if !c.attempts.begin(e.Name, e.Status.Session, p) {
		return
	}
	log := queue.Log(ctx).WithField(logfields.Engine, e.Name).WithField("point", p.Number)
	log.Info("taking a snapshot")
	c.attempts.calls.Go(func() {
		limited, cancel := context.WithTimeout(ctx, snapshotPatience)
		defer cancel()
		result, err := c.DataPlane.TakeSnapshot(limited, e.Name, e.Status.Session, line.Rules(e.Status.Line), p)
		result.At = c.Clock.Now()
		c.attempts.end(e.Name, e.Status.Session, p, result, err)
		if err != nil {
			log.WithError(err).Warn("The snapshot was not taken")
		} else {
			log.WithField("pause", result.Pause).Info("All members have stored the snapshot")
		}
		c.queue.Add(e.Name)
	})
}

// setLine makes the engine follow the line of the object.
func (c *Controller) setLine(ctx context.Context, e *longhorn.Engine) error {
	if err := c.DataPlane.SetLine(ctx, e.Name, e.Status.Session, line.Rules(e.Status.Line)); err != nil {
		c.attempts.notePassed(e.Name, e.Status.Session, false)
		return fmt.Errorf("pass the record of snapshots to the engine: %w", err)
	}
	c.attempts.notePassed(e.Name, e.Status.Session, true)
	return nil
}
