package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// lateRead is a read that need not wait for a disk that hangs.
type lateRead struct {
	asked    []byte
	answered chan lateAnswer
	returned chan bool // whether it was left behind
}

type lateAnswer struct {
	got []byte
	err error
}

func readLate(e *Engine, off int64, n int) *lateRead {
	r := &lateRead{asked: make([]byte, n), answered: make(chan lateAnswer, 2), returned: make(chan bool, 1)}
	go func() {
		left, err := e.Backend().(nbd.LateReader).ReadLate(context.Background(), r.asked, off, func(got []byte, err error) {
			r.answered <- lateAnswer{got, err}
		})
		if !left {
			r.answered <- lateAnswer{r.asked, err}
		}
		r.returned <- left
	}()
	return r
}

// A read hangs in the local disk. When that replica is expelled for it, another member answers. The disk finally writes
// its data to memory that nothing else uses.
func TestAReadThatHangsInALocalDiskIsAnsweredByAnother(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	b := e.Backend()
	require.NoError(t, b.WriteAt(t.Context(), pattern(1, 4096), 0, false))
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	began := r.clock.Now()
	first, second := readLate(e, 0, 4096), readLate(e, 512, 512)
	<-g.Arrived()
	<-g.Arrived()
	wrote := make(chan error, 1)
	go func() { wrote <- b.WriteAt(context.Background(), pattern(2, 4096), 0, false) }()
	r.awaitQueued(e, 3)
	r.stepUntil(func() bool { return len(first.answered) > 0 && len(second.answered) > 0 && len(wrote) > 0 })
	waited := r.clock.Since(began)
	assert.GreaterOrEqual(t, waited, membership.SlowAfter)
	assert.Less(t, waited, 2*membership.SlowAfter, "it is not bounded by the rule for a slow member")
	require.NoError(t, <-wrote)
	whole := <-first.answered
	for read, answer := range map[*lateRead]lateAnswer{first: whole, second: <-second.answered} {
		require.NoError(t, answer.err)
		assert.Empty(t, read.returned, "the disk has not answered")
		require.Len(t, answer.got, len(read.asked))
		// The read returns the data before or after the write, because they were under way together.
		old, changed := slices.Equal(answer.got, pattern(1, 4096)[:len(answer.got)]), slices.Equal(answer.got, pattern(2, 4096)[:len(answer.got)])
		assert.True(t, old || changed, "read %v", answer.got[:8])
		assert.Equal(t, make([]byte, len(read.asked)), read.asked)
	}
	r.stepUntil(func() bool { return inEpoch("b")(e.State()) })
	r.awaitQueued(e, 0)

	kept := slices.Clone(whole.got)
	g.Open()
	assert.True(t, <-first.returned, "it was left behind")
	assert.True(t, <-second.returned)
	assert.Equal(t, pattern(1, 4096), first.asked, "the disk's late answer")
	assert.Equal(t, kept, whole.got)
	assert.Empty(t, first.answered, "answered twice")
	assert.Empty(t, second.answered, "answered twice")
	after := readLate(e, 0, 4096)
	answer := <-after.answered
	require.NoError(t, answer.err)
	assert.False(t, <-after.returned)
	assert.Equal(t, pattern(2, 4096), answer.got)
}

// The engine is stopped by force while a read hangs in the local disk. The read is answered with an error, and the
// disk's own answer is discarded.
func TestAReadThatHangsIsAnsweredWhenTheEngineEnds(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Gate: g})
	read := readLate(e, 0, 4096)
	<-g.Arrived()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- e.StopForce(ctx) }()
	r.stepUntil(func() bool { return len(stopped) > 0 })
	require.NoError(t, <-stopped)
	answer := <-read.answered
	require.Error(t, answer.err)
	assert.Empty(t, read.returned, "the disk has not answered")
	g.Open()
	assert.True(t, <-read.returned)
	assert.Empty(t, read.answered, "answered twice")
}

func TestAReadThatIsAnsweredInTimeIsInItsOwnBuffer(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	e, _ := r.run(1)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 4096), 0, false))
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Gate: g})
	read := readLate(e, 0, 4096)
	<-g.Arrived()
	r.clock.Step(time.Second)
	g.Open()
	got := <-read.answered
	require.NoError(t, got.err)
	assert.False(t, <-read.returned)
	assert.Same(t, &read.asked[0], &got.got[0])
	assert.Equal(t, pattern(1, 4096), got.got)

	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Read), Times: 1, Err: nbd.EIO})
	read = readLate(e, 0, 4096)
	got = <-read.answered
	require.NoError(t, got.err, "another member has it")
	assert.False(t, <-read.returned)
	assert.Equal(t, pattern(1, 4096), read.asked)
	beyond := readLate(e, testSize, 512)
	assert.ErrorIs(t, (<-beyond.answered).err, nbd.EINVAL)
	assert.False(t, <-beyond.returned)
}
