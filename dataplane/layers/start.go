package layers

import (
	"errors"
	"fmt"
	"slices"
)

// ErrTwoNonces says that one number names two points. The object, or a replica, is from another history of the volume.
// Nothing starts.
var ErrTwoNonces = errors.New("the cluster's record of snapshots does not match the data")

// Outcome is the decision of a group object about its points.
type Outcome int

const (
	// Failed: the group object says so. A start that finds a group undecided first writes this into the group object.
	Failed Outcome = iota
	// Complete: all volumes of the group have sealed.
	Complete
)

// Start is the line with which an engine starts.
type Start struct {
	Line Line
	// Adopted are points of the members that the object did not know, because it was restored from a backup. They are
	// not named by any Snapshot object that the backup has.
	Adopted []Point
	// Lost are ready points that a member no longer shows, or that a revert gave up, which the object had forgotten.
	// The Snapshot objects must say so.
	Lost []Point
}

// PlanStart decides the line with which an engine starts. The object records it in the same write as the engine's first
// epoch, before any member follows it. members are the chains of all members that take part in the start. Their stored
// epochs allow the start (membership.PlanStart), so a point that the object does not know belongs to the recorded
// epoch. groups has the outcome of each group that an intended point names.
//
//  1. an intended point leaves the line, except when its group object says Complete
//  2. a revert above the counter, which a member has followed, is adopted: the other members must follow it as well
//  3. a point above the counter is adopted if every member shows it as flushed. Members merge others away
//  4. a ready point that a member does not show, after it has followed the reverts, leaves the line
//  5. the counter becomes the highest number that was seen, so that no number is used twice
func PlanStart(l Line, members []Chain, groups map[string]Outcome) (Start, error) {
	if err := oneNonce(l, members); err != nil {
		return Start{}, err
	}
	s := Start{Line: l.clone()}
	s.Line.Points = slices.DeleteFunc(s.Line.Points, func(m Mark) bool {
		return m.State == Intended && (m.Group == "" || groups[m.Group] != Complete)
	})
	for i := range s.Line.Points {
		if s.Line.Points[i].State == Intended {
			s.Line.Points[i].State = Ready
		}
	}
	s.adoptReverts(l.Counter, members)
	s.adoptPoints(l.Counter, members)
	s.removeLost(members)
	for _, c := range members {
		s.Line.Counter = max(s.Line.Counter, c.highest())
	}
	return s, nil
}

func oneNonce(l Line, members []Chain) error {
	nonce := map[Number]uint64{}
	for _, m := range l.Points {
		nonce[m.Number] = m.Nonce
	}
	for _, c := range members {
		for _, layer := range c.Layers {
			n := layer.Top.Number
			if known, ok := nonce[n]; ok && known != layer.Top.Nonce {
				return fmt.Errorf("%w: point %d", ErrTwoNonces, n)
			}
			if n > 0 {
				nonce[n] = layer.Top.Nonce
			}
		}
	}
	return nil
}

// highest is the highest number that a chain shows.
func (c Chain) highest() Number {
	n := c.Reverted.By
	for _, l := range c.Layers {
		n = max(n, l.From, l.Top.Number)
	}
	return n
}

func (s *Start) adoptReverts(counter Number, members []Chain) {
	for _, c := range members {
		if r := c.Reverted; r.By > counter && !slices.Contains(s.Line.Reverted, r) {
			s.Line.Reverted = append(s.Line.Reverted, r)
		}
	}
	s.Line.Points = slices.DeleteFunc(s.Line.Points, func(m Mark) bool {
		gone := slices.ContainsFunc(s.Line.Reverted, func(i Interval) bool { return i.By > counter && i.gaveUp(m.Number) })
		if gone && m.State == Ready {
			s.Lost = append(s.Lost, m.Point)
		}
		return gone
	})
	// The newest one is enough, as in Revert: every member has followed the other ones, or the newest one contains them.
	for _, r := range s.Line.Reverted {
		s.Line.Bases = r.basesLeft(s.Line.Bases)
		if r.By > s.Line.Reverted[0].By {
			s.Line.Reverted[0] = r
		}
	}
	s.Line.Reverted = s.Line.Reverted[:min(1, len(s.Line.Reverted))]
}

// adoptPoints examines the borders of the first member. A point that it lacks is not on every member.
func (s *Start) adoptPoints(counter Number, members []Chain) {
	if len(members) == 0 {
		return
	}
	for _, l := range members[0].Layers {
		p := l.Top.Point
		if p.Number <= counter || slices.ContainsFunc(s.Line.Reverted, func(i Interval) bool { return i.gaveUp(p.Number) }) {
			continue
		}
		if everyMemberHas(members, p) {
			s.Line.Points = append(s.Line.Points, Mark{Point: p, State: Ready})
			s.Adopted = append(s.Adopted, p)
		}
	}
}

func everyMemberHas(members []Chain, p Point) bool {
	return !slices.ContainsFunc(members, func(c Chain) bool {
		i := c.Border(p)
		return i < 0 || !c.Layers[i].Top.Flushed
	})
}

func (s *Start) removeLost(members []Chain) {
	s.Line.Points = slices.DeleteFunc(s.Line.Points, func(m Mark) bool {
		lost := m.State == Ready && !everyMemberHas(members, m.Point)
		if lost {
			s.Lost = append(s.Lost, m.Point)
		}
		return lost
	})
}
