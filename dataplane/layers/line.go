package layers

import (
	"errors"
	"fmt"
	"slices"
)

// Number orders the operations on a volume's line. Each snapshot, each revert and each hidden point of a rebuild takes
// the next number. A number is used once, except after the object was restored from a backup. Therefore points also
// have a nonce.
type Number int64

// Point identifies the border between two layers.
type Point struct {
	Number Number `json:"number"`
	Nonce  uint64 `json:"nonce"` // random
}

// State is the state of a point in the Engine object.
type State int

const (
	// Unknown: the point is not in the line. The object never stores this value.
	Unknown State = iota
	// Intended: an attempt is under way. The next start, or the end of the attempt, takes the point out of the line.
	Intended
	// Ready: every member had flushed everything below the point before the object recorded this.
	Ready
	// Deleted: no user sees the point any longer. Replicas merge it away when no job holds it.
	Deleted
)

// Mark is one entry of the line.
type Mark struct {
	Point
	State State `json:"state"`
	// Holds names the jobs (export, clone, backup) that read the view at this point.
	Holds []string `json:"holds,omitempty"`
	// Group names the group object that alone decides about an intended point; empty for a snapshot of one volume.
	Group string `json:"group,omitempty"`
}

// Interval has the numbers that a revert gave up: those above To and below By. To is the point to which the volume
// returned, and By is the number that the revert took.
type Interval struct {
	To Number `json:"to"`
	By Number `json:"by"`
}

// gaveUp reports whether the interval contains a border with this number.
func (i Interval) gaveUp(n Number) bool { return i.To < n && n < i.By }

// stale reports whether a layer that stands on this number has content that the interval gave up. A layer that stands
// on To was written before the revert: layers written after it stand on By.
func (i Interval) stale(from Number) bool { return i.To <= from && from < i.By }

// Line is the part of the Engine object about points. The zero value is the line of a volume that never had a snapshot.
type Line struct {
	Counter Number `json:"counter"`
	Points  []Mark `json:"points,omitempty"` // by number, ascending
	// Reverted has the last revert, and no other one. See Revert.
	Reverted []Interval `json:"reverted,omitempty"`
	// Bases are the points since which jobs ask what has changed. A base may have left Points.
	Bases []Base `json:"bases,omitempty"`
}

var (
	// ErrBusy says that another operation on points is under way.
	ErrBusy = errors.New("another snapshot operation of this volume is in progress")
	// ErrNoPoint says that the line has no such point in the required state.
	ErrNoPoint = errors.New("the volume has no such snapshot")
	// ErrLaterSnapshots says that a revert would give up later snapshots.
	ErrLaterSnapshots = errors.New("later snapshots exist")
	// ErrHeld says that a job reads the view at a point.
	ErrHeld = errors.New("a job is reading the snapshot")
)

// State returns the state of a point. A point with another nonce is not in the line.
func (l Line) State(p Point) State {
	if i := l.index(p.Number); i >= 0 && l.Points[i].Nonce == p.Nonce {
		return l.Points[i].State
	}
	return Unknown
}

func (l Line) index(n Number) int {
	return slices.IndexFunc(l.Points, func(m Mark) bool { return m.Number == n })
}

// Intend adds the next point to the line. It is the second step of the barrier: the object records the point before any
// replica does.
func (l Line) Intend(nonce uint64, group string) (Line, Point, error) {
	if slices.ContainsFunc(l.Points, func(m Mark) bool { return m.State == Intended }) {
		return l, Point{}, ErrBusy
	}
	l = l.clone()
	l.Counter++
	p := Point{Number: l.Counter, Nonce: nonce}
	l.Points = append(l.Points, Mark{Point: p, State: Intended, Group: group})
	return l, p, nil
}

// Ready records that a snapshot is complete. The caller must use a compare-and-swap under the epoch that was in force
// when the members switched, and ReadyAllowed must have agreed.
func (l Line) Ready(p Point) (Line, error) { return l.change(p, Intended, Ready) }

// ReadyAllowed decides whether an intended point may become ready. atSwitch are the members of the epoch that was in
// force when the gate was shut. now are all replicas that an epoch lists now, in force or proposed. sealed are those
// that have made "flushed" durable for this point.
func ReadyAllowed(atSwitch, now, sealed []string) bool {
	a, b := slices.Sorted(slices.Values(atSwitch)), slices.Sorted(slices.Values(now))
	return len(a) > 0 && slices.Equal(a, b) && !slices.ContainsFunc(a, func(r string) bool { return !slices.Contains(sealed, r) })
}

// GiveUp takes an intended point out of the line. Only then the engine may answer the caller that the snapshot failed.
// Replicas merge the border away.
func (l Line) GiveUp(p Point) (Line, error) {
	if l.State(p) != Intended {
		return l, fmt.Errorf("point %d: %w", p.Number, ErrNoPoint)
	}
	return l.without(p.Number), nil
}

// Delete marks a snapshot as deleted. The user sees this at once, whatever merges do later.
func (l Line) Delete(p Point) (Line, error) { return l.change(p, Ready, Deleted) }

// Forget takes a deleted point out of the line. The caller must know that no member shows it any longer. A replica that
// is away and shows the border merges it away when it comes back.
func (l Line) Forget(p Point) (Line, error) {
	i := l.index(p.Number)
	switch {
	case l.State(p) != Deleted:
		return l, fmt.Errorf("point %d: %w", p.Number, ErrNoPoint)
	case len(l.Points[i].Holds) > 0:
		return l, fmt.Errorf("point %d, job %s: %w", p.Number, l.Points[i].Holds[0], ErrHeld)
	}
	return l.without(p.Number), nil
}

// Hold records that a job reads the view at a point. The object has the hold before the job reads. A deleted point can
// no longer be taken, because its merge may have started.
func (l Line) Hold(p Point, job string) (Line, error) {
	if l.State(p) != Ready {
		return l, fmt.Errorf("point %d: %w", p.Number, ErrNoPoint)
	}
	l = l.clone()
	m := &l.Points[l.index(p.Number)]
	if !slices.Contains(m.Holds, job) {
		m.Holds = append(slices.Clone(m.Holds), job)
	}
	return l, nil
}

// Release ends a hold. It is safe to repeat.
func (l Line) Release(p Point, job string) Line {
	l = l.clone()
	if i := l.index(p.Number); i >= 0 && l.Points[i].Nonce == p.Nonce {
		l.Points[i].Holds = slices.DeleteFunc(slices.Clone(l.Points[i].Holds), func(j string) bool { return j == job })
	}
	return l
}

// Revert returns the volume to a ready point. The object records the result before any replica changes. It refuses
// while later snapshots exist, unless letGo names all of them, or while a job reads a later point.
//
// The new interval replaces an earlier one. If the new one returns to the same point or to an earlier one, it contains
// the earlier interval. Otherwise a point exists that is newer than the earlier revert. An engine that serves users made
// it, and before it served them, every replica that the object lists had followed the earlier revert. A replica that the
// object does not list is rebuilt: all that it has above the newest common point is replaced, so it needs no interval.
func (l Line) Revert(to Point, letGo ...Number) (Line, error) {
	if l.State(to) != Ready {
		return l, fmt.Errorf("point %d: %w", to.Number, ErrNoPoint)
	}
	var kept []Mark
	for _, m := range l.Points {
		switch {
		case m.State == Intended:
			return l, ErrBusy
		case m.Number <= to.Number:
			kept = append(kept, m)
		case m.State == Ready && !slices.Contains(letGo, m.Number):
			return l, fmt.Errorf("%w: point %d", ErrLaterSnapshots, m.Number)
		case len(m.Holds) > 0:
			return l, fmt.Errorf("point %d, job %s: %w", m.Number, m.Holds[0], ErrHeld)
		}
	}
	l = l.clone()
	l.Points = kept
	l.Counter++
	last := Interval{To: to.Number, By: l.Counter}
	l.Reverted, l.Bases = []Interval{last}, last.basesLeft(l.Bases)
	return l, nil
}

func (l Line) change(p Point, from, to State) (Line, error) {
	if l.State(p) != from {
		return l, fmt.Errorf("point %d: %w", p.Number, ErrNoPoint)
	}
	l = l.clone()
	l.Points[l.index(p.Number)].State = to
	return l, nil
}

func (l Line) without(n Number) Line {
	l = l.clone()
	l.Points = slices.DeleteFunc(l.Points, func(m Mark) bool { return m.Number == n })
	return l
}

func (l Line) clone() Line {
	l.Points, l.Reverted, l.Bases = slices.Clone(l.Points), slices.Clone(l.Reverted), slices.Clone(l.Bases)
	return l
}
