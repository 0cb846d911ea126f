package replica

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// intents is the live intent map. A write first calls mark, which returns when every region is marked durably.
type intents struct {
	file        fsys.File
	regionBytes int64
	// durable has the bit of each region with a mark that is known to be on disk. A write to a marked region reads
	// nothing else.
	durable []atomic.Uint64
	commits group

	mu      sync.Mutex
	image   intentImage        // guarded by mu; the intended content of the file
	dirty   map[int64]struct{} // guarded by mu; sectors that the file may not have yet
	pending []int64            // guarded by mu; regions whose marks the next commit makes durable
}

func newIntents(file fsys.File, image intentImage, regionBytes int64) *intents {
	m := &intents{
		file: file, image: image, regionBytes: regionBytes,
		durable: make([]atomic.Uint64, (image.regions+63)/64),
		dirty:   map[int64]struct{}{},
	}
	m.commits.run = m.commit
	for _, r := range image.marked() {
		m.durable[r/64].Or(1 << (r % 64))
	}
	return m
}

// rewrite writes all sectors and syncs them, because the marks that were read may exist only in the cache. Nothing else
// uses the map at this time.
func (m *intents) rewrite() error {
	if err := rewrite(m.file, m.image.b); err != nil {
		return fmt.Errorf("write the intent map again: %w", err)
	}
	return nil
}

// rewrite makes a file durable that has just been read. The kernel may show its content as clean although an earlier
// sync failed, so rewrite writes the content again. The first sync may report that earlier failure.
func rewrite(file fsys.File, content []byte) error {
	var err error
	for range 2 {
		if err = file.WriteAt(content, 0); err == nil {
			err = file.Datasync()
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// mark returns when the regions of a range are marked durably. After an error some may not be marked, and the range
// must not be written. Callers hold the replica's write lock for reading.
func (m *intents) mark(off, length int64) error {
	first, last := off/m.regionBytes, (off+length-1)/m.regionBytes
	missing := false
	for r := first; r <= last && !missing; r++ {
		missing = m.durable[r/64].Load()&(1<<(r%64)) == 0
	}
	if !missing {
		return nil
	}
	m.mu.Lock()
	for r := first; r <= last; r++ {
		if m.durable[r/64].Load()&(1<<(r%64)) == 0 {
			m.dirty[m.image.set(r, true)] = struct{}{}
			m.pending = append(m.pending, r)
		}
	}
	m.mu.Unlock()
	return m.commits.do()
}

// commit writes the changed sectors and syncs them. Only then may writes rely on the new marks. After an error, the
// sectors remain to be written. The marks in the image also stay, because the file may have them.
func (m *intents) commit() error {
	m.mu.Lock()
	sectors := m.takeDirtyLocked()
	regions := m.pending
	m.pending = nil
	m.mu.Unlock()
	if len(sectors) == 0 {
		return nil // the previous commit wrote everything
	}

	err := m.write(sectors)
	if err == nil {
		err = m.file.Datasync()
	}
	if err != nil {
		m.mu.Lock()
		for n := range sectors {
			m.dirty[n] = struct{}{}
		}
		m.mu.Unlock()
		return fmt.Errorf("mark regions in the intent map: %w", err)
	}
	for _, r := range regions {
		m.durable[r/64].Or(1 << (r % 64))
	}
	return nil
}

// makeDurable makes the intended content of the file durable, including parts that an earlier call could not write.
func (m *intents) makeDurable() error {
	if err := m.commit(); err != nil {
		return err
	}
	return m.file.Datasync()
}

// clear unmarks regions. The caller holds the replica's write lock, so that no write relies on a mark during this time.
// clear does not sync: a mark that returns after a crash costs only a comparison, and the next commit syncs the same
// file. No commit is under way during this time, because only writes cause commits.
func (m *intents) clear(regions []int64) error {
	m.mu.Lock()
	for _, r := range regions {
		m.durable[r/64].And(^uint64(1 << (r % 64)))
		m.dirty[m.image.set(r, false)] = struct{}{}
	}
	sectors := m.takeDirtyLocked()
	m.mu.Unlock() // the disk may hang, and callers that only read the marks need not wait
	if err := m.write(sectors); err != nil {
		m.mu.Lock()
		for n := range sectors {
			m.dirty[n] = struct{}{}
		}
		m.mu.Unlock()
		return fmt.Errorf("clear marks in the intent map: %w", err)
	}
	return nil
}

// regions is the number of regions in the map.
func (m *intents) regions() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.image.regions
}

// longer returns an image for more regions, with all current marks.
func (m *intents) longer(uid string, regions int64) intentImage {
	image := newIntentImage(uid, m.regionBytes, regions)
	for _, r := range m.marked() {
		image.set(r, true)
	}
	return image
}

// replace switches to another file, which holds the image durably. The caller holds the replica's write lock, so no
// write reads a mark during this time.
func (m *intents) replace(file fsys.File, image intentImage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file, m.image, m.pending = file, image, nil
	clear(m.dirty)
	m.durable = make([]atomic.Uint64, (image.regions+63)/64)
	for _, r := range image.marked() {
		m.durable[r/64].Or(1 << (r % 64))
	}
}

// takeDirtyLocked returns copies of the sectors to be written, by number, and clears the set.
func (m *intents) takeDirtyLocked() map[int64][]byte {
	sectors := make(map[int64][]byte, len(m.dirty))
	for n := range m.dirty {
		sectors[n] = slices.Clone(m.image.b[n*intentSectorBytes : (n+1)*intentSectorBytes])
	}
	clear(m.dirty)
	return sectors
}

func (m *intents) write(sectors map[int64][]byte) error {
	for n, b := range sectors {
		if err := m.file.WriteAt(b, n*intentSectorBytes); err != nil {
			return err
		}
	}
	return nil
}

// marked lists the marked regions, sorted.
func (m *intents) marked() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.image.marked()
}
