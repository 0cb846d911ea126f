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

// ErrNotBlockDevice means that a path exists but is not a block device. It must not be written.
var ErrNotBlockDevice = errors.New("not a block device")

// ErrUnreadable means that a device answers reads with errors, so nothing can be said of what is on it.
var ErrUnreadable = errors.New("device cannot be read")

// maxStacked bounds how many mounts on top of each other Unmount removes.
const maxStacked = 16

const (
	typeExt4     = "ext4"
	typeXFS      = "xfs"
	optionNoUUID = "nouuid"
)

// DeviceNumber identifies a block device as long as a process holds it open: the kernel gives a loop
// device's number away again only after its last user is gone.
type DeviceNumber uint64

// Point is what a look finds at a path.
type Point struct {
	// Mounted: something is mounted exactly there.
	Mounted bool
	// Broken: it is mounted, and every access to it fails.
	Broken bool
	// Device is the device itself where the path is a block device, else the device
	// that the file system there is on.
	Device DeviceNumber
	// Block: the path is a block device.
	Block bool
}

// Filesystem is one to be mounted, and to be made first where the device is blank.
type Filesystem struct {
	Device, Target, Type string
	// Options of the mount; MkfsOptions precede what mount-utils gives to mkfs.
	Options, MkfsOptions []string
	// MkfsRefused is why no file system may be made, if the device is blank; nil: it may.
	MkfsRefused error
}

// System acts on a node.
type System struct {
	mounter *mountutils.SafeFormatAndMount
	exec    utilexec.Interface
	files   Files
	nfs     NFSClient
	limits  limits
	stuck   stuckActs
}

// Commands are what a System calls, by the path of its process.
var Commands = []string{"blkid", "e2fsck", "fsck", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "umount", "xfs_growfs"}

// New makes a System for the node that this process sees: its mount namespace, and the Commands on its path.
func New() *System {
	return NewWith(mountutils.NewWithoutSystemd(""), utilexec.New(), HostFiles{})
}

// NewWith makes a System of given parts.
func NewWith(mounter mountutils.Interface, exec utilexec.Interface, files Files) *System {
	return &System{mounter: mountutils.NewSafeFormatAndMount(mounter, exec), exec: exec, files: files, limits: defaultLimits}
}

// BlockDevice returns the number of the block device at a path. The error is
// fs.ErrNotExist or ErrNotBlockDevice where that is why.
func (s *System) BlockDevice(path string) (DeviceNumber, error) {
	inode, err := s.files.Inspect(path)
	if err != nil {
		return 0, fmt.Errorf("looking at device %s: %w", path, err)
	}
	if !inode.Block {
		return 0, fmt.Errorf("%s: %w", path, ErrNotBlockDevice)
	}
	return inode.Device, nil
}

// Look tells what is at a path. A path that does not exist has nothing mounted. The
// error is ErrStuck where what is mounted there gives no answer at all.
func (s *System) Look(path string) (Point, error) {
	return bounded(&s.stuck, "looking at "+path, s.limits.look, func() (Point, error) { return s.look(path) })
}

func (s *System) look(path string) (Point, error) {
	inode, err := s.files.Inspect(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Point{}, nil
	case err != nil && mountutils.IsCorruptedMnt(err):
		return Point{Mounted: true, Broken: true}, nil
	case err != nil:
		return Point{}, fmt.Errorf("looking at %s: %w", path, err)
	}
	mounted, err := s.mounter.IsMountPoint(path)
	if err != nil {
		return Point{}, fmt.Errorf("looking for a mount at %s: %w", path, err)
	}
	return Point{Mounted: mounted, Device: inode.Device, Block: inode.Block}, nil
}

// Contents tells what is on a device: the type of its file system, "" where the device is
// blank, or other words for what blkid knows and is no file system (a partition table).
// The error is ErrNotBlockDevice or ErrUnreadable where that is why; see FormatAndMount.
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
		return fmt.Errorf("reading device %s before looking for data on it: %w: %w", device, ErrUnreadable, err)
	}
	return nil
}

// FormatAndMount mounts a file system, made first where the device is blank.
//
// mount-utils decides what is blank: blkid, probing the device itself and not its cache, finds neither
// a file system nor a partition table nor any other signature it knows. Anything that blkid does
// recognise is never formatted: fsck checks a file system of the same type before the mount, and one of
// another type is mounted as the wanted one, which the kernel refuses. blkid has one exit code for
// "nothing found" and for "could not read", so the device must answer reads at its start and its end
// before blkid, and once more after it (checkBlank). mkfs killed halfway leaves a device that is still blank by this rule, or has the signature of
// the type wanted and fails fsck or mount.
//
// Nothing is cancelled here: a caller whose time runs out must keep the volume locked
// until this returns, or a second mkfs would meet the first.
func (s *System) FormatAndMount(f Filesystem) error {
	if err := s.checkReadable(f.Device); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Target, 0o750); err != nil {
		return fmt.Errorf("making mount point: %w", err)
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

// mountOptions are the file system's, and for xfs "nouuid". Without it the kernel refuses a file system
// whose UUID it sees on another mounted device. That happens to a volume that was attached anew, as
// another device, while the mount of its dead device is still in use: by a pod that has not ended, or a
// container with a mount namespace of its own. It also happens to two volumes of which one is a copy of
// the other. The kernel's test is of no use here: one device alone leads to the volume, and a device
// that was replaced can change nothing any more.
func mountOptions(f Filesystem) []string {
	if f.Type != typeXFS || slices.Contains(f.Options, optionNoUUID) {
		return f.Options
	}
	return append(slices.Clone(f.Options), optionNoUUID)
}

// BindDirectory makes a directory appear at target too, which is made if missing.
func (s *System) BindDirectory(source, target string, options []string) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("making mount point: %w", err)
	}
	return s.bind(source, target, options)
}

// BindFile makes a file (a device among them) appear at target too, which is made, empty, if missing.
func (s *System) BindFile(source, target string, options []string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("making directory for mount point: %w", err)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o640)
	if err != nil {
		return fmt.Errorf("making mount point: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("making mount point: %w", err)
	}
	return s.bind(source, target, options)
}

func (s *System) bind(source, target string, options []string) error {
	if err := s.mounter.Mount(source, target, "", append([]string{"bind"}, options...)); err != nil {
		return fmt.Errorf("binding %s to %s: %w", source, target, err)
	}
	return nil
}

// Unmount removes whatever is mounted at a path, however often, and leaves the path. It flushes first
// what was written; the error is ErrStuck where that takes too long, and the flushing goes on.
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
	return fmt.Errorf("unmounting %s: still mounted after %d times", path, maxStacked)
}

// Remove unmounts a path and removes the empty directory or empty file left there. A missing path is
// removed. What is not empty is a user's data and stays: an error.
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

// References lists where else the very same thing is mounted as at a path. Mounts of a
// directory below it (a pod's subPath) are not the same thing.
func (s *System) References(path string) ([]string, error) {
	refs, err := s.mounter.GetMountRefs(path)
	if err != nil {
		return nil, fmt.Errorf("looking for other mounts of %s: %w", path, err)
	}
	return refs, nil
}

// Statistics measures the file system or the block device at a path.
func (s *System) Statistics(path string) (Statistics, error) {
	return bounded(&s.stuck, "measuring "+path, s.limits.look, func() (Statistics, error) {
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
