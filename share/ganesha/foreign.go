package ganesha

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// maxNesting is more than the number of directories that Ganesha nests for the record of one client: a name of 1024
// bytes in parts of 255.
const maxNesting = 32

// maxRecords is more than the total number of entries in the records for any number of nodes. A user who could write to
// the volume without a share may have created millions. Ganesha takes 4 KiB of the node's memory for each.
const maxRecords = 50_000

// ErrTooMany means that there are more entries.
var ErrTooMany = fmt.Errorf("directory %s/%s had more than %d entries", RecoveryName, RecordsName, maxRecords)

// SetAside moves all records to a place where clients see them and may delete them: to delete them here would take too
// long.
func SetAside(recovery string) error {
	target := filepath.Join(recovery, CoverName, RecordsName+"-"+uuid.NewString())
	if err := os.Rename(filepath.Join(recovery, RecordsName), target); err != nil {
		return fmt.Errorf("moving the foreign recovery data to another directory: %w", err)
	}
	return nil
}

// DropForeign removes every entry from the recovery directory that neither Ganesha nor a share manager creates there. A
// user who could write to the volume without a share created it. Ganesha would list and remove directories behind a
// link. This process would write to a device or wait for a pipe. A file in place of a directory would prevent all later
// servers from storing their records.
func DropForeign(recovery string) error {
	for _, name := range []string{WrittenName, EpochName, LostName, RecordsName, filepath.Join(RecordsName, linkName)} {
		path := filepath.Join(recovery, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			continue
		case err != nil:
			return fmt.Errorf("reading the recovery data: %w", err)
		case (name == EpochName || name == LostName) && info.Mode().IsRegular():
			continue
		case name == RecordsName && info.IsDir(), filepath.Base(name) == linkName && info.Mode().Type() == os.ModeSymlink:
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing a foreign entry in place of the recovery data: %w", err)
		}
	}
	records := filepath.Join(recovery, RecordsName)
	if !isNoDirectory(records) {
		left := maxRecords
		if err := dropForeignIn(recovery, records, 1, &left); err != nil {
			return err
		}
	}
	left := maxRecords
	if err := dropForeignIn(recovery, recovery, 0, &left); !errors.Is(err, ErrTooMany) {
		return err
	}
	return nil // nothing reads other entries than the records
}

// readAtOnce is how many entries of a directory are in memory at the same time.
const readAtOnce = 1000

// dropForeignIn checks a directory within the recovery directory, or the recovery directory itself, and the directories
// in it. It skips the records and the cover, which belongs to the clients. left is how many entries may still exist.
func dropForeignIn(recovery, dir string, nesting int, left *int) error {
	entries, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("searching the recovery data for foreign entries: %w", err)
	}
	defer entries.Close()
	for {
		some, err := entries.ReadDir(readAtOnce)
		for _, e := range some {
			if *left--; *left < 0 {
				return ErrTooMany
			}
			if err := dropIfForeign(recovery, dir, e, nesting, left); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("searching the recovery data for foreign entries: %w", err)
		}
	}
}

func dropIfForeign(recovery, dir string, e os.DirEntry, nesting int, left *int) error {
	path := filepath.Join(dir, e.Name())
	switch {
	case nesting == 0 && (e.Name() == CoverName || e.Name() == OwnerName || e.Name() == RecordsName && e.IsDir()), e.Type().IsRegular():
		return nil // Claim checks OwnerName
	case e.IsDir() && nesting < maxNesting:
		return dropForeignIn(recovery, path, nesting+1, left)
	case e.Type() == os.ModeSymlink && dir == filepath.Join(recovery, RecordsName) && leadsToRecords(path):
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing a foreign entry from the recovery data: %w", err)
	}
	return nil
}

func leadsToRecords(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && recordsLink.MatchString(target)
}
