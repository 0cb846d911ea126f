package engine

import (
	"math/bits"
	"slices"
	"sync"
)

// regions records which regions of the volume the replicas have marked, and which of them have been quiet.
//
//	dirty     a change was sent since the mark was cleared: every member may have the region marked
//	recent    a change started or ended since the period started
//	unequal   a change left healthy members different: the mark must stay, and the next start must make the region equal
//
// A period lasts as long as a region must be quiet. So a region that is dirty and not recent at the end of a period has
// been quiet for one to two periods. A change sets recent when it starts *and* when it ends, before it releases its
// range lock. So the holder of the lock of a region that is not recent knows that no change of it has been under way
// since the period started.
type regions struct {
	regionBytes int64
	// wake receives when marks must be cleared and isWoken is false.
	wake chan struct{}

	mu      sync.Mutex
	regions int    // guarded by mu
	dirty   bitmap // guarded by mu
	recent  bitmap // guarded by mu
	unequal bitmap // guarded by mu
	// unflushed has regions in which a change started or ended since the flush of the joining replica started; nil if
	// not needed. Guarded by mu.
	unflushed bitmap
	period    int  // guarded by mu; periods that have ended
	isWoken   bool // guarded by mu; wake was sent to, and isIdle has not returned true since
}

func newRegions(size, regionBytes int64) *regions {
	n := int((size-1)/regionBytes + 1) // size+regionBytes may exceed an int64
	return &regions{
		regionBytes: regionBytes, regions: n, wake: make(chan struct{}, 1),
		dirty: newBitmap(n), recent: newBitmap(n), unequal: newBitmap(n),
	}
}

// count returns the number of regions.
func (r *regions) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.regions)
}

// grow makes room for the regions of a larger volume.
func (r *regions) grow(size int64) {
	n := int((size-1)/r.regionBytes + 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n <= r.regions {
		return
	}
	r.regions, r.unflushed = n, nil
	for _, b := range []*bitmap{&r.dirty, &r.recent, &r.unequal} {
		longer := newBitmap(n)
		copy(longer, *b)
		*b = longer
	}
}

// of returns the regions [from, to) that a range touches.
func (r *regions) of(off, length int64) (from, to int) {
	return int(off / r.regionBytes), int((off+length-1)/r.regionBytes) + 1
}

// begin records a change that is about to be sent.
func (r *regions) begin(off, length int64) {
	from, to := r.of(off, length)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty.set(from, to)
	r.changedLocked(from, to)
	if !r.isWoken {
		r.isWoken = true
		r.wake <- struct{}{}
	}
}

// end records a change that all members have answered.
func (r *regions) end(off, length int64, unequal bool) {
	from, to := r.of(off, length)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changedLocked(from, to)
	if unequal {
		r.unequal.set(from, to)
	}
}

func (r *regions) changedLocked(from, to int) {
	r.recent.set(from, to)
	if r.unflushed != nil {
		r.unflushed.set(from, to)
	}
}

// joined records regions that a new member has marked, in addition to the changed regions.
func (r *regions) joined(indexes []int64) {
	if len(indexes) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty.add(indexes)
	if !r.isWoken {
		r.isWoken = true
		r.wake <- struct{}{}
	}
}

// dirtyNow returns the regions that were changed and are not cleared, and the number of regions. Both are of one
// moment, because the volume may grow at any time, and a bitmap has no room for the new regions.
func (r *regions) dirtyNow() (dirty bitmap, count int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dirty), int64(r.regions)
}

// isUnequal reports whether healthy members may differ in a range.
func (r *regions) isUnequal(off, length int64) bool {
	from, to := r.of(off, length)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := from; i < to; i++ {
		if r.unequal.has(i) {
			return true
		}
	}
	return false
}

// hasUnequal reports whether healthy members may differ in any region.
func (r *regions) hasUnequal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unequal.count() > 0
}

// newPeriod returns the runs of regions that were quiet in the period that ends, and starts the next period. With all,
// it returns all regions that may be cleared.
func (r *regions) newPeriod(all bool) []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.period++
	if all {
		clear(r.recent)
	}
	quiet := make(bitmap, len(r.dirty))
	for i := range quiet {
		quiet[i] = r.dirty[i] &^ r.recent[i] &^ r.unequal[i]
	}
	clear(r.recent)
	return quiet.runs()
}

// stillQuiet returns the regions of a run in which nothing changed since the period started. The caller must hold the
// range lock of the whole run.
func (r *regions) stillQuiet(q run) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var quiet []int64
	for i := q.from; i < q.to; i++ {
		if !r.recent.has(i) {
			quiet = append(quiet, int64(i))
		}
	}
	return quiet
}

// cleared records that no member has these regions marked. A region stays dirty if a change of it waits for the range
// lock.
func (r *regions) cleared(indexes []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range indexes {
		if !r.recent.has(int(i)) {
			r.dirty.unset(int(i))
		}
	}
}

// isIdle reports whether there is nothing left to clear; then the next change sends to wake again.
func (r *regions) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.dirty {
		if r.dirty[i]&^r.unequal[i] != 0 {
			return false
		}
	}
	r.isWoken = false
	return true
}

// bytes returns the ranges [from, to) of bytes that regions cover in a volume of the given size, and their total size.
func (r *regions) bytes(of bitmap, size int64) (ranges []byteRange, total int64) {
	for _, q := range of.runs() {
		b := r.bytesOf(q, size)
		ranges = append(ranges, b)
		total += b.to - b.from
	}
	return ranges, total
}

// bytesOf is the range of a run in a volume of the given size. There the end of the last region may exceed an int64.
func (r *regions) bytesOf(q run, size int64) byteRange {
	b := byteRange{from: int64(q.from) * r.regionBytes, to: size}
	if int64(q.to) <= size/r.regionBytes {
		b.to = int64(q.to) * r.regionBytes
	}
	return b
}

// byteRange is a range of the volume; to is excluded.
type byteRange struct{ from, to int64 }

// run is a sequence of adjacent regions; to is excluded.
type run struct{ from, to int }

type bitmap []uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) unset(i int)    { b[i/64] &^= 1 << (i % 64) }

// add sets the bits of indexes.
func (b bitmap) add(indexes []int64) {
	for _, i := range indexes {
		b.set(int(i), int(i)+1)
	}
}

// set sets the bits [from, to).
func (b bitmap) set(from, to int) {
	for from < to {
		if from%64 == 0 && to-from >= 64 {
			b[from/64] = ^uint64(0)
			from += 64
			continue
		}
		b[from/64] |= 1 << (from % 64)
		from++
	}
}

// runs returns the sequences of set bits.
func (b bitmap) runs() []run {
	var out []run
	for w, word := range b {
		for word != 0 {
			i := bits.TrailingZeros64(word)
			n := bits.TrailingZeros64(^(word >> i))
			from := w*64 + i
			if last := len(out) - 1; last >= 0 && out[last].to == from {
				out[last].to = from + n
			} else {
				out = append(out, run{from: from, to: from + n})
			}
			if i+n == 64 {
				break
			}
			word &= ^uint64(0) << (i + n)
		}
	}
	return out
}

// indexes returns the set bits.
func (b bitmap) indexes() []int64 {
	var out []int64
	for _, q := range b.runs() {
		for i := q.from; i < q.to; i++ {
			out = append(out, int64(i))
		}
	}
	return out
}

// count returns the number of set bits.
func (b bitmap) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}
