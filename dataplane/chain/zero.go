package chain

import (
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// punchBlocks is how many blocks one lookup of a discard covers.
const punchBlocks = 16 << 10

const _ = uint(mostEntryBlocks - punchBlocks) // one entry can have all of it

// punchEntries is how many entries a discard takes at once, at most.
const punchEntries = 1024

// Punch makes a range read as zeroes, and frees as much of its space as possible. A block that no layer has is left
// alone. So a discard of an empty volume leaves no change behind.
func (c *Chain) Punch(off, length int64) error {
	if size, err := c.Size(); err != nil {
		return err
	} else if err := inRange(off, length, size); err != nil {
		return err
	}
	for end := off + length; off < end; {
		next, err := c.punchPart(off, end)
		if err != nil {
			return c.check(err)
		}
		off = next
	}
	return nil
}

// punchPart punches the first part of [off, end), and returns its end.
func (c *Chain) punchPart(off, end int64) (int64, error) {
	ch, err := c.begin(punchEntries)
	if err != nil {
		return 0, err
	}
	defer ch.end()
	size := ch.f.size.Load()
	b := off / layers.BlockBytes
	if stop := min((b+1)*layers.BlockBytes, size); off != b*layers.BlockBytes || end < stop {
		stop = min(stop, end)
		return stop, ch.zeroPartly(off, stop-off, (*file).punch)
	}
	last := end / layers.BlockBytes
	if end == size {
		last = blocksOf(size)
	}
	last = min(last, b+punchBlocks)
	done, err := ch.punchBlocks(b, last)
	return min(done*layers.BlockBytes, end), err
}

// punchBlocks does the steps of layers.OnDiscard for whole blocks: the punch, then the entries. It stops early if the
// reserved entries are used up, and returns the end of the part that is done.
func (ch *change) punchBlocks(first, end int64) (done int64, err error) {
	n := end - first
	w, err := ch.f.window(first, n)
	if err != nil {
		return 0, err
	}
	below, err := ch.below(w)
	if err != nil {
		return 0, err
	}
	punches := func(b int64) bool { return layers.OnDiscard(w.Has(b), below.has(b)).Punch }
	enters := func(b int64) bool { return layers.OnDiscard(w.Has(b), below.has(b)).Enter }
	var entries [][2]int64
	for start, stop := range runs(n, enters) {
		if int64(len(entries)) == ch.reserved {
			n = start
			break
		}
		entries = append(entries, [2]int64{start, stop})
	}
	for start, stop := range runs(n, punches) {
		if err := ch.f.punch((first+start)*layers.BlockBytes, (stop-start)*layers.BlockBytes); err != nil {
			return 0, err
		}
	}
	for _, e := range entries {
		if err := ch.enter(first+e[0], first+e[1]); err != nil {
			return 0, err
		}
	}
	return first + n, nil
}

// below returns which of the blocks that the file does not have are in a lower one. The lowest file counts where it
// has data: where it has a hole it reads as zeroes.
func (ch *change) below(w window) (bitset, error) {
	found := newBitset(w.n)
	if w.all {
		return found, nil
	}
	from, err := ch.s.volume().sources(w.first, w.n)
	if err != nil {
		return nil, err
	}
	var data bitset
	for b, f := range from {
		if f == nil || w.Has(int64(b)) {
			continue
		}
		if f.lowest.Load() {
			if data == nil {
				if data, err = f.dataBlocks(w.first, w.n); err != nil {
					return nil, err
				}
			}
			if !data.has(int64(b)) {
				continue
			}
		}
		found.set(int64(b))
	}
	return found, nil
}

// zeroPartly zeroes a part of one block. If the file does not have the block, this is a write.
func (ch *change) zeroPartly(off, length int64, zero func(f *file, off, length int64) error) error {
	w, err := ch.f.window(off/layers.BlockBytes, 1)
	if err != nil {
		return err
	}
	if w.Has(0) {
		return zero(ch.f, off, length)
	}
	below, err := ch.below(w)
	if err != nil || !below.has(0) {
		return err
	}
	return ch.write(make([]byte, length), off)
}

// Zero makes a range read as zeroes, and leaves all of it allocated.
func (c *Chain) Zero(off, length int64) error {
	if size, err := c.Size(); err != nil {
		return err
	} else if err := inRange(off, length, size); err != nil {
		return err
	}
	for end := off + length; off < end; {
		next, err := c.zeroPart(off, end)
		if err != nil {
			return c.check(err)
		}
		off = next
	}
	return nil
}

// zeroPart zeroes the first part of [off, end), and returns its end.
func (c *Chain) zeroPart(off, end int64) (int64, error) {
	ch, err := c.begin(1)
	if err != nil {
		return 0, err
	}
	defer ch.end()
	size := ch.f.size.Load()
	first := off / layers.BlockBytes
	if stop := min((first+1)*layers.BlockBytes, size); off != first*layers.BlockBytes || end < stop {
		stop = min(stop, end)
		w, err := ch.f.window(first, 1)
		if err != nil {
			return 0, err
		}
		if w.Has(0) {
			return stop, ch.f.zero(off, stop-off)
		}
		return stop, ch.write(make([]byte, stop-off), off)
	}
	last := end / layers.BlockBytes
	if end == size {
		last = blocksOf(size)
	}
	last = min(last, first+punchBlocks)
	stop := min(last*layers.BlockBytes, size)
	w, err := ch.f.window(first, last-first)
	if err != nil {
		return 0, err
	}
	if err := ch.f.zero(off, stop-off); err != nil {
		return 0, ch.undo(w, err)
	}
	for b := range w.n {
		if layers.OnWrite(w.Has(b), true).Enter {
			if err := ch.enter(first, last); err != nil {
				return 0, ch.undo(w, err)
			}
			break
		}
	}
	return stop, nil
}
