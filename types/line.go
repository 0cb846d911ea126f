package types

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// The reasons why a volume cannot return to a snapshot. The texts complete a sentence about the snapshot.
var (
	// ErrPointNotReady: the line has no such snapshot, or it is not complete, or it was deleted.
	ErrPointNotReady = errors.New("it is not ready")
	// ErrLineBusy: an attempt to take a snapshot is under way.
	ErrLineBusy = errors.New("a snapshot of the volume is being taken")
	// ErrLaterSnapshots: snapshots exist that are newer than the target. The error names them.
	ErrLaterSnapshots = errors.New("later snapshots exist, and they would be lost")
	// ErrPointHeld: a job reads a snapshot that is newer than the target. The error names it.
	ErrPointHeld = errors.New("a job is reading a later snapshot")
)

// RevertLine returns the line of a volume that returns to a snapshot, with the name of the snapshot. It does not modify
// l. It follows the rules of Line.Revert in package dataplane/layers, which package manager must not import: a test of
// package app compares both. The caller writes the result by compare-and-swap while no engine of the volume runs.
func RevertLine(l *longhorn.Line, snapshot string) (*longhorn.Line, error) {
	to, ok := readyPoint(l, snapshot)
	if !ok {
		return nil, ErrPointNotReady
	}
	var kept []longhorn.LinePoint
	var later, held []string
	for _, p := range l.Points {
		switch {
		case p.State == longhorn.PointStateIntended:
			return nil, ErrLineBusy
		case p.Number <= to.Number:
			kept = append(kept, p)
		case p.State == longhorn.PointStateReady:
			later = append(later, pointName(p))
		case len(p.Holds) > 0:
			held = append(held, fmt.Sprintf("%s (%s)", pointName(p), strings.Join(p.Holds, ", ")))
		}
	}
	switch {
	case len(later) > 0:
		return nil, fmt.Errorf("%w: %s", ErrLaterSnapshots, strings.Join(later, ", "))
	case len(held) > 0:
		return nil, fmt.Errorf("%w: %s", ErrPointHeld, strings.Join(held, ", "))
	}
	reverted := l.DeepCopy()
	reverted.Counter++
	reverted.Points = kept
	reverted.Reverted = &longhorn.LineInterval{To: to.Number, By: reverted.Counter}
	reverted.Bases = slices.DeleteFunc(reverted.Bases, func(b longhorn.LineBase) bool {
		return to.Number < b.Number && b.Number < reverted.Counter
	})
	return reverted, nil
}

// readyPoint returns the ready point of a snapshot. A deleted snapshot may have had the same name.
func readyPoint(l *longhorn.Line, snapshot string) (longhorn.LinePoint, bool) {
	if l == nil || snapshot == "" {
		return longhorn.LinePoint{}, false
	}
	i := slices.IndexFunc(l.Points, func(p longhorn.LinePoint) bool {
		return p.Name == snapshot && p.State == longhorn.PointStateReady
	})
	if i < 0 {
		return longhorn.LinePoint{}, false
	}
	return l.Points[i], true
}

// pointName returns the name of a point for users.
func pointName(p longhorn.LinePoint) string {
	if p.Name == "" {
		return fmt.Sprintf("number %d of the system", p.Number)
	}
	return p.Name
}
