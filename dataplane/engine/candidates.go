package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// candidate is a replica of the volume with the result of its opening.
type candidate struct {
	Member
	replica Replica // nil if refused
	state   membership.State
	layers  layersState
	// answered is the time when it had sent its state.
	answered time.Time
	err      error // why refused
}

type candidates []*candidate

var (
	// errNoAddress means that the address of a replica is unknown.
	errNoAddress = errors.New("its address is unknown")
	// errMismatch means that another replica than the expected one answered.
	errMismatch = errors.New("the replica does not match the volume")
	// errLate means that a replica was not opened within admitTimeout.
	errLate = fmt.Errorf("it did not answer within %s", admitTimeout)
)

func (c *candidate) close() {
	if c.replica != nil {
		_ = c.replica.Close()
		c.replica = nil
	}
}

// maxStateBytes limits the size of a replica's state. The engine passes the epoch in it on to the API object, in one
// message with the epochs of the other engines of this node.
const maxStateBytes = 64 << 10

// decodeState reads the reply to membership.OpState.
func decodeState(reply []byte) (s membership.State, err error) {
	if len(reply) > maxStateBytes {
		return s, fmt.Errorf("%w: its state message has %d bytes, more than the maximum of %d", errMismatch, len(reply), maxStateBytes)
	}
	err = json.Unmarshal(reply, &s)
	return s, err
}

func (cs candidates) shown() map[string]membership.Shown {
	shown := map[string]membership.Shown{}
	for _, c := range cs {
		if c.replica != nil {
			shown[c.Name] = membership.Shown{Epoch: c.state.Epoch, Rebuilding: c.state.Rebuilding}
		}
	}
	return shown
}

// only returns the candidates that are members of the epoch, ordered by name.
func (cs candidates) only(epoch membership.Epoch) candidates {
	return slices.DeleteFunc(slices.Clone(cs), func(c *candidate) bool { return !epoch.Has(c.Name) })
}

func (cs candidates) closeOthers(epoch membership.Epoch) {
	for _, c := range cs {
		if c.replica != nil && !epoch.Has(c.Name) {
			_ = c.replica.Close()
		}
	}
}

// showMembers shows the members of a new epoch, and the members of the recorded epoch that it leaves out, with the
// reason.
func (e *Engine) showMembers(epoch membership.Epoch, opened candidates) {
	e.update(func(s *State) {
		s.Members = nil
		for _, c := range opened {
			switch {
			case epoch.Has(c.Name):
				s.set(MemberState{Name: c.Name, Mode: ModeRW})
			case c.err != nil && (e.cfg.Recorded.IsZero() || e.cfg.Recorded.Has(c.Name)):
				s.set(MemberState{Name: c.Name, Mode: ModeERR, Error: c.err.Error()})
			}
		}
	})
}

// refusal says why PlanStart refused, with the known facts about each replica, and closes the opened replicas.
func (cs candidates) refusal(recorded membership.Epoch, err error) *failure {
	f := &failure{reason: ReasonMemberMissing, err: err}
	details := map[string]string{}
	fenced, mismatch := false, false
	for _, c := range cs {
		if c.replica != nil {
			_ = c.replica.Close()
			continue
		}
		details[c.Name] = c.err.Error()
		f.members = append(f.members, MemberState{Name: c.Name, Mode: ModeERR, Error: c.err.Error()})
		fenced = fenced || errors.Is(c.err, ErrFenced)
		mismatch = mismatch || errors.Is(c.err, errMismatch)
	}
	switch {
	case errors.Is(err, membership.ErrRolledBack):
		f.reason, f.shown = ReasonRolledBack, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNotEmpty):
		f.reason, f.shown = ReasonNotEmpty, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNoMembers):
		f.reason = ReasonNoMembers
	case fenced:
		f.reason = ReasonFenced
	case mismatch:
		f.reason = ReasonMemberMismatch
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(details)) {
		text = append(text, name+": "+details[name])
	}
	if len(text) > 0 {
		f.err = fmt.Errorf("%w (%s)", err, strings.Join(text, "; "))
	}
	return f
}

// foreign is the highest epoch that a replica shows and that the recorded epoch does not follow (membership.PlanStart).
func (cs candidates) foreign(recorded membership.Epoch) membership.Epoch {
	var highest membership.Epoch
	for _, c := range cs {
		if c.replica != nil && c.state.Epoch.Foreign(recorded) && c.state.Epoch.Compare(highest) > 0 {
			highest = c.state.Epoch
		}
	}
	return highest
}
