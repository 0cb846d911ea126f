package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

const (
	// ordersName is a file in a node's directory that controls the syncs of volumes' data in the node's process. If it
	// does not exist, they are normal. Otherwise it contains a kind of fault and a time.
	ordersName = "syncs"
	// Files of a replica.
	dataName     = "data.img"
	intentName   = "intent.map"
	besideName   = "intent.map.tmp"
	metaTempName = "replica.meta.tmp"
)

// slowestSync is the longest duration of an ordered sync: an engine waits slowAfter for a member after another member
// has answered.
const slowestSync = 3 * slowAfter / 2

// syncFaults are the file systems of a node. On them syncs are slow, or fail in the way of a kernel.
type syncFaults struct {
	fsys.FS
	orders string
	log    *logrus.Entry
	caches *caches
}

func (s *syncFaults) OpenDir(path string) (fsys.Dir, error) {
	d, err := s.FS.OpenDir(path)
	return s.dir(d, path, err)
}

func (s *syncFaults) dir(d fsys.Dir, path string, err error) (fsys.Dir, error) {
	if err != nil {
		return nil, err
	}
	return &syncFaultsDir{Dir: d, faults: s, path: path}, nil
}

type syncFaultsDir struct {
	fsys.Dir
	faults *syncFaults
	path   string
}

func (d *syncFaultsDir) OpenDir(name string) (fsys.Dir, error) {
	sub, err := d.Dir.OpenDir(name)
	return d.faults.dir(sub, filepath.Join(d.path, name), err)
}

// failing maps files to the kind of fault in which their syncs fail.
var failing = map[string]string{dataName: failedSyncs, intentName: failedMarks, besideName: failedMarks, metaTempName: failedMeta}

func (d *syncFaultsDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	f, err := d.Dir.OpenFile(name, mode)
	if err != nil || failing[name] == "" {
		return f, err
	}
	s := &syncFaultsFile{File: f, orders: d.faults.orders, log: d.faults.log.WithField("volume", volumeOf(filepath.Join(d.path, name))), fails: failing[name], slow: name == dataName, inUse: d.faults.caches.inUse}
	if name == metaTempName { // it is not used after a sync that failed
		return s, nil
	}
	s.cache, err = d.faults.caches.of(filepath.Join(d.path, name), f, mode == fsys.CreateNew, func() (fsys.File, error) {
		return d.Dir.OpenFile(name, fsys.ReadWrite)
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.told = s.cache.toldAtOpening()
	return s, nil
}

// syncFaultsFile is one opening of a file on which syncs can fail. Data that a sync could not write out stays readable
// in the cache, and later syncs do not write it out. A kernel behaves in the same way: it reports a failure once to
// each opening.
type syncFaultsFile struct {
	fsys.File
	orders string
	log    *logrus.Entry
	fails  string     // the kind of fault
	slow   bool       // its syncs can be slow
	cache  *pageCache // nil if no cache is simulated
	inUse  func(at int64) bool

	failed atomic.Bool // as ordered, in this opening
	told   int         // guarded by cache.telling; the last failure that was reported
}

func (f *syncFaultsFile) Datasync() error { return f.sync(f.File.Datasync) }
func (f *syncFaultsFile) Sync() error     { return f.sync(f.File.Sync) }

func (f *syncFaultsFile) WriteBack() error {
	if err := f.File.WriteBack(); err != nil {
		return err
	}
	return f.WriteError()
}

// WriteBackPart implements fsys.File.
func (f *syncFaultsFile) WriteBackPart(r fsys.Range) error {
	if err := f.File.WriteBackPart(r); err != nil {
		return err
	}
	return f.WriteError()
}

// WriteError implements fsys.File.
func (f *syncFaultsFile) WriteError() error {
	if f.cache != nil {
		f.cache.telling.Lock()
		untold := f.told < f.cache.errors
		f.told, f.cache.heard = f.cache.errors, f.cache.errors
		f.cache.telling.Unlock()
		if untold {
			return fmt.Errorf("write out as ordered: %w", syscall.EIO)
		}
	}
	return f.File.WriteError()
}

func (f *syncFaultsFile) change(off, length int64, do func() error) error {
	if f.cache == nil {
		return do()
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if err := f.cache.changeLocked(f.File, off, length); err != nil {
		return err
	}
	return do()
}

func (f *syncFaultsFile) WriteAt(p []byte, off int64) error {
	return f.change(off, int64(len(p)), func() error { return f.File.WriteAt(p, off) })
}

func (f *syncFaultsFile) PunchHole(off, length int64) error {
	return f.change(off, length, func() error { return f.File.PunchHole(off, length) })
}

func (f *syncFaultsFile) ZeroRange(off, length int64) error {
	return f.change(off, length, func() error { return f.File.ZeroRange(off, length) })
}

// DropCache implements fsys.File. Pages that are in use stay.
func (f *syncFaultsFile) DropCache(ranges []fsys.Range, progress func()) ([]fsys.Range, error) {
	kept, err := f.File.DropCache(ranges, progress)
	if err != nil || f.cache == nil {
		return kept, err
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	pages, err := f.cache.dropLocked(f.File, f.inUse)
	staying := f.cache.stayingLocked(ranges)
	f.log.WithField("pages", pages).Info("A file was dropped from the cache")
	if len(staying) > 0 {
		f.log.WithField("pages", len(staying)).Info("Pages that were lost stayed in the cache")
	}
	return append(kept, staying...), err
}

// WriteThrough implements fsys.File.
func (f *syncFaultsFile) WriteThrough(ranges []fsys.Range, progress func()) error {
	if err := f.File.WriteThrough(ranges, progress); err != nil || f.cache == nil {
		return err
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.cache.writtenThroughLocked(ranges)
}

func (f *syncFaultsFile) sync(do func() error) error {
	kind, takes := readOrder(f.orders)
	if kind == slowSyncs && f.slow || kind == f.fails {
		time.Sleep(takes) // other syncs come during this time, and wait for the next sync
	}
	fails := kind == f.fails && f.failed.CompareAndSwap(false, true)
	if f.cache == nil {
		if fails {
			f.log.Info("A sync fails as ordered")
			return fmt.Errorf("sync as ordered: %w", syscall.EIO)
		}
		return do()
	}
	f.cache.syncing.Lock()
	defer f.cache.syncing.Unlock()
	if err := f.noted(noteSync); err != nil {
		return err
	}
	if fails {
		f.log.Info("A sync fails as ordered")
		f.cache.telling.Lock()
		f.cache.errors++
		f.cache.telling.Unlock()
		return errors.Join(f.WriteError(), f.noted(noteFailed))
	}
	if kind == slowSyncs && f.slow {
		f.log.Info("A sync was slow as ordered")
	}
	if err := do(); err != nil {
		return errors.Join(err, f.noted(noteFailed))
	}
	return errors.Join(f.noted(noteSynced), f.WriteError())
}

func (f *syncFaultsFile) noted(note byte) error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	return f.cache.note(note)
}

func readOrder(path string) (kind string, takes time.Duration) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	kind, text, _ := strings.Cut(string(b), " ")
	if takes, err = time.ParseDuration(text); err != nil {
		panic("BUG: " + err.Error())
	}
	return kind, takes
}

// orderSyncs sets the fault of the syncs of a node's replicas, in its present process and in later processes.
func (n *node) orderSyncs(kind string, takes time.Duration) error {
	path := filepath.Join(n.dir, ordersName)
	draft := fmt.Sprintf("%s.%d", path, n.drafts.Add(1))
	if err := os.WriteFile(draft, []byte(kind+" "+takes.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

func (n *node) mendSyncs() error {
	if err := os.Remove(filepath.Join(n.dir, ordersName)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
