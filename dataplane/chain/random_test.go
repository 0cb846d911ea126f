package chain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// histories is how many random histories are run; HISTORIES=n replaces it. The history with number n is always the
// same.
func histories() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("HISTORIES"), 10, 64); err == nil {
		return n
	}
	if raceEnabled {
		return 20
	}
	return 200
}

// In random histories of all operations, with stops between and within them, each view at each ready point equals the
// copy that the model made at that moment.
func TestRandomHistoriesEqualTheModel(t *testing.T) {
	for n := range histories() {
		p := start(t)
		h := history{p: p, rng: rand.New(rand.NewPCG(n, 1))}
		require.NoError(t, h.run(150), "history %d:\n%s", n, h.log)
	}
}

type history struct {
	p     *player
	rng   *rand.Rand
	log   string
	armed bool // some step stops everything
}

// say adds a line to the log of the history.
func (h *history) say(format string, a ...any) { h.log += fmt.Sprintf(format, a...) + "\n" }

func (h *history) run(steps int) error {
	h.armed = true
	h.arm()
	for range steps {
		name, step := h.pick()
		h.say("%s", name)
		err := step()
		switch {
		case err == nil:
		case errors.Is(err, memfs.ErrCrashed):
			err = h.stop(stopped(h.rng.IntN(2)))
		case isStopped(err) && h.p.c.Err() != nil:
			err = h.stop(failed)
		}
		if err != nil {
			return err
		}
		if h.rng.IntN(4) == 0 {
			if err := h.check(); err != nil {
				return err
			}
		}
	}
	return h.check()
}

// check compares everything. The machine may have stopped in a step that the chain may ignore.
func (h *history) check() error {
	err := h.p.check()
	if errors.Is(err, memfs.ErrCrashed) {
		return h.stop(killed)
	}
	return err
}

// stop ends the process or the machine. The opening may be stopped as well.
func (h *history) stop(how stopped) error {
	h.say("STOP: %s", [...]string{"killed", "power lost", "a sync failed"}[how])
	h.p.f.Before(nil)
	if err := h.p.again(how, h.rng); err != nil {
		return err
	}
	if h.armed {
		h.arm()
	}
	return nil
}

// arm makes some later step stop everything, or a sync fail.
func (h *history) arm() {
	f := h.p.f
	at := f.Steps() + 1 + h.rng.IntN(400)
	fails := h.rng.IntN(4) == 0
	f.Before(func(op memfs.Op) error {
		switch {
		case op.N < at:
			return nil
		case !fails:
			return memfs.ErrCrashed
		case op.Kind == "datasync" || op.Kind == "sync":
			fails = false
			at = op.N + 200
			f.LoseUnsynced(op.Name)
		}
		return nil
	})
}

// pick returns a random operation.
func (h *history) pick() (string, func() error) {
	p := h.p
	size := int64(len(p.now))
	off := h.rng.Int64N(size/testSector) * testSector
	length := min(size-off, (1+h.rng.Int64N(6))*testSector)
	if h.rng.IntN(3) == 0 {
		off = off / block * block
		length = min(size-off, (1+h.rng.Int64N(3))*block)
	}
	i, asks := h.rng.IntN(4), h.rng.IntN(12)
	switch n := h.rng.IntN(105); {
	case n < 30:
		return fmt.Sprintf("write %d bytes at %d (block %d)", length, off, off/block), func() error { return p.write(off, length) }
	case n < 38:
		return fmt.Sprintf("punch %d bytes at %d (block %d)", length, off, off/block), func() error { return p.punch(off, length) }
	case n < 42:
		return fmt.Sprintf("zero %d bytes at %d (block %d)", length, off, off/block), func() error { return p.zero(off, length) }
	case n < 50:
		return "flush", p.flush
	case n < 58:
		return "prepare", p.prepare
	case n < 66:
		return "switch", p.doSwitch
	case n < 74:
		return "seal", p.seal
	case n < 77:
		return "give up", p.giveUp
	case n < 83:
		return fmt.Sprintf("delete snapshot %d", i), func() error { return p.remove(i) }
	case n < 88:
		return fmt.Sprintf("merge, %d asks", asks), func() error { return p.merge(asks) }
	case n < 92:
		return "merge", func() error { return p.merge(1 << 30) }
	case n < 94:
		return fmt.Sprintf("revert to snapshot %d", i), func() error { return p.revert(i) }
	case n < 95 && size < 40*block:
		return "grow", func() error { return p.grow((1 + h.rng.Int64N(12)) * testSector) }
	case n < 97:
		return "kill", func() error { return h.stop(killed) }
	case n < 99:
		return "flush", p.flush
	case n < 103:
		by := fmt.Sprintf("target-%d", i%2)
		return fmt.Sprintf("backup of snapshot %d to %s", i, by), func() error { return p.backup(i, by) }
	case n < 105:
		return "lose power", func() error { return h.stop(powerLost) }
	}
	panic("BUG: no operation")
}
