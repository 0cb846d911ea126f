package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// A replica has grown and a member has not, so the volume still has the old size. The replica is rebuilt with that
// size, like any other. It gets no mark that an engine of this size would not clear.
func TestAReplicaThatIsLargerThanTheVolumeIsRebuilt(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("b").resize(2 * testSize)
	e, changed := r.run(2)
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	r.sameBytes()
	r.stepUntil(func() bool { return len(r.disk("b").marked()) == 0 })
	s := e.State()
	assert.True(t, s.Epoch.Has("b"), "%+v", s)
}

// Marks beyond the end of the volume have two causes. They belong to a size that the volume does not have yet, or an
// engine set them on a larger replica. No member is lost because of them, neither at the start nor when another replica
// comes back.
func TestMarksBeyondTheVolumeCostNoMember(t *testing.T) {
	const beyond = testSize/testRegion + 1
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	for _, d := range r.disks {
		d.resize(2 * testSize)
		d.mark(1, beyond)
	}
	r.disk("a").fill(t, 1, testRegion, testRegion)
	e, changed := r.run(2)
	r.sameBytes()
	assert.NotContains(t, r.disk("b").marked(), int64(1), "it was not made equal")
	require.NoError(t, e.RemoveReplica(e.cfg.Session, "b"))
	r.await(e, changed, "epoch without it", inEpoch("a"))
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	assert.True(t, inEpoch("a", "b")(e.State()))
}
