package chain

import "iter"

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int64) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i int64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) set(i int64)      { b[i/64] |= 1 << (i % 64) }

// runs yields the runs [start, end) of the numbers below n for which in returns true.
func runs(n int64, in func(i int64) bool) iter.Seq2[int64, int64] {
	return func(yield func(start, end int64) bool) {
		for i := int64(0); i < n; i++ {
			if !in(i) {
				continue
			}
			start := i
			for i < n && in(i) {
				i++
			}
			if !yield(start, i) {
				return
			}
		}
	}
}

// overlay is a set of blocks, by sector of a map.
type overlay map[int64]*[mapBitsBytes]byte

// add adds blocks [first, end).
func (o overlay) add(first, end int64) {
	for b := first; b < end; b++ {
		s := o[b/blocksPerSector]
		if s == nil {
			s = &[mapBitsBytes]byte{}
			o[b/blocksPerSector] = s
		}
		i := b % blocksPerSector
		s[i/8] |= 1 << (i % 8)
	}
}

// join adds all blocks of another overlay.
func (o overlay) join(other overlay) {
	for sector, bits := range other {
		s := o[sector]
		if s == nil {
			s = &[mapBitsBytes]byte{}
			o[sector] = s
		}
		for i, b := range bits {
			s[i] |= b
		}
	}
}

// at returns the bits of a sector, at the byte i; 0 if the overlay has none of the sector.
func (o overlay) at(sector, i int64) byte {
	if s := o[sector]; s != nil {
		return s[i]
	}
	return 0
}

func (o overlay) has(b int64) bool {
	i := b % blocksPerSector
	return o.at(b/blocksPerSector, i/8)>>(i%8)&1 != 0
}

// window has the blocks [first, first+n) of a file.
type window struct {
	first, n int64
	all      bool   // the lowest file has every block, durably
	has      bitset // by block - first
	durable  bitset
}

// Has and Durable make a window a layers.Presence. block is counted from the start of the window.
func (w window) Has(block int64) bool     { return w.all || w.has.has(block) }
func (w window) Durable(block int64) bool { return w.all || w.durable.has(block) }
