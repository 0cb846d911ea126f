package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// setUpRecovery creates the directory if it is missing and mounts it at a place that only this process reaches. In the
// share, an empty directory is mounted over it. Otherwise a client with root rights could lead the server to other
// places by links, or make it forget its clients.
//
//	/run/longhorn-share/recovery  ──►  .longhorn-share         of the volume
//	/export/VOLUME/.longhorn-share ─►  .longhorn-share/cover   of the volume
func (v *volume) setUpRecovery() error {
	if err := os.MkdirAll(v.recovery, 0o700); err != nil {
		return fmt.Errorf("creating the recovery directory: %w", err)
	}
	if v.o.ReadOnly {
		// the server writes nothing to the volume, so a client has no locks that a writer could take
		return nil
	}
	directory, made, err := openRecovery(v.o.target())
	switch {
	case isUnreadable(err):
		return err // records may exist, and clients would lose their state
	case err != nil:
		v.log.WithError(err).Warn("Clients lose their open files and locks when this pod stops: the recovery data cannot be stored on the volume")
		v.incident = ganesha.NewIncident(types.ReasonRecoveryDataUnusable, "the recovery data cannot be stored on the volume: "+err.Error())
		return nil
	}
	defer directory.Close()
	self := filepath.Join("/proc/self/fd", fmt.Sprint(directory.Fd()))
	if err := v.bind(self, v.recovery); err != nil {
		return err
	}
	if err := v.takeRecords(made); err != nil {
		return err
	}
	return v.bind(filepath.Join(v.recovery, ganesha.CoverName), filepath.Join(v.o.target(), ganesha.RecoveryName))
}

// takeRecords checks whether the records of the last server's clients exist and belong to this volume, and removes
// everything else. made: the recovery directory was missing.
func (v *volume) takeRecords(made bool) error {
	lost := ganesha.LostRecords(v.recovery, made)
	switch err := ganesha.DropForeign(v.recovery); {
	case errors.Is(err, ganesha.ErrTooMany):
		if err := ganesha.SetAside(v.recovery); err != nil {
			return err
		}
		v.log.WithError(err).Warn("The recovery data did not come from an NFS server. It was moved to the share's directory " + ganesha.RecoveryName)
		lost = err.Error()
	case err != nil:
		return err
	}
	removed, err := ganesha.Claim(v.recovery, v.o.VolumeUID)
	switch {
	case ganesha.IsFull(err):
		v.log.WithError(err).Warn("The volume has no space to store its UID. The server of a clone of this volume will wait for clients that the clone never had")
	case err != nil:
		return err
	}
	switch {
	case removed:
		v.log.Info("The records of clients came from the volume of which this volume is a copy. The records were removed")
	case lost != "":
		v.log.WithField(logfields.Reason, lost).Info("The volume has no records of an earlier server's clients")
		v.incident = ganesha.NewIncident(types.ReasonRecoveryDataMissing, lost)
	}
	return nil
}

func (v *volume) bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind-mounting %s to %s: %w", source, target, err)
	}
	v.mounts = append(v.mounts, target)
	if err := unix.Mount("", target, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount at %s private: %w", target, err)
	}
	return nil
}

// openRecovery opens the directory, and creates it if it is missing. It never follows a link with that name.
func openRecovery(root string) (directory *os.File, made bool, err error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("opening %s: %w", root, err)
	}
	defer unix.Close(top)
	fd, made, err := makeDirectory(top, ganesha.RecoveryName)
	if err != nil {
		return nil, false, err
	}
	cover, _, err := makeDirectory(fd, ganesha.CoverName)
	if err != nil {
		unix.Close(fd)
		return nil, false, err
	}
	unix.Close(cover)
	return os.NewFile(uintptr(fd), ganesha.RecoveryName), made, nil
}

// isUnreadable reports whether an error comes from the device or from damage to the file system, which the next start
// checks. All other errors show that something else is in place of the directory, or that there is no space for it.
func isUnreadable(err error) bool {
	return slices.ContainsFunc([]error{unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.ENODATA}, func(e error) bool { return errors.Is(err, e) })
}

// makeDirectory opens a directory in root that no other user may read. made: it was missing.
func makeDirectory(parent int, name string) (fd int, made bool, err error) {
	err = unix.Mkdirat(parent, name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, false, fmt.Errorf("creating directory %s: %w", name, err)
	}
	made = err == nil
	fd, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("opening directory %s: %w", name, err)
	}
	if err := errors.Join(unix.Fchown(fd, 0, 0), unix.Fchmod(fd, 0o700)); err != nil {
		unix.Close(fd)
		return -1, false, fmt.Errorf("restricting directory %s to root: %w", name, err)
	}
	return fd, made, nil
}

// cover is the access that clients have to the directory that is mounted over the recovery directory, once prepare has
// returned.
//
// The directory is an export of its own, not only because of its access. The kernel refuses to remove a directory that
// is a mount point, with EBUSY. Ganesha (4.3 and 9.14) returns that as NFS4ERR_DELAY, so the client tries forever.
// Ganesha removes no directory that belongs to another export: it returns NFS4ERR_NOTEMPTY at once. Nor does it list
// such a directory if the client has no access to the export. So a client that empties a share sees nothing that stays.
func (v *volume) cover() ganesha.CoverAccess {
	path := filepath.Join(v.o.target(), ganesha.RecoveryName)
	if !slices.Contains(v.mounts, path) {
		return ganesha.CoverNone
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		return ganesha.CoverVisible
	}
	return ganesha.CoverHidden
}
