package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// The only member and the copy are full alike, each after another part of a write, where the copy was done already. The rebuild would
// not copy that again, so the replica must not become a member by this copy. It does by the next.
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
	r.await(e, changed, "member", rebuilt("b"))
	r.sameBytes()
}

// One member stores a write and the other is full. While the full one is about to be expelled, the first fails. The full one is the last
// then, and stays. So the write is refused, and does not wait for an epoch without the full one, which never comes.
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
