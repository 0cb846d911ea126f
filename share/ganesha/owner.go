package ganesha

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// volumeUID matches the UID of a Volume. A share manager has not written anything else into OwnerName.
var volumeUID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,62}$`)

// IsVolumeUID reports whether a text can be the UID of a Volume.
func IsVolumeUID(text string) bool { return volumeUID.MatchString(text) }

// Claim assigns the records to one volume: the link OwnerName has the volume's UID as its target. A clone or a restored
// backup has the records of its source volume. The clients in these records never come to this volume, and each server
// would wait for them.
//
//	uid      OwnerName                   the records    OwnerName
//	"":      any                         stay           is removed
//	given    is missing, or no UID       stay           gets this UID: a server of an earlier release wrote the records
//	given    has this UID                stay           stays
//	given    has another UID             are removed    gets this UID
//	any      cannot be read              an error: records of this volume's clients must not be removed on a guess
//
// OwnerName is a link because a share manager that does not know it removes it: DropForeign of an earlier release
// removes links. So no UID of another volume remains next to records that such a share manager added for this volume's
// clients. The first line of the table does the same if the leader is of an earlier release, which passes no UID. In
// addition, a link is never half written.
//
// Claim must be called before a server starts. It may be repeated after a crash at any line: the other UID is removed
// after the records, and no server starts before that. The epoch stays, so epochs still grow. If IsFull(err), the link
// is missing: the next Claim leaves the records.
func Claim(recovery, uid string) (removed bool, err error) {
	path := filepath.Join(recovery, OwnerName)
	owner, err := os.Readlink(path)
	isMissing := errors.Is(err, os.ErrNotExist)
	switch {
	case err != nil && !isMissing && !errors.Is(err, unix.EINVAL): // EINVAL: it is not a link
		return false, fmt.Errorf("reading which volume owns the records of clients: %w", err)
	case err == nil && owner == uid, isMissing && uid == "":
		return false, nil
	}
	if uid != "" && IsVolumeUID(owner) {
		removed = true
		if err := removeRecords(recovery); err != nil {
			return removed, fmt.Errorf("removing the records of clients of another volume: %w", err)
		}
	}
	if !isMissing {
		if err := errors.Join(os.RemoveAll(path), syncDirectory(recovery)); err != nil {
			return removed, fmt.Errorf("removing the name of the former owner of the records of clients: %w", err)
		}
	}
	if uid == "" {
		return removed, nil
	}
	if err := errors.Join(os.Symlink(uid, path), syncDirectory(recovery)); err != nil {
		return removed, fmt.Errorf("storing which volume owns the records of clients: %w", err)
	}
	return removed, nil
}

// removeRecords removes all records, and the generation of the other volume's engine. The directory of the records
// stays, because a missing one counts as a loss (LostRecords).
func removeRecords(recovery string) error {
	records := filepath.Join(recovery, RecordsName)
	entries, err := os.ReadDir(records)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(records, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(recovery, LostName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	return syncDirectory(records)
}

// IsFull reports whether an error only means that the file system has no space.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
