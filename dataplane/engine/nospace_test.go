package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// The only member and the target of the copy run out of space in the same write, each after a different part of it.
// That range was already copied. The rebuild would not copy it again, so the replica must not become a member by this
// copy. The next copy makes it a member.
func TestACopyThatIsFullLikeItsSourceIsNoMember(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 6*testRegion, 1), Gate: g})
	e, changed := r.run(2)
	r.add(e, "b")
	<-g.Arrived()
	for name, stored := range map[string]int{"a": 100, "b": 200} {
		r.disk(name).io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, testRegion, 1), Times: 1, Tear: stored, Err: nbd.ENOSPC})
	}
	require.ErrorIs(t, e.Backend().WriteAt(t.Context(), pattern(2, 4096), testRegion, false), nbd.ENOSPC)
	g.Open()
	s := r.await(e, changed, "end of the rebuild", func(s State) bool { return e.idle() && (rebuilt("b")(s) || failedWith("b")(s)) })
	if rebuilt("b")(s) {
		r.sameBytes()
	}
	r.expectModes(s, map[string]string{"a": ModeRW, "b": ModeERR})
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	r.sameBytes()
}

// One member stores a write and the other is full. While the full member is about to be expelled, the first fails. Then
// the full member is the last one, and stays. So the write is refused. It does not wait for an epoch without the full
// member, which never comes.
func TestAWriteIsJudgedAgainWhenMembersFailMeanwhile(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1)
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, testRegion, 1), Times: 1, Err: nbd.ENOSPC})
	failed := e.mirror.failed
	e.mirror.failed = func(m *member, err error) {
		if m.name == "b" {
			failed(e.mirror.roster.Load().find("a"), errSlow)
		}
		failed(m, err)
	}
	answered := make(chan error, 1)
	go func() { answered <- e.Backend().WriteAt(context.Background(), pattern(2, 4096), testRegion, false) }()
	require.ErrorIs(t, r.answer(answered), nbd.ENOSPC)
	s := r.await(e, changed, "epoch", inEpoch("b"))
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeRW})
}
