package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// ErrNotBlockDevice means that a path exists but is not a block device. Callers must not write to it.
var ErrNotBlockDevice = errors.New("not a block device")

// ErrUnreadable means that a device returns errors from reads, so its content is not known.
var ErrUnreadable = errors.New("device cannot be read")

// maxStacked limits how many mounts on top of each other Unmount removes.
const maxStacked = 16

const (
	typeExt4     = "ext4"
	typeXFS      = "xfs"
	optionNoUUID = "nouuid"
)

// DeviceNumber identifies a block device as long as a process has it open. The kernel reuses the number of a loop
// device only after its last user is gone.
type DeviceNumber uint64

// Point is the state of a path.
type Point struct {
	// Mounted: a file system is mounted exactly there.
	Mounted bool
	// Broken: it is mounted, and every access to it fails.
	Broken bool
	// Device is the device itself if the path is a block device, else the device of the file system there.
	Device DeviceNumber
	// Block: the path is a block device.
	Block bool
}

// Filesystem is a file system to mount. If the device is blank, it is created first.
type Filesystem struct {
	Device, Target, Type string
	// Options of the mount. MkfsOptions precede the options that mount-utils passes to mkfs.
	Options, MkfsOptions []string
	// MkfsRefused is why no file system may be created if the device is blank; nil: it may be created.
	MkfsRefused error
}

// System acts on a node.
type System struct {
	mounter *mountutils.SafeFormatAndMount
	exec    utilexec.Interface
	files   Files
	nfs     NFSClient
	limits  limits
	stuck   stuckCalls
}

// Commands are the commands that a System calls, found on the path of its process.
var Commands = []string{"blkid", "e2fsck", "fsck", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "umount", "xfs_growfs"}

// New creates a System for the node that this process sees: its mount namespace, and the Commands on its path.
func New() *System {
	return NewWith(mountutils.NewWithoutSystemd(""), utilexec.New(), HostFiles{})
}

// NewWith creates a System from the given parts.
func NewWith(mounter mountutils.Interface, exec utilexec.Interface, files Files) *System {
	return &System{mounter: mountutils.NewSafeFormatAndMount(mounter, exec), exec: exec, files: files, limits: defaultLimits}
}

// BlockDevice returns the number of the block device at a path. The error is fs.ErrNotExist or ErrNotBlockDevice if
// that is the reason.
func (s *System) BlockDevice(path string) (DeviceNumber, error) {
	inode, err := s.files.Inspect(path)
	if err != nil {
		return 0, fmt.Errorf("examining device %s: %w", path, err)
	}
	if !inode.Block {
		return 0, fmt.Errorf("%s: %w", path, ErrNotBlockDevice)
	}
	return inode.Device, nil
}

// Look returns the state of a path. A path that does not exist has nothing mounted. The error is ErrStuck if a mount
// there gives no answer at all.
func (s *System) Look(path string) (Point, error) {
	return runBounded(&s.stuck, "examining "+path, s.limits.look, func() (Point, error) { return s.look(path) })
}

func (s *System) look(path string) (Point, error) {
	inode, err := s.files.Inspect(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Point{}, nil
	case err != nil && mountutils.IsCorruptedMnt(err):
		return Point{Mounted: true, Broken: true}, nil
	case err != nil:
		return Point{}, fmt.Errorf("examining %s: %w", path, err)
	}
	mounted, err := s.mounter.IsMountPoint(path)
	if err != nil {
		return Point{}, fmt.Errorf("looking for a mount at %s: %w", path, err)
	}
	return Point{Mounted: mounted, Device: inode.Device, Block: inode.Block}, nil
}

// Contents returns the type of the file system on a device, or "" if the device is blank. For other content that blkid
// knows (a partition table), it returns other words. The error is ErrNotBlockDevice or ErrUnreadable if that is the
// reason; see FormatAndMount.
func (s *System) Contents(device string) (string, error) {
	if err := s.checkReadable(device); err != nil {
		return "", err
	}
	format, err := s.mounter.GetDiskFormat(device)
	if err != nil {
		return "", fmt.Errorf("looking for a file system on %s: %w", device, err)
	}
	return format, nil
}

func (s *System) checkReadable(device string) error {
	if _, err := s.BlockDevice(device); err != nil {
		return err
	}
	if err := s.files.ReadEnds(device); err != nil {
		return fmt.Errorf("reading device %s to look for data on it: %w: %w", device, ErrUnreadable, err)
	}
	return nil
}

// FormatAndMount mounts a file system. If the device is blank, it creates the file system first.
//
// mount-utils decides what is blank: blkid, probing the device itself and not its cache, finds neither a file system
// nor a partition table nor any other signature that it knows. Content that blkid recognises is never formatted. fsck
// checks a file system of the same type before the mount. A file system of another type is mounted as the requested
// type, which the kernel refuses.
//
// blkid has one exit code for "nothing found" and for "could not read". So the device must answer reads at its start
// and its end before blkid, and once more after it (checkBlank). If mkfs is killed halfway, the device may still be
// blank by this rule. Otherwise it has the signature of the requested type and fails fsck or mount.
//
// FormatAndMount cannot be cancelled. A caller that reaches its deadline must keep the volume locked until this
// returns, or a second mkfs would run at the same time as the first.
func (s *System) FormatAndMount(f Filesystem) error {
	if err := s.checkReadable(f.Device); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Target, 0o750); err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	held, release, err := s.files.Hold(f.Device)
	if err != nil {
		return fmt.Errorf("opening device %s: %w", f.Device, err)
	}
	defer release()
	var refused error
	mounter := mountutils.NewSafeFormatAndMount(s.mounter.Interface, guardedMkfs{Interface: s.exec, refused: &refused, check: func() error {
		if f.MkfsRefused != nil {
			return f.MkfsRefused
		}
		return s.checkBlank(f.Device, held)
	}})
	err = mounter.FormatAndMountSensitiveWithFormatOptions(f.Device, f.Target, f.Type, mountOptions(f), nil, mkfsOptions(f.Type, f.MkfsOptions))
	if refused != nil {
		return refused
	}
	if err != nil {
		return fmt.Errorf("mounting %s on %s as %s: %w", f.Device, f.Target, f.Type, err)
	}
	return nil
}

// mountOptions are the file system's options, and for xfs "nouuid". Without it the kernel refuses a file system with a
// UUID that it sees on another mounted device. That happens to a volume that was attached again, as another device,
// while the mount of its dead device is still in use. Its user may be a pod that has not stopped, or a container with
// its own mount namespace. It also happens to two volumes if one is a copy of the other. The kernel's test has no
// benefit here: only one device leads to the volume, and a device that was replaced can no longer change anything.
func mountOptions(f Filesystem) []string {
	if f.Type != typeXFS || slices.Contains(f.Options, optionNoUUID) {
		return f.Options
	}
	return append(slices.Clone(f.Options), optionNoUUID)
}

// BindDirectory makes a directory appear at target too, and creates target if it is missing.
func (s *System) BindDirectory(source, target string, options []string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	return s.bind(source, target, options)
}

// BindFile makes a file (which may be a device) appear at target too. If target is missing, it creates an empty file.
func (s *System) BindFile(source, target string, options []string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("creating the directory of the mount point: %w", err)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	return s.bind(source, target, options)
}

func (s *System) bind(source, target string, options []string) error {
	if err := s.mounter.Mount(source, target, "", append([]string{"bind"}, options...)); err != nil {
		return fmt.Errorf("bind-mounting %s at %s: %w", source, target, err)
	}
	return nil
}

// Unmount removes all mounts at a path, and leaves the path. It first flushes written data. If that takes too long, the
// error is ErrStuck, and the flush continues.
func (s *System) Unmount(path string) error {
	for range maxStacked {
		point, err := s.Look(path)
		if err != nil {
			return err
		}
		if !point.Mounted {
			return nil
		}
		if err := s.unmountOnce(path, s.limits.unmount); err != nil {
			return err
		}
	}
	return fmt.Errorf("unmounting %s: still mounted after %d attempts", path, maxStacked)
}

// Remove unmounts a path and removes the empty directory or empty file that remains. A missing path counts as removed.
// Content at the path is a user's data and stays: an error.
func (s *System) Remove(path string) error {
	if err := s.Unmount(path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing mount point: %w", err)
	}
	if !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0) {
		return fmt.Errorf("removing mount point %s: it is neither a directory nor an empty file", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing mount point: %w", err)
	}
	return nil
}

// References lists the other places where the very same file system or directory as at a path is mounted. Mounts of a
// directory below it (a pod's subPath) are not the same.
func (s *System) References(path string) ([]string, error) {
	refs, err := s.mounter.GetMountRefs(path)
	if err != nil {
		return nil, fmt.Errorf("looking for other mounts of %s: %w", path, err)
	}
	return refs, nil
}

// Statistics measures the file system or the block device at a path.
func (s *System) Statistics(path string) (Statistics, error) {
	return runBounded(&s.stuck, "reading the usage of "+path, s.limits.look, func() (Statistics, error) {
		point, err := s.look(path)
		if err != nil {
			return Statistics{}, err
		}
		if point.Block {
			size, err := s.files.DeviceSize(path)
			return Statistics{Block: true, TotalBytes: size}, err
		}
		return s.files.Statfs(path)
	})
}
