// Package memfs is an fsys.FS in memory for tests. Any step can fail. It can also stop at any step, in one of two ways:
// as a killed process, which leaves everything that it wrote, or as a machine without power, which leaves an arbitrary
// part of the unsynced data.
//
// A Crash may lose the following:
//
//	file content    any 512-byte sector written since the file's last sync may be old or new, each for itself; inside a
//	                sector any byte that changed may be old or new (a torn sector)
//	file size       old or new
//	directory       entries are journalled in order: a crash keeps any number of the first changes since the last sync
//
// Reads and writes pass through a page cache that works as on Linux (cache.go). Data that could not be written out
// stays readable, and counts as clean, until it is evicted.
//
// The package must not know the meaning of the files, and production code must not import it.
package memfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// ErrCrashed is the error of every call after the machine has lost power or the process was killed.
var ErrCrashed = errors.New("the machine has no power")

// Op is one step that changes a file or directory, or makes a change durable.
type Op struct {
	// N counts the steps from 1.
	N int
	// Kind is one of create mkdir rename exchange unlink rmdir write truncate punch zero writeback datasync sync
	// dropcache writethrough syncdir.
	Kind string
	// Name is the last element of the name that the step concerns.
	Name string
}

// FS is an empty file system with the root directory. It is safe for concurrent use.
type FS struct {
	mu    sync.Mutex
	root  *dirNode
	inode uint64
	ops   int
	epoch int // counts crashes and kills; a handle of an earlier epoch is dead
	// dead is true from the crash to the restart.
	dead bool
	// full is true when no file gets another sector.
	full bool
	// available is what AvailableBytes returns, unless the file system is full. Writes do not change it.
	available int64
	// noExchange is true when names cannot be exchanged.
	noExchange bool
	// mount is the number of the mount; 0: unknown.
	mount uint64
	// failing has the syncs that must fail, and kept the parts of files that stay cached.
	failing []failingSync
	kept    []keptPart
	// before is called before each step; an error makes the step fail without effect.
	before func(Op) error
}

// New creates an empty file system.
func New() *FS {
	f := &FS{available: 1 << 50, mount: 1}
	f.root = f.newDir()
	return f
}

// Before sets the hook that is called before each step from now on; nil allows all steps. An error makes the step fail
// without effect; ErrCrashed also ends every later call until Crash or Kill. A hook that does not return simulates a
// call that the disk does not answer: it delays only that step. Steps are counted in the order in which they call the
// hook.
func (f *FS) Before(hook func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// MountAgain makes directories that are opened from now on belong to another mount. The file system and its cache stay:
// a test that needs the loss of the cache also uses Crash.
func (f *FS) MountAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mount++
}

// ForgetMounts makes the mounts of directories unknown, as before Linux 6.8.
func (f *FS) ForgetMounts() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mount = 0
}

// Fill takes all space. From now on a write that needs a sector which the file does not have fails with ENOSPC, even
// after other space is freed. Existing sectors can be overwritten, and names need no space.
func (f *FS) Fill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = true
}

// SetAvailable sets what AvailableBytes returns. It limits nothing.
func (f *FS) SetAvailable(available int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.available = available
}

// RefuseExchange makes Exchange return that it is not supported.
func (f *FS) RefuseExchange() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noExchange = true
}

// Steps returns the number of steps so far.
func (f *FS) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// MkdirAll creates a durable directory, for the preparation of a test.
func (f *FS) MkdirAll(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.root
	for _, name := range strings.Split(strings.Trim(dir, "/"), "/") {
		next, ok := at.entries[name].(*dirNode)
		if !ok {
			next = f.newDir()
			at.entries[name], at.durable[name] = next, next
		}
		at = next
	}
}

// stepLocked counts a step and calls the hook. It releases the lock during the call.
func (f *FS) stepLocked(kind, name string) error {
	if f.dead {
		return ErrCrashed
	}
	f.ops++
	hook, op := f.before, Op{N: f.ops, Kind: kind, Name: name}
	if hook == nil {
		return nil
	}
	epoch := f.epoch
	f.mu.Unlock()
	err := hook(op)
	f.mu.Lock()
	if f.dead || f.epoch != epoch {
		return ErrCrashed // the machine stopped while the disk did not answer
	}
	if errors.Is(err, ErrCrashed) {
		f.dead = true
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

// node is a *dirNode or a *fileNode.
type node interface{ number() uint64 }

type dirNode struct {
	inode   uint64
	entries map[string]node
	durable map[string]node
	journal []func(map[string]node) // changes since the last sync, in order
	locked  *dir
}

func (d *dirNode) number() uint64 { return d.inode }

// change applies a change of entries that a crash may lose.
func (d *dirNode) change(c func(map[string]node)) {
	c(d.entries)
	d.journal = append(d.journal, c)
}

func (f *FS) newDir() *dirNode {
	f.inode++
	return &dirNode{inode: f.inode, entries: map[string]node{}, durable: map[string]node{}}
}

// OpenDir opens a directory by absolute path. The file system has no links.
func (f *FS) OpenDir(name string) (fsys.Dir, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, ErrCrashed
	}
	at := f.root
	for _, e := range strings.Split(strings.Trim(path.Clean(name), "/"), "/") {
		if e == "" {
			continue
		}
		next, err := lookupDir(at, e)
		if err != nil {
			return nil, fmt.Errorf("open directory %s: %w", name, err)
		}
		at = next
	}
	return &dir{fs: f, node: at, path: path.Clean(name), epoch: f.epoch, mount: f.mount}, nil
}

func lookupDir(in *dirNode, name string) (*dirNode, error) {
	switch n := in.entries[name].(type) {
	case nil:
		return nil, syscall.ENOENT
	case *dirNode:
		return n, nil
	}
	return nil, fmt.Errorf("%w: %w", fsys.ErrNotRegular, syscall.ENOTDIR)
}

type dir struct {
	fs    *FS
	node  *dirNode
	path  string
	epoch int
	mount uint64
}

// MountID implements fsys.Mounted.
func (d *dir) MountID() (id uint64, known bool) { return d.mount, d.mount != 0 }

// enter locks the file system for a call on d, or returns why d cannot be used.
func (d *dir) enter() error {
	d.fs.mu.Lock()
	if d.fs.dead || d.epoch != d.fs.epoch {
		d.fs.mu.Unlock()
		return ErrCrashed
	}
	return nil
}

func (d *dir) OpenDir(name string) (fsys.Dir, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.fs.mu.Unlock()
	n, err := lookupDir(d.node, name)
	if err != nil {
		return nil, err
	}
	return &dir{fs: d.fs, node: n, path: path.Join(d.path, name), epoch: d.epoch, mount: d.mount}, nil
}

func (d *dir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.fs.mu.Unlock()
	n := d.node.entries[name]
	if mode == fsys.CreateNew {
		if n != nil {
			return nil, syscall.EEXIST
		}
		if err := d.fs.stepLocked("create", name); err != nil {
			return nil, err
		}
		d.fs.inode++
		made := newFile(d.fs.inode)
		d.node.change(func(m map[string]node) { m[name] = made })
		n = made
	}
	switch n := n.(type) {
	case nil:
		return nil, syscall.ENOENT
	case *fileNode:
		return &file{fs: d.fs, node: n, name: name, path: path.Join(d.path, name), epoch: d.epoch, reported: n.reportedAtOpening()}, nil
	}
	return nil, fsys.ErrNotRegular
}

func (d *dir) Mkdir(name string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	if d.node.entries[name] != nil {
		return syscall.EEXIST
	}
	if err := d.fs.stepLocked("mkdir", name); err != nil {
		return err
	}
	made := d.fs.newDir()
	d.node.change(func(m map[string]node) { m[name] = made })
	return nil
}

func (d *dir) Rename(from, to string) error { return d.rename(from, to, true) }

func (d *dir) RenameNew(from, to string) error { return d.rename(from, to, false) }

func (d *dir) rename(from, to string, replace bool) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	n := d.node.entries[from]
	switch {
	case n == nil:
		return syscall.ENOENT
	case !replace && d.node.entries[to] != nil:
		return syscall.EEXIST
	}
	if err := d.fs.stepLocked("rename", to); err != nil {
		return err
	}
	d.node.change(func(m map[string]node) { delete(m, from); m[to] = n })
	return nil
}

func (d *dir) Exchange(one, other string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	a, b := d.node.entries[one], d.node.entries[other]
	switch {
	case d.fs.noExchange:
		return syscall.EOPNOTSUPP
	case a == nil || b == nil:
		return syscall.ENOENT
	}
	if err := d.fs.stepLocked("exchange", other); err != nil {
		return err
	}
	d.node.change(func(m map[string]node) { m[one], m[other] = b, a })
	return nil
}

func (d *dir) Unlink(name string) error { return d.remove("unlink", name) }

func (d *dir) Rmdir(name string) error { return d.remove("rmdir", name) }

func (d *dir) remove(kind, name string) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	n := d.node.entries[name]
	sub, isDir := n.(*dirNode)
	switch {
	case n == nil:
		return syscall.ENOENT
	case isDir != (kind == "rmdir"):
		return syscall.EISDIR
	case isDir && len(sub.entries) > 0:
		return syscall.ENOTEMPTY
	}
	if err := d.fs.stepLocked(kind, name); err != nil {
		return err
	}
	d.node.change(func(m map[string]node) { delete(m, name) })
	return nil
}

func (d *dir) Names() ([]string, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.fs.mu.Unlock()
	names := []string{}
	for name := range d.node.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (d *dir) AvailableBytes() (int64, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.fs.mu.Unlock()
	if d.fs.full {
		return 0, nil
	}
	return d.fs.available, nil
}

func (d *dir) ID() (fsys.ID, error) { return fsys.ID{Inode: d.node.inode}, nil }

func (d *dir) Lookup(name string) (fsys.ID, error) {
	if err := d.enter(); err != nil {
		return fsys.ID{}, err
	}
	defer d.fs.mu.Unlock()
	n := d.node.entries[name]
	if n == nil {
		return fsys.ID{}, syscall.ENOENT
	}
	return fsys.ID{Inode: n.number()}, nil
}

func (d *dir) Sync() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	if err := d.fs.stepLocked("syncdir", ""); err != nil {
		return err
	}
	for _, c := range d.node.journal {
		c(d.node.durable)
	}
	d.node.journal = nil
	return nil
}

func (d *dir) TryLock() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.fs.mu.Unlock()
	if d.node.locked != nil && d.node.locked != d {
		return fsys.ErrLocked
	}
	d.node.locked = d
	return nil
}

func (d *dir) Close() error {
	d.fs.mu.Lock()
	defer d.fs.mu.Unlock()
	if d.node.locked == d {
		d.node.locked = nil
	}
	return nil
}
