package chain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// In random histories on a disk that fills up, changes, snapshots and merges may fail. The rest equals the model,
// and the chain stays usable.
func TestRandomHistoriesOnAFullDiskEqualTheModel(t *testing.T) {
	for n := range histories() / 2 {
		p := start(t)
		h := history{p: p, rng: rand.New(rand.NewPCG(n, 2))}
		require.NoError(t, h.fillUp(), "history %d:\n%s", n, h.log)
	}
}

func (h *history) fillUp() error {
	fillAt := h.rng.IntN(60)
	for i := range 120 {
		if i == fillAt {
			h.say("FULL")
			h.p.f.Fill()
			h.p.full = true
		}
		name, step := h.pick()
		h.say("%s", name)
		if err := step(); errors.Is(err, errFull) {
			return nil
		} else if err != nil {
			return err
		}
		if err := h.p.c.Err(); err != nil {
			return fmt.Errorf("the chain has failed: %w", err)
		}
	}
	return errors.Join(h.p.flush(), h.p.check(), h.stop(powerLost))
}
