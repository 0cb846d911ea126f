package disk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WriteClaim writes another claim number to the UUID file of the disk that rec was scanned from. It changes nothing
// else in the file that this package knows. Only here a UUID file is replaced, by a file with the same UUID. WriteClaim
// must be called only after the claim was recorded elsewhere (DecideClaim).
//
// It fails with ErrDirectoryChanged if rec.Path leads elsewhere since the scan. It fails with ErrConfigChanged if the
// UUID file is not the scanned one, or cannot be read; then nothing was written. It may be repeated. When it returns
// nil, the file is durable. After a crash at any line there is the old file or the new one.
func WriteClaim(root string, rec Record, claim int64) error {
	return writeClaim(root, rec, claim, nil)
}

func writeClaim(root string, rec Record, claim int64, before func(step) error) error {
	if rec.Config == nil {
		return fmt.Errorf("write the claim of disk %s: no UUID file was scanned: %w", rec.Name, ErrConfigChanged)
	}
	dir, err := openScanned(root, rec)
	if err != nil {
		return fmt.Errorf("write the claim of disk %s: %w", rec.Name, err)
	}
	defer dir.Close()
	now, err := readConfig(dir)
	if err != nil {
		return fmt.Errorf("write the claim of disk %s: %w: %w", rec.Name, ErrConfigChanged, err)
	}
	if now != *rec.Config {
		return fmt.Errorf("write the claim of disk %s: %w", rec.Name, ErrConfigChanged)
	}
	now.Claim = claim
	data, err := EncodeConfig(now)
	if err != nil {
		return err
	}
	if err := (writer{dir: dir, before: before}).replace(data); err != nil {
		return fmt.Errorf("write the claim of disk %s in %s: %w", rec.Name, rec.Path, err)
	}
	return nil
}

// step is one call to the kernel on the way of a UUID file to the disk, in this order.
type step string

const (
	stepOpenTemp step = "create temporary file"
	stepWrite    step = "write temporary file"
	stepSync     step = "sync temporary file"
	stepClose    step = "close temporary file"
	stepName     step = "rename the temporary file"
	stepSyncDir  step = "sync directory"
)

// writer writes the UUID file of an open directory.
type writer struct {
	dir *os.File
	// before, if not nil, is called before each step and can make it fail, for tests.
	before func(step) error
}

func (w writer) do(s step, call func() error) error {
	if w.before != nil {
		if err := w.before(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// writeNew writes data under a temporary name in the same directory, and makes it durable. Then it gives the file its
// name if that is free, and makes the name durable.
func (w writer) writeNew(data []byte) error { return w.write(data, publish) }

// replace is writeNew, except that the name must be taken, and is replaced.
func (w writer) replace(data []byte) error {
	return w.write(data, func(dirFD int, temp string) error {
		return unix.Renameat(dirFD, temp, dirFD, ConfigFileName)
	})
}

func (w writer) write(data []byte, name func(dirFD int, temp string) error) error {
	var suffix [8]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return fmt.Errorf("generate a temporary name: %w", err)
	}
	temp := "." + ConfigFileName + "." + hex.EncodeToString(suffix[:]) + ".tmp"
	if err := w.writeTemp(temp, data); err != nil {
		return err
	}
	dirFD := int(w.dir.Fd())
	if err := w.do(stepName, func() error { return name(dirFD, temp) }); err != nil {
		_ = unix.Unlinkat(dirFD, temp, 0)
		return err
	}
	return w.do(stepSyncDir, w.dir.Sync)
}

func (w writer) writeTemp(temp string, data []byte) (err error) {
	dirFD := int(w.dir.Fd())
	var file *os.File
	err = w.do(stepOpenTemp, func() error {
		fd, err := unix.Openat(dirFD, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			file = os.NewFile(uintptr(fd), temp)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // perhaps closed before
			_ = unix.Unlinkat(dirFD, temp, 0)
		}
	}()
	if err := w.do(stepWrite, func() error { _, err := file.Write(data); return err }); err != nil {
		return err
	}
	if err := w.do(stepSync, file.Sync); err != nil {
		return err
	}
	return w.do(stepClose, file.Close)
}

// publish renames temp to the UUID file unless that exists. Some file systems cannot rename without replacing (EINVAL,
// rename(2)); there publish creates a second name.
func publish(dirFD int, temp string) error {
	err := unix.Renameat2(dirFD, temp, dirFD, ConfigFileName, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = publishByLink(dirFD, temp)
	}
	if errors.Is(err, unix.EEXIST) {
		return ErrConfigExists
	}
	return err
}

func publishByLink(dirFD int, temp string) error {
	if err := unix.Linkat(dirFD, temp, dirFD, ConfigFileName, 0); err != nil {
		return err
	}
	return unix.Unlinkat(dirFD, temp, 0)
}
