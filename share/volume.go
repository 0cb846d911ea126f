package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// ErrForeign means that a device has content that is not a file system that can be shared. The content stays unchanged.
var ErrForeign = errors.New("the device has content that is neither ext4 nor xfs")

// ErrBlank means that a device is blank, and that no file system may be created on it.
var ErrBlank = errors.New("the device is blank, and a read-only share must not create a file system")

// ErrVanished means that a file system was found on a device, and a moment later it was missing. No other is created in
// its place.
var ErrVanished = errors.New("the device had a file system before, and now it has none")

// volume is the file system that is shared. After prepare has returned, its methods may be called concurrently.
type volume struct {
	o   Options
	sys *mount.System
	log *logrus.Entry
	// recovery is where Ganesha stores the data about its clients that it needs after a restart.
	recovery string
	// mounts are the mounts that prepare has created, in that order.
	mounts []string
	checks int // of check, which never runs twice at the same time
	// incident is how the last server's records of its clients were lost, once prepare has returned; zero: they were
	// not lost.
	incident types.ShareRecovery
	// notGrown is why the file system does not fill its device, once prepare has returned; nil: it fills the device.
	notGrown error
}

func newVolume(o Options) *volume {
	return &volume{o: o, sys: mount.New(), log: o.Log, recovery: filepath.Join(o.RuntimeDirectory, "recovery")}
}

// prepare waits for the device and mounts its file system. It creates a file system only if two checks find that the
// device is blank: here and in mount.System.FormatAndMount, which defines what is blank.
func (v *volume) prepare(ctx context.Context) error {
	if err := awaitDevice(ctx, v.o.Device, v.o.ReadOnly, v.log); err != nil {
		return err
	}
	fsType, blank, err := v.choose()
	if err != nil {
		return err
	}
	if err := v.isolate(); err != nil {
		return err
	}
	if err := v.mount(fsType, blank); err != nil {
		return err
	}
	if !v.o.ReadOnly {
		if err := openRoot(v.o.target()); err != nil {
			return err
		}
		if err := v.growAtStart(fsType); err != nil {
			return err
		}
	}
	return v.setUpRecovery()
}

// choose returns the type of the file system on the device. If the device is blank, it returns the type to create.
func (v *volume) choose() (fsType string, blank bool, err error) {
	found, err := v.sys.Contents(v.o.Device)
	switch {
	case err != nil:
		return "", false, err
	case found == "" && v.o.ReadOnly:
		return "", false, fmt.Errorf("%s: %w", v.o.Device, ErrBlank)
	case found == "":
		return v.o.FSType, true, nil
	case types.CheckFSType(found) != nil:
		return "", false, fmt.Errorf("%s: %w: %s", v.o.Device, ErrForeign, found)
	}
	return found, false, nil
}

// isolate hides mounts below the export root from other mount namespaces. There they would keep the device open after
// this process has exited.
func (v *volume) isolate() error {
	root := v.o.ExportRoot
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("creating the export root: %w", err)
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind-mounting %s to itself: %w", root, err)
	}
	v.mounts = append(v.mounts, root)
	if err := unix.Mount("", root, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts below %s private: %w", root, err)
	}
	return nil
}

// dirsync makes changes to a directory durable before the server answers. RFC 8881 section 18 requires this from a
// server for CREATE, LINK, OPEN, REMOVE and RENAME. Ganesha leaves that to the file system.
const dirsync = "dirsync"

func (v *volume) mount(fsType string, blank bool) error {
	params, refused := types.ParseMkfsParams(fsType, strings.Join(v.o.MkfsParams, " "))
	if !blank {
		refused = fmt.Errorf("%s: %w", v.o.Device, ErrVanished)
	}
	err := v.sys.FormatAndMount(mount.Filesystem{
		Device: v.o.Device, Target: v.o.target(), Type: fsType, Options: append(slices.Clone(v.o.MountOptions), dirsync), MkfsOptions: params, MkfsRefused: refused,
	})
	if err != nil {
		return err
	}
	v.mounts = append(v.mounts, v.o.target())
	return nil
}

// openRoot lets every user write to the root directory of a file system if it is in the state that mkfs creates. A user
// has set any other rights, perhaps while the volume had a single user, and these rights are data.
func openRoot(root string) error {
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return fmt.Errorf("reading the permissions of %s: %w", root, err)
	}
	if st.Uid != 0 || st.Gid != 0 || st.Mode&0o7777 != 0o755 {
		return nil
	}
	if err := os.Chmod(root, 0o777); err != nil {
		return fmt.Errorf("giving all users access to %s: %w", root, err)
	}
	return nil
}

// growAtStart makes the file system fill its device. It does so while the file system is mounted or, if the kernel
// refuses that, while it is unmounted, which disturbs no client before clients are served. A failure to grow is not an
// error: the data must be available nevertheless.
func (v *volume) growAtStart(fsType string) error {
	refusal := v.grow()
	if refusal == nil {
		return nil
	}
	v.log.WithError(refusal).Warn("The file system cannot grow while it is mounted. The share manager unmounts it to grow it")
	if err := v.sys.Unmount(v.o.target()); err != nil {
		v.notGrown = errors.Join(refusal, err)
		v.log.WithError(err).Warn("The file system cannot grow to fill its device")
		return nil
	}
	v.mounts = v.mounts[:len(v.mounts)-1]
	if err := v.sys.GrowOffline(v.o.Device); err != nil {
		v.notGrown = refusal
		if !errors.Is(err, mount.ErrNotOffline) {
			v.notGrown = errors.Join(refusal, err)
		}
		v.log.WithError(err).Warn("The file system cannot grow to fill its device")
	}
	if err := os.MkdirAll(v.o.target(), 0o755); err != nil {
		return fmt.Errorf("creating the mount point again: %w", err)
	}
	return v.mount(fsType, false)
}

// size of the device.
func (v *volume) size() (int64, error) { return v.sys.DeviceSize(v.o.Device) }

// grow makes the file system fill its device.
func (v *volume) grow() error { return v.sys.Grow(v.o.Device, v.o.target()) }

// syncEvery is the number of checks per flush. A flush detects a file system that has failed, but it costs each replica
// a flush.
const syncEvery = 4

// check reports whether the volume can be used. It may take as long as the volume takes.
func (v *volume) check(write bool) error {
	if err := (mount.HostFiles{}).Probe(v.o.Device); err != nil {
		return err
	}
	root, err := os.Open(v.o.target())
	if err != nil {
		return err
	}
	defer root.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return fmt.Errorf("reading the state of the file system: %w", err)
	}
	if st.Flags&unix.ST_RDONLY != 0 && !v.o.ReadOnly {
		return errors.New("the file system has become read-only")
	}
	if _, err := root.ReadDir(1); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("listing the root directory: %w", err)
	}
	v.checks++
	switch {
	case v.o.ReadOnly:
		return nil
	case write:
		return v.write()
	case v.checks%syncEvery == 0:
		if err := root.Sync(); err != nil {
			return fmt.Errorf("flushing the root directory: %w", err)
		}
	}
	return nil
}

// write creates a file and removes it. A full file system is no failure.
func (v *volume) write() error {
	name := filepath.Join(v.recovery, ganesha.WrittenName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close(), os.Remove(name))
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil
	}
	return err
}

// unmountPoll is how often a mount in use is tried again.
const unmountPoll = 100 * time.Millisecond

// close unmounts everything, the last mount first. A mount that is in use until the deadline is removed from the table
// nevertheless. It disappears with its last user.
func (v *volume) close(deadline time.Time) {
	if len(v.mounts) > 1 {
		v.sync()
	}
	v.each(func(path string) error {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		for errors.Is(err, unix.EBUSY) && time.Now().Before(deadline) {
			time.Sleep(unmountPoll)
			err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		}
		if err == nil {
			return nil
		}
		v.log.WithError(err).WithField(logfields.Path, path).Warn("The mount is in use. It disappears when its last user exits")
		return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	})
}

// abandon removes all mounts from the table, and requests no flush.
func (v *volume) abandon() {
	v.each(func(path string) error { return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
}

// each unmounts with f the mounts that prepare has created, the last first.
func (v *volume) each(f func(path string) error) {
	for _, path := range slices.Backward(v.mounts) {
		if err := f(path); err != nil {
			v.log.WithError(err).WithField(logfields.Path, path).Error("Cannot remove the mount")
		}
	}
	v.mounts = nil
	_ = os.Remove(v.o.target()) // an empty directory, unless it is missing
}

func (v *volume) sync() {
	root, err := os.Open(v.o.target())
	if err == nil {
		defer root.Close()
		err = unix.Syncfs(int(root.Fd()))
	}
	if err != nil {
		v.log.WithError(err).Error("Cannot flush the file system")
	}
}
