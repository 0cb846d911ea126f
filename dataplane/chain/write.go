package chain

import (
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// change is one change under way. It holds the locks that a change holds.
type change struct {
	c        *Chain
	s        *state
	f        *file
	known    *presence // nil in the lowest file
	reserved int64     // entries
}

// begin starts a change that needs up to want entries of recent, and has one at least. If the room for one is lacking, it
// flushes first, so that a change never fails for lack of entries.
func (c *Chain) begin(want int64) (*change, error) {
	for {
		if err := c.usable(); err != nil {
			return nil, err
		}
		c.changes.RLock()
		c.reads.RLock()
		s := c.state.Load()
		ch := &change{c: c, s: s, f: s.active()}
		if ch.known = ch.f.presence(); ch.known == nil {
			ch.reserved = want
			return ch, nil
		}
		if ch.reserved = ch.known.reserve(want); ch.reserved > 0 {
			return ch, nil
		}
		c.reads.RUnlock()
		c.changes.RUnlock()
		if err := c.Datasync(); err != nil {
			return nil, err
		}
	}
}

func (ch *change) end() {
	if ch.known != nil {
		ch.known.release(ch.reserved)
	}
	ch.c.reads.RUnlock()
	ch.c.changes.RUnlock()
}

// enter makes blocks present. The data is in the file.
func (ch *change) enter(first, end int64) error {
	if ch.known == nil {
		return nil
	}
	return ch.known.enter(first, end)
}

// WriteAt writes p. After an error, each block of the range has its old content, or p's, or a part of p's.
func (c *Chain) WriteAt(p []byte, off int64) error {
	for len(p) > 0 {
		n := entryPart(off, int64(len(p)))
		if err := c.writePart(p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// entryPart returns the length of the first part of a range that one entry can have.
func entryPart(off, length int64) int64 {
	return min(length, mostEntryBlocks*layers.BlockBytes-off%layers.BlockBytes)
}

func (c *Chain) writePart(p []byte, off int64) error {
	ch, err := c.begin(1)
	if err != nil {
		return err
	}
	defer ch.end()
	return c.check(ch.write(p, off))
}

// write does the steps of layers.OnWrite: the data of whole blocks, then one entry for all of them.
func (ch *change) write(p []byte, off int64) error {
	size := ch.f.size.Load()
	if err := inRange(off, int64(len(p)), size); err != nil {
		return err
	}
	first, end := layers.Covered(off, int64(len(p)))
	w, err := ch.f.window(first, end-first)
	if err != nil {
		return err
	}
	enters := false
	for b := range end - first {
		enters = enters || layers.OnWrite(w.Has(b), true).Enter
	}
	if err := ch.writeData(p, off, size, w); err != nil {
		return ch.undo(w, err)
	}
	if !enters {
		return nil
	}
	if err := ch.enter(first, end); err != nil {
		return ch.undo(w, err)
	}
	return nil
}

// writeData writes p. Blocks that need the rest of their content from the view below are written one by one, and all
// others with as few calls as possible.
func (ch *change) writeData(p []byte, off, size int64, w window) error {
	fills := func(at int64) (stop int64, fill bool) {
		b := at / layers.BlockBytes
		stop = min((b+1)*layers.BlockBytes, size)
		whole := at == b*layers.BlockBytes && off+int64(len(p)) >= stop
		return stop, layers.OnWrite(w.Has(b-w.first), whole).Fill
	}
	for at := off; at < off+int64(len(p)); {
		stop, fill := fills(at)
		if fill {
			stop = min(stop, off+int64(len(p)))
			if err := ch.writeFilled(p[at-off:stop-off], at, size); err != nil {
				return err
			}
			at = stop
			continue
		}
		for stop < off+int64(len(p)) {
			next, fill := fills(stop)
			if fill {
				break
			}
			stop = next
		}
		stop = min(stop, off+int64(len(p)))
		if err := ch.f.data.WriteAt(p[at-off:stop-off], at); err != nil {
			return err
		}
		at = stop
	}
	return nil
}

// writeFilled writes a part of one block that the file does not have. The rest comes from the view of the volume: the
// file above, if there is one, is empty until the members switch to it.
func (ch *change) writeFilled(p []byte, off, size int64) error {
	start := off / layers.BlockBytes * layers.BlockBytes
	block := make([]byte, min(layers.BlockBytes, size-start))
	if err := ch.s.volume().readAt(block, start); err != nil {
		return err
	}
	copy(block[off-start:], p)
	return ch.f.data.WriteAt(block, start)
}

// undo removes the data of a failed change from blocks that the file does not have. Such data is invisible.
// But a discard of a block that no layer has does nothing, and the file may become the lowest one, which has every
// block. Blocks that a merge has copied here are left: they are about to count, and have the old content or the new.
func (ch *change) undo(w window, cause error) error {
	if ch.known == nil || !isNoSpace(cause) {
		return cause
	}
	for start, end := range runs(w.n, func(b int64) bool {
		return layers.OnFailedWrite(w.Has(b), ch.c.copied.has(ch.f, w.first+b)).Punch
	}) {
		if err := ch.f.punch((w.first+start)*layers.BlockBytes, (end-start)*layers.BlockBytes); err != nil {
			return ch.c.fail(err)
		}
	}
	return cause
}

// Truncate sets the size of the volume. An added part reads as zeroes. Only the head grows: a block past the end of an
// older layer is absent there. A smaller size only undoes a growth, so the removed part must have no data.
func (c *Chain) Truncate(size int64) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	if s.prepared {
		return layers.ErrBusy
	}
	c.flushing.Lock() // it writes to the map
	defer c.flushing.Unlock()
	c.changes.Lock()
	defer c.changes.Unlock()
	return c.check(s.top().grow(size))
}
