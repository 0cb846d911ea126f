package share

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// recoveryName is the directory in the root of the volume that holds what the server must
// know of its clients after a restart. It lies on the volume so that a successor on
// another node finds it.
const recoveryName = ".longhorn-share"

// coverName is an empty directory in it.
const coverName = "cover"

// setUpRecovery makes the directory where it is missing and mounts it where this process
// alone reaches it. In the share, an empty directory is mounted over it: a client that is
// root could otherwise lead the server to other places by links, or make it forget its
// clients.
//
//	/run/longhorn-share/recovery  ──►  .longhorn-share         of the volume
//	/export/VOLUME/.longhorn-share ─►  .longhorn-share/cover   of the volume
func (v *volume) setUpRecovery() error {
	if err := os.MkdirAll(v.recovery, 0o700); err != nil {
		return fmt.Errorf("making the recovery directory: %w", err)
	}
	if v.o.ReadOnly {
		return nil // nothing is written to the volume, and a client has no locks to lose that a writer could take
	}
	directory, made, err := openRecovery(v.o.target())
	if err != nil {
		v.log.WithError(err).Warn("Clients cannot keep their state beyond this pod: the recovery data is not on the volume")
		v.incident = newIncident(types.ReasonRecoveryDataUnusable, "the recovery data cannot be kept on the volume: "+err.Error())
		return nil
	}
	defer directory.Close()
	self := filepath.Join("/proc/self/fd", fmt.Sprint(directory.Fd()))
	if err := v.bind(self, v.recovery); err != nil {
		return err
	}
	if lost := lostRecords(v.recovery, made); lost != "" {
		v.log.WithField(logfields.Reason, lost).Info("No records of an earlier server's clients are on the volume")
		v.incident = newIncident(types.ReasonRecoveryDataMissing, lost)
	}
	switch err := dropForeign(v.recovery); {
	case errors.Is(err, errTooMany):
		if err := setAside(v.recovery); err != nil {
			return err
		}
		v.log.WithError(err).Warn("The recovery data is no NFS server's: clients find it in the share's directory " + recoveryName)
		v.incident = newIncident(types.ReasonRecoveryDataMissing, err.Error())
	case err != nil:
		return err
	}
	return v.bind(filepath.Join(v.recovery, coverName), filepath.Join(v.o.target(), recoveryName))
}

// recordsName is the directory of the records, in which Ganesha keeps the link
// "node0" to the ones that hold: node0.XXXXXX beside it.
const recordsName = "v4recov"

var recordsLink = regexp.MustCompile(`^node0\.[A-Za-z0-9]{6}$`)

// maxNesting is above how many directories Ganesha nests for the record of one client: a name of 1024 bytes in pieces of 255.
const maxNesting = 32

// maxRecords is above how many entries the records have for any number of nodes, in all. Someone who could write the volume without a share
// may have made millions: Ganesha takes 4 KiB of the node's memory for each.
const maxRecords = 50_000

// errTooMany means that there are more.
var errTooMany = fmt.Errorf("directory %s/%s had more than %d entries", recoveryName, recordsName, maxRecords)

// setAside moves all records to where clients see and may delete them: this process would take too long for that.
func setAside(recovery string) error {
	target := filepath.Join(recovery, coverName, recordsName+"-"+uuid.NewString())
	if err := os.Rename(filepath.Join(recovery, recordsName), target); err != nil {
		return fmt.Errorf("setting aside what is in place of the recovery data: %w", err)
	}
	return nil
}

// dropForeign removes from the recovery directory what neither Ganesha nor this package makes there. Someone who could write the volume
// without a share made it: Ganesha would list and remove directories where a link leads, this process would write to a device or wait
// for a pipe, and what is not a directory in place of one would keep the records of all later servers from being kept.
func dropForeign(recovery string) error {
	for _, name := range []string{writtenName, recordsName, filepath.Join(recordsName, linkName)} {
		path := filepath.Join(recovery, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			continue
		case err != nil:
			return fmt.Errorf("looking at the recovery data: %w", err)
		case name == recordsName && info.IsDir(), filepath.Base(name) == linkName && info.Mode().Type() == os.ModeSymlink:
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing what is in place of the recovery data: %w", err)
		}
	}
	records := filepath.Join(recovery, recordsName)
	if !isNoDirectory(records) {
		left := maxRecords
		if err := dropForeignIn(recovery, records, 1, &left); err != nil {
			return err
		}
	}
	left := maxRecords
	if err := dropForeignIn(recovery, recovery, 0, &left); !errors.Is(err, errTooMany) {
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
				return errTooMany
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
	case nesting == 0 && (e.Name() == coverName || e.Name() == recordsName && e.IsDir()), e.Type().IsRegular():
		return nil
	case e.IsDir() && nesting < maxNesting:
		return dropForeignIn(recovery, path, nesting+1, left)
	case e.Type() == os.ModeSymlink && dir == filepath.Join(recovery, recordsName) && leadsToRecords(path):
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

func (v *volume) bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", source, target, err)
	}
	v.mounts = append(v.mounts, target)
	if err := unix.Mount("", target, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount at %s private: %w", target, err)
	}
	return nil
}

// openRecovery opens the directory, made where it is missing, and never anything that a
// link of that name leads to.
func openRecovery(root string) (directory *os.File, made bool, err error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("opening %s: %w", root, err)
	}
	defer unix.Close(top)
	fd, made, err := makeDirectory(top, recoveryName)
	if err != nil {
		return nil, false, err
	}
	cover, _, err := makeDirectory(fd, coverName)
	if err != nil {
		unix.Close(fd)
		return nil, false, err
	}
	unix.Close(cover)
	return os.NewFile(uintptr(fd), recoveryName), made, nil
}

// makeDirectory opens a directory of root's, which nobody else may look into. made: it was
// missing.
func makeDirectory(parent int, name string) (fd int, made bool, err error) {
	err = unix.Mkdirat(parent, name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, false, fmt.Errorf("making directory %s: %w", name, err)
	}
	made = err == nil
	fd, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("opening directory %s: %w", name, err)
	}
	if err := errors.Join(unix.Fchown(fd, 0, 0), unix.Fchmod(fd, 0o700)); err != nil {
		unix.Close(fd)
		return -1, false, fmt.Errorf("keeping directory %s to root: %w", name, err)
	}
	return fd, made, nil
}

// cover is what clients may do with the directory that is mounted over the recovery directory, once prepare has returned.
//
// It is an export of its own, not for its access alone: a client that removes the directory would ask for what the kernel refuses with EBUSY, which
// Ganesha 4.3 answers with NFS4ERR_DELAY, so that the client asks for ever. Ganesha removes no directory that another export is at, and says
// NFS4ERR_NOTEMPTY at once; and it does not list one whose export a client has no access to. So who empties a share sees nothing that stays.
func (v *volume) cover() coverAccess {
	path := filepath.Join(v.o.target(), recoveryName)
	if !slices.Contains(v.mounts, path) {
		return noCover
	}
	if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
		return coverVisible
	}
	return coverHidden
}
