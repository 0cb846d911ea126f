package chain

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// A session has prepared a point, and has ended. The next session must not complete it: a change since then is above
// the border.
func TestAForgottenPointIsNotPreparedAgain(t *testing.T) {
	for name, before := range map[string]func(p *player) error{
		"it was prepared":    func(*player) error { return nil },
		"it was switched to": (*player).doSwitch,
		"it was switched to, and the volume was flushed": func(p *player) error { return errOf(p.doSwitch(), p.flush()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			do(t, func() error { return p.write(0, 4*block) }, p.snapshot, p.prepare, func() error { return before(p) })
			for range 2 {
				p.c.ForgetAttempt()
				require.Same(t, p.c.state.Load().top(), p.c.state.Load().active(), "changes go to the head")
				generation := p.c.Generation()
				require.ErrorIs(t, p.c.Prepare(p.attempt, layers.MostFiles), layers.ErrBorderGiven)
				require.ErrorIs(t, p.c.Switch(p.attempt), layers.ErrNotPrepared)
				assert.Equal(t, generation, p.c.Generation())
			}
			do(t, func() error { return p.write(block, block) }, p.giveUp, func() error { return p.write(2*block, block) },
				p.snapshot, p.check, func() error { return p.again(powerLost, rand.New(rand.NewPCG(1, 1))) })
		})
	}
}

func TestForgettingNoAttemptChangesNothing(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, block) }, p.snapshot)
	p.c.ForgetAttempt()
	do(t, p.snapshot, p.check)
}

// It waits for the changes under way, as a switch does.
func TestForgettingAnAttemptWaitsForChangesUnderWay(t *testing.T) {
	p := start(t)
	do(t, p.prepare)
	ch, err := p.c.begin(1)
	require.NoError(t, err)
	waiting, wait := waits(&p.c.changes, p.c.ForgetAttempt)
	ch.end()
	wait()
	assert.True(t, waiting)
}
