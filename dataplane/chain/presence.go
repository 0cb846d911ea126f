package chain

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// mostSectors limits the sectors of a map with blocks that are present only in memory. Each takes about 600 bytes. A
// change beyond it first flushes.
const mostSectors = 32 << 10

// presence says which blocks a file has. The lowest file of a chain has no presence: it has every block.
//
//	fresh      entered since the last flush noted the entries
//	noted      entered before; the flush under way makes their bits durable
//	written    bits that are in the file, and not known to be durable
//
//	a block counts as present       fresh, noted, or its bit is set and not among written
//	a block is durably present      its bit is set and not among written
//
// So a bit that a merge sets counts only after the sync: a user's write to a present block has no entry, and would
// otherwise rely on a bit that the disk does not have. The bits that a flush sets count before, because of noted. It is
// safe for concurrent use. Calls that change bits come one after another (Chain.flushing).
type presence struct {
	mu      sync.Mutex
	bits    *mapFile // guarded by mu, except its file's sync
	recent  *recent  // guarded by mu; nil in a file that takes no changes
	fresh   overlay  // guarded by mu
	noted   overlay  // guarded by mu
	written overlay  // guarded by mu
	keep    int      // guarded by mu; entries of recent that noted has
}

func newPresence(bits *mapFile, r *recent) *presence {
	return &presence{bits: bits, recent: r, fresh: overlay{}, noted: overlay{}, written: overlay{}}
}

// believe counts the entries of recent that an opening found. Blocks past the end of the file are not entered by any
// change.
func (p *presence) believe(blocks int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.recent.log {
		if e.first < blocks {
			p.fresh.add(e.first, min(e.first+e.count, blocks))
		}
	}
}

// window returns the blocks [first, first+n). A block past the end of the map is absent: the volume has grown since the
// file was sealed.
func (p *presence) window(first, n int64) (window, error) {
	w := window{first: first, n: n, has: newBitset(n), durable: newBitset(n)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for sector := first / blocksPerSector; sector*blocksPerSector < first+n && p.bits.covers(sector); sector++ {
		bits, err := p.bits.bits(sector)
		if err != nil {
			return window{}, err
		}
		start := max(first, sector*blocksPerSector) / 8 * 8
		for b := start; b < min(first+n, (sector+1)*blocksPerSector); b += 8 {
			i := b % blocksPerSector / 8
			durable := bits[i] &^ p.written.at(sector, i)
			has := durable | p.fresh.at(sector, i) | p.noted.at(sector, i)
			if has == 0 {
				continue
			}
			for j := range int64(8) {
				at := b + j - first
				if at < 0 || at >= n {
					continue
				}
				if has>>j&1 != 0 {
					w.has.set(at)
				}
				if durable>>j&1 != 0 {
					w.durable.set(at)
				}
			}
		}
	}
	return w, nil
}

// reserve takes room for up to want entries. It returns 0 if a flush must make room first.
func (p *presence) reserve(want int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fresh)+len(p.noted) >= mostSectors {
		return 0
	}
	return p.recent.reserve(want)
}

func (p *presence) release(reserved int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent.reserved -= reserved
}

// enter makes blocks [first, end) present: the entry first, then in memory. The data is in the file already. The caller
// has reserved one entry.
func (p *presence) enter(first, end int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end-first > mostEntryBlocks {
		panic(fmt.Sprintf("BUG: an entry of %d blocks, which no opening believes", end-first))
	}
	if err := p.recent.add(entry{first, end - first}); err != nil {
		return err
	}
	p.fresh.add(first, end)
	return nil
}

// note takes the entries that the flush under way makes durable. It reports whether there are any. Entries past the end
// of the file count as well: they name no block, and take up room until the flush forgets them.
func (p *presence) note() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted.join(p.fresh)
	p.fresh = overlay{}
	if p.recent != nil {
		p.keep = len(p.recent.log)
	}
	return len(p.noted) > 0 || p.keep > 0
}

// writeNoted writes the bits of the noted blocks.
func (p *presence) writeNoted() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setLocked(p.noted)
}

// set writes bits. They count after shown.
func (p *presence) set(blocks overlay) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setLocked(blocks)
}

func (p *presence) setLocked(blocks overlay) error {
	for _, sector := range slices.Sorted(maps.Keys(blocks)) {
		old, err := p.bits.bits(sector)
		if err != nil {
			return err
		}
		next := slices.Clone(old)
		added := overlay{sector: &[mapBitsBytes]byte{}}
		for i, b := range blocks[sector] {
			added[sector][i] = b &^ old[i]
			next[i] |= b
		}
		if slices.Equal(next, old) {
			continue
		}
		p.written.join(added)
		if err := p.bits.write(sector, next); err != nil {
			return err
		}
	}
	return nil
}

// clear clears bits of blocks that are not entered. They no longer count from now on.
func (p *presence) clear(blocks overlay) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sector := range slices.Sorted(maps.Keys(blocks)) {
		old, err := p.bits.bits(sector)
		if err != nil {
			return err
		}
		next := slices.Clone(old)
		for i, b := range blocks[sector] {
			next[i] &^= b
		}
		if err := p.bits.write(sector, next); err != nil {
			return err
		}
	}
	return nil
}

// sync makes all written bits durable. Readers do not wait for it. Errors wrap errSync.
func (p *presence) sync() error {
	if err := p.bits.file.Datasync(); err != nil {
		return fmt.Errorf("%s: %w: %w", p.bits.title, errSync, err)
	}
	return nil
}

// shown lets the written bits count, after a sync.
func (p *presence) shown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = overlay{}
}

// settled ends a flush: the noted blocks have durable bits, and need no entries any longer.
func (p *presence) settled() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noted = overlay{}
	if p.recent == nil || p.keep == 0 {
		return nil
	}
	keep := p.keep
	p.keep = 0
	return p.recent.forget(keep)
}

// grow makes room for more blocks.
func (p *presence) grow(blocks int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bits.grow(blocks)
}

// failed records in recent that data may be lost, if the disk allows it.
func (p *presence) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recent != nil {
		_ = p.recent.fail() // the caller's failure is reported; the host also remembers it
	}
}

// lostEntries returns an error if an entry of recent could not be written out.
func (p *presence) lostEntries() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recent == nil {
		return nil
	}
	return p.recent.lost()
}

// dropRecent closes recent, which has no entries that count any longer.
func (p *presence) dropRecent() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recent == nil {
		return nil
	}
	err := p.recent.file.Close()
	p.recent = nil
	return err
}

func (p *presence) close() error {
	err := p.dropRecent()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.bits.close(); err == nil {
		err = e
	}
	return err
}

// replaceMap puts another opening of the map in place.
func (p *presence) replaceMap(m *mapFile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bits.close() // it was only read
	p.bits = m
}
