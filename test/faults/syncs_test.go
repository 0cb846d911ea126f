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

	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

const (
	// ordersName is the file in a node's directory that tells its process what the syncs of volumes' data do: nothing strange while it
	// does not exist, else a kind of fault and a time.
	ordersName = "syncs"
	dataName   = "data.img" // of a replica
)

// slowestSync is how long an ordered sync takes at most: an engine waits slowAfter for a member when another one has answered.
const slowestSync = 3 * slowAfter / 2

// syncFaults are the file systems of a node, on which the syncs of data are slow, or fail.
type syncFaults struct {
	fsys.FS
	orders string
	log    *logrus.Entry
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

func (d *syncFaultsDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	f, err := d.Dir.OpenFile(name, mode)
	if err != nil || name != dataName || mode != fsys.ReadWrite {
		return f, err
	}
	volume, _, _ := strings.Cut(filepath.Base(d.path), "-r-")
	return &syncFaultsFile{File: f, orders: d.faults.orders, log: d.faults.log.WithField("volume", volume)}, nil
}

// syncFaultsFile is the data of a replica in one opening. After a sync that failed all later ones do nothing and succeed: so does a
// kernel that takes the pages which it could not write for clean, and tells of them once.
type syncFaultsFile struct {
	fsys.File
	orders string
	log    *logrus.Entry
	lost   atomic.Bool // a sync has failed
}

func (f *syncFaultsFile) Datasync() error  { return f.sync(f.File.Datasync) }
func (f *syncFaultsFile) Sync() error      { return f.sync(f.File.Sync) }
func (f *syncFaultsFile) WriteBack() error { return f.unlessLost(f.File.WriteBack) }

func (f *syncFaultsFile) unlessLost(do func() error) error {
	if f.lost.Load() {
		return nil
	}
	return do()
}

func (f *syncFaultsFile) sync(do func() error) error {
	kind, takes := readOrder(f.orders)
	if kind == "" || f.lost.Load() {
		return f.unlessLost(do)
	}
	time.Sleep(takes) // others come meanwhile, and wait for the next sync
	if kind == failedSyncs {
		f.lost.Store(true)
		f.log.Info("A sync fails as ordered")
		return fmt.Errorf("sync as ordered: %w", syscall.EIO)
	}
	f.log.Info("A sync was slow as ordered")
	return do()
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

// orderSyncs makes the syncs of a node's replicas strange, in its present process and in those that come.
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
