package chain

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Options configure an open chain.
type Options struct {
	// UID identifies the replica. Every file of the chain has it, except the data.
	UID string
	// Generation is the lowest generation of the list that is accepted: the one that the replica's metadata names.
	Generation int64
	// BootID is the id of this machine's boot. Empty means unknown: then no recent counts. After a slash, it may name the
	// mount. A reader names only the boot.
	BootID string
	// FailedSync means that the caller knows of a failed sync, or of an error of the disk, in this boot.
	FailedSync bool
	// Clean means that the last opening was closed in order: each sync succeeded, and nothing was written since. Then
	// the cache and the disk agree.
	Clean bool
	// SameSuperblock means that the disk was provably held since the last opening in this boot, so it has lost no page
	// of the cache.
	SameSuperblock bool
	// ReadOnly opens for reading only: nothing is ever written or removed, and only reads and views are possible.
	ReadOnly bool
	// Cache holds pages of maps; nil: the chain has its own, of DefaultCacheBytes.
	Cache *Cache
	// Reserve is the space in bytes that merges leave on the disk. SetReserve changes it.
	Reserve int64
	// OnDistrust, if set, is called once when the opening learns that changes may be missing, before it changes any
	// record. The caller must record this durably. An error ends the opening.
	OnDistrust func() error
	// Progress, if set, is called during a long opening, each time when the disk has completed a part.
	Progress func()

	// recentEntries and indexLayers replace the constants in tests.
	recentEntries int64
	indexLayers   int
}

// isPresent reports whether a recent with this boot id is of the present boot, and of the present mount. A reader may use
// another mount than the writer, so it compares only the boot.
func (o Options) isPresent(boot string) bool {
	if o.ReadOnly {
		boot, _, _ = strings.Cut(boot, "/")
	}
	return boot == o.BootID
}

func (o Options) indexFrom() int {
	if o.indexLayers > 0 {
		return o.indexLayers
	}
	return indexLayers
}

func (o Options) entries() int64 {
	if o.recentEntries > 0 {
		return o.recentEntries
	}
	return recentEntries
}

func (o Options) progress() {
	if o.Progress != nil {
		o.Progress()
	}
}

// Create writes the first list of a replica, durably: its only layer is the flat file that the directory has. The
// caller changes the metadata to version 2 afterwards, so a list without such metadata is a leftover. Before that, it
// is safe to repeat.
func Create(dir fsys.Dir, uid string) error {
	b, err := list{uid: uid, generation: 1, chain: layers.NewChain()}.encode()
	if err != nil {
		return err
	}
	for _, name := range []string{listName, listTempName} {
		if err := unlinkIfAny(dir, name); err != nil {
			return fmt.Errorf("create the list of layers: %w", err)
		}
	}
	s := newListStore(dir)
	if err := s.replace(b); err != nil {
		return fmt.Errorf("create the list of layers: %w", err)
	}
	return nil
}

// Open opens the chain of a directory. The caller holds the lock of the directory. The steps:
//
//  1. read the list: magic, version, checksum, uid, and at least the expected generation
//  2. compare the names in the directory with the list. A foreign or a missing file ends the opening here, and nothing
//     was changed
//  3. sync the directory: a process that was killed may have left names that are not durable
//  4. remove leftovers, all parts of a file together, and kept maps that are damaged
//  5. open the files that changes or a merge may write to; all others are opened when they are needed
//  6. make their cache and their disk agree, and decide which records count (settle.go)
//
// The head takes changes afterwards, whatever was prepared or switched before.
func Open(dir fsys.Dir, opts Options) (*Chain, error) {
	l, err := readList(dir, opts.UID)
	if err != nil {
		return nil, err
	}
	if l.generation < opts.Generation {
		return nil, fmt.Errorf("%s: %w: it has generation %d, and the metadata names %d", listName, ErrTorn, l.generation, opts.Generation)
	}
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	leftovers, err := compare(l.chain, names)
	if err != nil {
		return nil, err
	}
	if opts.Cache == nil {
		opts.Cache = NewCache(DefaultCacheBytes)
	}
	c := &Chain{dir: dir, opts: opts, cache: opts.Cache, store: newListStore(dir), views: map[*View]struct{}{}}
	c.reserve.Store(opts.Reserve)
	kept, unwanted := readAllKept(dir, opts.UID, names, l.chain.Next)
	c.setKept(kept)
	s := &state{list: l, files: map[layers.File]*file{}, index: openIndex(dir, opts)}
	for i, n := range fileNumbers(l.chain) {
		s.files[n] = &file{n: n, dir: dir, uid: opts.UID, cache: opts.Cache}
		s.files[n].lowest.Store(i == 0)
	}
	c.state.Store(s)
	if !opts.ReadOnly {
		err = c.clean(append(leftovers, unwanted...))
	}
	if err == nil {
		err = c.openFiles(s)
	}
	if err != nil {
		for _, f := range s.files {
			_ = f.close() // the opening has failed
		}
		_ = s.index.close() // the same
		return nil, err
	}
	return c, nil
}

// clean makes the names durable that the opening relies on, and removes leftovers.
func (c *Chain) clean(leftovers []string) error {
	if err := c.dir.Sync(); err != nil {
		return err
	}
	for _, name := range leftovers {
		if err := unlinkIfAny(c.dir, name); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if len(leftovers) > 0 {
		return c.dir.Sync()
	}
	return nil
}

// compare decides about each layer file of a directory, and returns the names to remove. Other names are not its
// concern.
func compare(l layers.Chain, names []string) (leftovers []string, err error) {
	files, unsealed := fileNumbers(l), l.Unsealed()
	var found []layers.File
	for _, name := range names {
		n, kind, ok := parseName(name)
		if !ok {
			continue
		}
		switch l.Dispose(n) {
		case layers.Refuse:
			return nil, fmt.Errorf("%s: %w: the next number is %d", name, ErrForeign, l.Next)
		case layers.Remove:
			leftovers = append(leftovers, name)
		case layers.Keep:
			switch {
			case kind == ".img":
				found = append(found, n)
			case n == files[0]:
				leftovers = append(leftovers, name) // it was not the lowest file before
			case kind == ".recent" && !slices.Contains(unsealed, n):
				leftovers = append(leftovers, name) // it was not sealed before
			}
		}
	}
	if missing := l.Missing(found); len(missing) > 0 {
		return nil, fmt.Errorf("%s: %w", dataName(missing[0]), ErrMissing)
	}
	for _, n := range files[1:] {
		if !slices.Contains(names, mapName(n)) {
			return nil, fmt.Errorf("%s: %w", mapName(n), ErrMissing)
		}
	}
	// Recent first: it must not be believed when another part is gone.
	slices.SortStableFunc(leftovers, func(a, b string) int {
		return strings.Compare(strings.TrimLeft(b, "0123456789"), strings.TrimLeft(a, "0123456789"))
	})
	return leftovers, nil
}

// sumsKind is the kind of a file with the checksums of a sealed layer's file. This release writes none. It knows the name
// so that a replica of a later release can be opened and removed here: checksums are derived, so an opening ignores or
// removes them.
const sumsKind = ".sums"

// parseName returns the number and the part of a layer file's name. ok is false for all other names.
func parseName(name string) (n layers.File, kind string, ok bool) {
	if name == lowestName {
		return 1, ".img", true
	}
	digits := strings.TrimRight(name, ".abcdefghijklmnopqrstuvwxyz")
	kind = name[len(digits):]
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || strconv.FormatInt(number, 10) != digits {
		return 0, "", false
	}
	switch kind {
	case ".img", ".map", ".recent", sumsKind:
		return layers.File(number), kind, name != "1.img" // the data of file 1 has another name
	}
	return 0, "", false
}

// openFiles opens the files that changes, flushes and merges write to, and settles them. In an opening for reading
// only, it opens the head alone, to know its size.
func (c *Chain) openFiles(s *state) error {
	if c.opts.ReadOnly {
		return c.openReadOnly(s)
	}
	unsealed := s.unsealed()
	merged := []*file{}
	for _, l := range s.list.chain.Layers {
		for _, n := range l.Files {
			if f := s.files[n]; len(l.Files) > 1 && !slices.Contains(unsealed, f) {
				merged = append(merged, f)
			}
		}
	}
	for _, f := range append(slices.Clone(unsealed), merged...) {
		if err := f.open(true); err != nil {
			return err
		}
	}
	for _, f := range unsealed {
		if err := c.openRecent(s, f); err != nil {
			return err
		}
	}
	return c.settle(unsealed, merged)
}

// openRecent opens recent of an unsealed file. A merge has removed it from a file that takes no changes. The head
// always has one: it is durable before the list names the head. If it is missing, or too short because an opening was
// killed while it created the file, it is created again. Then it gets no boot id, because the lost one may have had
// entries: other members are preferred.
func (c *Chain) openRecent(s *state, f *file) error {
	if f.lowest.Load() {
		return nil
	}
	err := f.openRecent()
	switch {
	case errors.Is(err, errShort) && f == s.active():
		if err := unlinkIfAny(c.dir, recentName(f.n)); err != nil {
			return fmt.Errorf("remove %s: %w", recentName(f.n), err)
		}
	case !isMissing(err):
		return err
	case f != s.active():
		return nil
	}
	o, err := c.dir.OpenFile(recentName(f.n), fsys.CreateNew)
	if err != nil {
		return fmt.Errorf("create %s: %w", recentName(f.n), err)
	}
	err = writeNewRecent(o, c.opts.UID, f.n, noBoot, c.opts.entries())
	if err == nil {
		err = o.Sync()
	}
	if err = errors.Join(err, o.Close()); err != nil {
		return fmt.Errorf("create %s: %w", recentName(f.n), err)
	}
	if err := c.dir.Sync(); err != nil {
		return err
	}
	return f.openRecent()
}

// openReadOnly opens the head, and believes the records of unsealed files as an opening for changes does. Nothing is
// synced or dropped, so a caller that needs the content of the disk must not use it.
func (c *Chain) openReadOnly(s *state) error {
	if err := s.top().open(false); err != nil {
		return err
	}
	var recents []*recent
	for _, f := range s.unsealed() {
		if f.lowest.Load() {
			continue
		}
		if err := f.open(false); err != nil {
			return err
		}
		r, err := c.readRecent(f)
		switch {
		case f == s.active() && (isMissing(err) || errors.Is(err, errShort)):
			r = &recent{n: f.n, boot: noBoot}
		case isMissing(err):
			continue
		case err != nil:
			return err
		}
		f.known.recent = r
		recents = append(recents, r)
	}
	c.trust = layers.Believe(c.opening(recents, false))
	for _, f := range s.unsealed() {
		if p := f.presence(); p != nil && p.recent != nil {
			if c.trust.Recent {
				p.believe(blocksOf(f.size.Load()))
			}
			p.recent = nil
		}
	}
	return nil
}

// readRecent reads recent of a file without changing it.
func (c *Chain) readRecent(f *file) (*recent, error) {
	o, err := c.dir.OpenFile(recentName(f.n), fsys.ReadOnly)
	if err != nil {
		return nil, err
	}
	r, err := openRecent(o, recentName(f.n), c.opts.UID, f.n)
	return r, errors.Join(err, o.Close())
}
