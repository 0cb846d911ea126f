package explore

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// rules are the functions that the transitions call, in the model's values. protocol calls package membership. In a
// mutant one of them is changed.
type rules struct {
	admit     func(heldGeneration, heldSession, generation, session uint8) bool
	planStart func(recorded epoch, generation uint8, shown [replicas]shown) (epoch, error)
	planExpel func(current epoch, failed set) (epoch, error)
	planJoin  func(current epoch, i int) epoch
	canRecord func(o object, generation, session uint8, proposed epoch) bool
	judge     func(parts []membership.Part) membership.Answer

	// The order of steps, which no function decides; false in the protocol.
	storesBeforeRecord  bool // replicas store an epoch before the object holds it
	joinsBeforeCopy     bool // a replica is proposed as a member before it has everything
	unmarksWhileLeaving bool // marks are cleared although a failed member is still listed
	fencesOutsiders     bool // a fence counts when any replica has confirmed it
	servesUnsynced      bool // marked writes are not made equal at a start
	unmarksUnrecorded   bool // marks are cleared without a record, although a replica is away
	forgetsTheWrite     bool // a write under way when a replica joins does not count as one that it may lack
	forgetsItsMarks     bool // a replica that joins is not asked for its own marks
	rebuildsUntold      bool // before its rebuild, a replica does not store the epoch in force, which does not list it
}

func protocol() rules {
	return rules{
		admit:     gate,
		planStart: memo3(planStart),
		planExpel: memoExpel(planExpel),
		planJoin:  func(current epoch, i int) epoch { return fromValue(membership.PlanJoin(current.value(), names[i])) },
		canRecord: memoRecord(canRecord),
		judge:     func(parts []membership.Part) membership.Answer { return membership.Judge(parts).Answer },
	}
}

// gate is the rule of a replica's gate (replica.Admit): it admits higher generations, or the same generation with the
// same session.
func gate(heldGeneration, heldSession, generation, session uint8) bool {
	return generation > heldGeneration || generation == heldGeneration && session == heldSession
}

func planStart(recorded epoch, generation uint8, said [replicas]shown) (epoch, error) {
	values := map[string]membership.Shown{}
	for i, sh := range said {
		if sh.asked {
			values[names[i]] = membership.Shown{Epoch: sh.epoch.value(), Rebuilding: sh.rebuilding}
		}
	}
	e, err := membership.PlanStart(recorded.value(), int64(generation), names[:], values)
	return fromValue(e), err
}

func planExpel(current epoch, failed set) (epoch, error) {
	e, err := membership.PlanExpel(current.value(), failed.names())
	return fromValue(e), err
}

func canRecord(o object, generation, session uint8, proposed epoch) bool {
	held := membership.Object{Generation: int64(o.generation), Session: fmt.Sprint(o.session), Epoch: o.epoch.value()}
	return membership.CanRecord(held, fmt.Sprint(session), proposed.value()) == nil
}

// The functions are pure, so each question is asked only once.

type planned struct {
	epoch epoch
	err   error
}

func memo3(f func(epoch, uint8, [replicas]shown) (epoch, error)) func(epoch, uint8, [replicas]shown) (epoch, error) {
	type question struct {
		recorded   epoch
		generation uint8
		shown      [replicas]shown
	}
	known := map[question]planned{}
	return func(recorded epoch, generation uint8, said [replicas]shown) (epoch, error) {
		q := question{recorded, generation, said}
		a, ok := known[q]
		if !ok {
			a.epoch, a.err = f(recorded, generation, said)
			known[q] = a
		}
		return a.epoch, a.err
	}
}

func memoExpel(f func(epoch, set) (epoch, error)) func(epoch, set) (epoch, error) {
	type question struct {
		current epoch
		failed  set
	}
	known := map[question]planned{}
	return func(current epoch, failed set) (epoch, error) {
		a, ok := known[question{current, failed}]
		if !ok {
			a.epoch, a.err = f(current, failed)
			known[question{current, failed}] = a
		}
		return a.epoch, a.err
	}
}

func memoRecord(f func(object, uint8, uint8, epoch) bool) func(object, uint8, uint8, epoch) bool {
	type question struct {
		object              object
		generation, session uint8
		proposed            epoch
	}
	known := map[question]bool{}
	return func(o object, generation, session uint8, proposed epoch) bool {
		q := question{o, generation, session, proposed}
		a, ok := known[q]
		if !ok {
			a = f(o, generation, session, proposed)
			known[q] = a
		}
		return a
	}
}

// isRolledBack reports whether a start was refused because the object is older than the data.
func isRolledBack(err error) bool {
	return errors.Is(err, membership.ErrRolledBack) || errors.Is(err, membership.ErrNotEmpty)
}
