package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// If all remaining members lack the space to store an epoch, none of them is expelled: they are asked again until there
// is space.
func TestMembersThatAreAllTooFullForAnEpochStay(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	for _, name := range []string{"b", "c"} {
		r.disk(name).setControlErr(membership.OpRecordEpoch, nbd.ENOSPC)
	}
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Write))
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	asked := func(n int) func() bool {
		return func() bool {
			return r.disk("b").count(membership.OpRecordEpoch) >= n && r.disk("c").count(membership.OpRecordEpoch) >= n
		}
	}
	r.stepUntil(asked(4)) // including once when the engine started
	r.expectUnanswered(answered)
	r.expectModes(e.State(), map[string]string{"a": ModeERR, "b": ModeRW, "c": ModeRW})
	for _, name := range []string{"b", "c"} {
		r.disk(name).setControlErr(membership.OpRecordEpoch, nil)
	}
	r.stepUntil(func() bool { return len(answered) > 0 })
	assert.NoError(t, <-answered)
	s := r.await(e, changed, "epoch", inEpoch("b", "c"))
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeRW, "c": ModeRW})
	r.sameBytes("b", "c")
	assert.Len(t, r.api.history, 2, "epochs were recorded: %v", r.api.history)
}

// If one member is full and the others are not, the full member has failed, as in any change.
func TestAMemberThatAloneIsTooFullForAnEpochIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	r.disk("b").setControlErr(membership.OpRecordEpoch, nbd.ENOSPC)
	_ = r.disk("a").currentSession().Close()
	s := r.await(e, changed, "epoch", inEpoch("c"))
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeERR, "c": ModeRW})
}

// A member that fails for another reason is expelled, while the full member waits for space.
func TestAFullMemberStaysWhenTheOtherFails(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	r.disk("b").setControlErr(membership.OpRecordEpoch, nbd.EIO)
	r.disk("c").setControlErr(membership.OpRecordEpoch, nbd.ENOSPC)
	_ = r.disk("a").currentSession().Close()
	r.stepUntil(func() bool { return r.disk("c").count(membership.OpRecordEpoch) >= 4 })
	r.disk("c").setControlErr(membership.OpRecordEpoch, nil)
	r.stepUntil(func() bool { return inEpoch("c")(e.State()) })
	s := r.await(e, changed, "epoch", inEpoch("c"))
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeERR, "c": ModeRW})
}
