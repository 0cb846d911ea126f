package engine

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Attempt is what this process knows about the attempt to take the snapshot of the intended point.
type Attempt struct {
	// State is empty without an intended point.
	State AttemptState
	// Result and Err are the end of the call, if State is AttemptEnded.
	Result Snapshot
	Err    error
}

// AttemptState is the state of an attempt in this process.
type AttemptState string

// The states of an attempt.
const (
	// AttemptNew: the point was intended while this process ran the engine's controller, and the call has not started.
	AttemptNew AttemptState = "new"
	// AttemptRunning: the call is under way. Its end causes another sync.
	AttemptRunning AttemptState = "running"
	AttemptEnded   AttemptState = "ended"
	// AttemptUnknown: an earlier process may have made the call, so the point may be older than writes that an answer to
	// another call would include. It is given up.
	AttemptUnknown AttemptState = "unknown"
)

// recordLine records the line that an engine proposes at its start, in the write that records its epoch. While the
// engine starts, no other client changes the line: the snapshot controller waits until the status says running.
func recordLine(in Input, s *longhorn.EngineStatus) {
	if proposed := in.Observed.ProposedLine; proposed != nil {
		s.Line = line.Started(*proposed, s.Line, in.Engine.Spec.VolumeName, int64(in.Engine.Spec.VolumeSize), in.Now)
	}
}

// planLine decides about the intended point, and makes the engine follow the line. It runs only while the engine
// proposes no epoch. A running engine with the line of the object, and without an intended point, needs nothing.
//
//	intended point, its call             the object           then
//	new                                  -                    the call
//	under way                            -                    -
//	has succeeded, the members are       ready                the engine gets the line
//	those of the switch
//	has failed, or members changed,      the point is given   the engine gets the line
//	or an earlier process may have       up, with the reason
//	made it
func planLine(in Input, p *Plan) {
	s, o := &p.Status, in.Observed
	if !o.Snapshots || s.Line == nil && o.Line == nil {
		return
	}
	if intended := line.Intended(s.Line); intended != nil {
		planAttempt(in, p, *intended)
		return
	}
	if p.Action == ActionNone && (!in.LinePassed || !equality.Semantic.DeepEqual(line.Rules(s.Line), ruled(o.Line))) {
		p.Action = ActionSetLine
	}
}

// planAttempt starts or ends the attempt of the intended point. If the line in force in the engine has the point, a
// call was made, whatever this process knows.
func planAttempt(in Input, p *Plan, intended longhorn.LinePoint) {
	point := line.Point(intended)
	switch state := in.Attempt.State; {
	case state == AttemptRunning:
	case state == AttemptNew && ruled(in.Observed.Line).State(point) == layers.Unknown:
		if p.Action == ActionNone {
			p.Action, p.Point = ActionSnapshot, point
		}
	default:
		settle(in, p, intended)
		p.Action, p.Replica = ActionSetLine, ""
	}
}

func ruled(l *layers.Line) layers.Line {
	if l == nil {
		return layers.Line{}
	}
	return *l
}

// settle records the end of an attempt: the point becomes ready or leaves the line.
func settle(in Input, p *Plan, intended longhorn.LinePoint) {
	s := &p.Status
	failure := whyGivenUp(in, s)
	if failure == nil {
		next, err := line.Ready(s.Line, line.Point(intended), in.Attempt.Result.At, in.Observed.SizeBytes)
		if err == nil {
			s.Line, s.SnapshotFailure = next, nil
			return
		}
		failure = &longhorn.SnapshotFailure{Reason: types.ReasonSnapshotFailed, Message: err.Error()}
	}
	next, err := line.Change(s.Line, line.Point(intended), layers.Line.GiveUp)
	if err != nil {
		panic("BUG: an intended point cannot be given up: " + err.Error())
	}
	failure.Number = intended.Number
	s.Line, s.SnapshotFailure = next, failure
}

// whyGivenUp returns why an intended point must not become ready; nil: it may. The decision and the epoch are in one
// object, so a write of the epoch by any other client makes the write of the decision fail.
func whyGivenUp(in Input, s *longhorn.EngineStatus) *longhorn.SnapshotFailure {
	a := in.Attempt
	if a.State != AttemptEnded {
		return &longhorn.SnapshotFailure{
			Reason: types.ReasonSnapshotInterrupted, Message: "the daemon of the engine's node was restarted during the attempt",
		}
	}
	if a.Err != nil {
		return failureOf(a.Err)
	}
	members, r := s.Epoch, a.Result
	if members == nil || members.Generation != r.Epoch.Generation || members.Counter != r.Epoch.Counter ||
		!layers.ReadyAllowed(r.Epoch.Members, listed(s, in.Observed), r.Sealed) {
		return &longhorn.SnapshotFailure{
			Reason: types.ReasonSnapshotMembersChanged, Message: fmt.Sprintf("the members of the volume changed during the attempt: it began with %v", r.Epoch.Members),
		}
	}
	return nil
}

// listed returns all replicas that an epoch lists, recorded or proposed.
func listed(s *longhorn.EngineStatus, o Observed) []string {
	var names []string
	for _, e := range []*longhorn.Epoch{s.Epoch, o.Proposed} {
		if e != nil {
			names = append(names, e.Members...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func failureOf(err error) *longhorn.SnapshotFailure {
	if refusal := (*types.Refusal)(nil); errors.As(err, &refusal) {
		return &longhorn.SnapshotFailure{Reason: refusal.Reason, Message: refusal.Message}
	}
	return &longhorn.SnapshotFailure{Reason: types.ReasonSnapshotFailed, Message: err.Error()}
}
