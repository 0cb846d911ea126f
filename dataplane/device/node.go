package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// RemoveStaleDevices removes the block device nodes that dead processes left in a device directory. Otherwise such a
// node could show the device of another volume. One process of a machine owns a device directory. So a node there that
// belongs to no kept device was left by a process that died. Its numbers mean nothing, because another device may have
// them by now. The owner of the directory calls it once, before it creates its first device. Anything that is not a
// block device stays. It returns nil if the directory is missing.
func RemoveStaleDevices(dir string, held []Held) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find stale devices: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		kept := slices.ContainsFunc(held, func(h Held) bool { return h.Path == path })
		if entry.Type()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice || kept {
			continue
		}
		err = errors.Join(err, unix.Unlink(path))
	}
	if err != nil {
		return fmt.Errorf("remove stale devices in %s: %w", dir, err)
	}
	return nil
}

// RemoveLostNBD disconnects the NBD devices of a keeper of the same node that has died: no process serves them. The
// caller must call it before the first device is created.
func (l *Local) RemoveLostNBD() {
	if l.opts.NBD == nil {
		return
	}
	lost, err := l.opts.NBD.Configured(l.nbdPrefix())
	for _, d := range lost {
		err = errors.Join(err, l.opts.NBD.Disconnect(d))
	}
	if err != nil {
		l.opts.Log.WithError(err).Warn("Cannot remove all devices of a holder that died")
	}
}

// NodeName turns the name of a node into a valid value of Options.Node.
func NodeName(name string) string { return strings.ReplaceAll(name, "/", "_") }

// makeNode puts a block device node at path. It replaces a node that a dead process left there, and refuses to replace
// anything else.
func makeNode(path string, dev uint64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create the device directory: %w", err)
	}
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return fmt.Errorf("examine %s: %w", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFBLK:
		return fmt.Errorf("%s exists and is not a block device", path)
	}
	fresh := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.new", filepath.Base(path)))
	if err := unix.Unlink(fresh); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", fresh, err)
	}
	if err := unix.Mknod(fresh, unix.S_IFBLK|0o660, int(dev)); err != nil {
		return fmt.Errorf("create %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		_ = unix.Unlink(fresh)
		return fmt.Errorf("rename the new device node: %w", err)
	}
	return nil
}

// removeNode removes the node if it still has the number dev.
func removeNode(path string, dev uint64) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, unix.ENOENT) || err == nil && (st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != dev) {
		return nil
	}
	if err == nil {
		err = unix.Unlink(path)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
