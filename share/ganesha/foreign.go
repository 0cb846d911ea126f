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

// maxNesting is above how many directories Ganesha nests for the record of one client: a name of 1024 bytes in pieces of 255.
const maxNesting = 32

// maxRecords is above how many entries the records have for any number of nodes, in all. Someone who could write the volume without a share
// may have made millions: Ganesha takes 4 KiB of the node's memory for each.
const maxRecords = 50_000

// ErrTooMany means that there are more.
var ErrTooMany = fmt.Errorf("directory %s/%s had more than %d entries", RecoveryName, RecordsName, maxRecords)

// SetAside moves all records to where clients see and may delete them: this process would take too long for that.
func SetAside(recovery string) error {
	target := filepath.Join(recovery, CoverName, RecordsName+"-"+uuid.NewString())
	if err := os.Rename(filepath.Join(recovery, RecordsName), target); err != nil {
		return fmt.Errorf("setting aside what is in place of the recovery data: %w", err)
	}
	return nil
}

// DropForeign removes from the recovery directory what neither Ganesha nor a share manager makes there. Someone who could write the volume
// without a share made it: Ganesha would list and remove directories where a link leads, this process would write to a device or wait
// for a pipe, and what is not a directory in place of one would keep the records of all later servers from being kept.
func DropForeign(recovery string) error {
	for _, name := range []string{WrittenName, EpochName, LostName, RecordsName, filepath.Join(RecordsName, linkName)} {
		path := filepath.Join(recovery, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			continue
		case err != nil:
			return fmt.Errorf("looking at the recovery data: %w", err)
		case (name == EpochName || name == LostName) && info.Mode().IsRegular():
			continue
		case name == RecordsName && info.IsDir(), filepath.Base(name) == linkName && info.Mode().Type() == os.ModeSymlink:
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing what is in place of the recovery data: %w", err)
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
	return nil // nobody reads what is beside the records
}

// readAtOnce is how many entries of a directory are in memory at a time.
const readAtOnce = 1000

// dropForeignIn looks at a directory within the recovery directory, or at that itself, and at those in it, but for the records and the cover, which
// is the clients'. left is how many entries may still be there.
func dropForeignIn(recovery, dir string, nesting int, left *int) error {
	entries, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("looking for what is foreign among the recovery data: %w", err)
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
			return fmt.Errorf("looking for what is foreign among the recovery data: %w", err)
		}
	}
}

func dropIfForeign(recovery, dir string, e os.DirEntry, nesting int, left *int) error {
	path := filepath.Join(dir, e.Name())
	switch {
	case nesting == 0 && (e.Name() == CoverName || e.Name() == OwnerName || e.Name() == RecordsName && e.IsDir()), e.Type().IsRegular():
		return nil // Claim looks at OwnerName
	case e.IsDir() && nesting < maxNesting:
		return dropForeignIn(recovery, path, nesting+1, left)
	case e.Type() == os.ModeSymlink && dir == filepath.Join(recovery, RecordsName) && leadsToRecords(path):
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("removing what is foreign among the recovery data: %w", err)
	}
	return nil
}

func leadsToRecords(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && recordsLink.MatchString(target)
}
