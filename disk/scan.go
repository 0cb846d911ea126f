package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// availableGranularity is the unit to which StorageAvailable is rounded down, in bytes. Because of it a busy disk does
// not change its node's status at every scan. If this unit is more than a hundredth of a disk, the figure is exact: a
// small disk is not full because its free space is less than the unit.
const availableGranularity = 100 << 20

// Record is the information of the kernel and of the UUID file about one disk. If Err is not nil, only Name, Path and
// Exists are valid.
type Record struct {
	Name string // as requested
	Path string // as requested: below root, absolute

	// Exists says that Path leads to a directory that could be opened, by openat2(2).
	Exists bool
	// Err is the reason why the directory could not be examined.
	Err error

	// DeviceID and Inode are st_dev and st_ino of the directory, by fstat(2).
	DeviceID uint64
	Inode    uint64
	// SuperBlockID is the device number of the mount, the third field of its line in /proc/self/mountinfo, or 0 if
	// there was no such line. It differs from DeviceID only on btrfs, where each subvolume has its own st_dev.
	SuperBlockID uint64
	// FSType and MountSource are the file system type ("ext4") and the mounted device ("/dev/sdb1"), from
	// /proc/self/mountinfo. Without a line there, FSType is f_type of statfs(2) in hex and MountSource is empty.
	FSType      string
	MountSource string
	// InsideMount says that no file system is mounted at the directory itself. The directory lies beneath a mount, and
	// shares that file system with the other data on it. False if the kernel does not report it.
	InsideMount bool
	// ReadOnly says that nothing can write to the file system. It is mounted read-only, or the kernel made it read-only
	// after an error.
	ReadOnly bool
	// OnVolume is the name of a volume, if MarkVolumes found one: the directory's file system lies on the volume's
	// device on this node.
	OnVolume string
	// FSID is f_fsid of statfs(2): both 32-bit words joined, in lower hex, of at least 12 digits. It names default
	// disks, identifies nothing, and may change at a remount.
	FSID string
	// StorageMaximum is f_blocks and StorageAvailable f_bfree of statfs(2), in bytes. StorageAvailable is rounded down
	// to a multiple of 100 MiB on disks of 10000 MiB or more.
	StorageMaximum   int64
	StorageAvailable int64

	// Config is the content of the UUID file. If it is nil, ConfigErr is the reason.
	Config    *Config
	ConfigErr error
	// ReplicasErr is the reason why the directory of the disk's replicas cannot be used. It wraps ErrReplicasMissing if
	// there is no such directory.
	ReplicasErr error
}

// ErrReplicasMissing says that a disk lacks its directory for replicas.
var ErrReplicasMissing = errors.New("its directory " + ReplicasDirName + " is missing")

// Scan examines the directories paths (disk name → absolute path) as a process with the root directory root sees them.
// It returns one Record per name, and writes nothing. An error of one disk is in its Record, and never affects another
// Record. Scan may block for as long as the kernel does (for example on a network file system without its server): run
// it where it blocks nothing else.
func Scan(root string, paths map[string]string) map[string]Record {
	records := make(map[string]Record, len(paths))
	opened := make(map[string]*os.File, len(paths))
	for name, path := range paths {
		dir, err := openat.Dir(root, path)
		if err != nil {
			records[name] = Record{Name: name, Path: path, Err: err}
			continue
		}
		defer dir.Close()
		opened[name] = dir
	}

	// Read the mount table after all directories are open: an open directory stays mounted, so the table contains the
	// line of every directory.
	mounts := mountsByID()
	for name, dir := range opened {
		records[name] = examine(name, paths[name], dir, mounts)
	}
	return records
}

func mountsByID() map[int]*mountinfo.Info {
	// Without a mount table, the records lack the fields from it. This is no reason to call a disk broken.
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil
	}
	byID := make(map[int]*mountinfo.Info, len(infos))
	for _, info := range infos {
		byID[info.ID] = info
	}
	return byID
}

func examine(name, path string, dir *os.File, mounts map[int]*mountinfo.Info) Record {
	rec := Record{Name: name, Path: path, Exists: true}
	fd := int(dir.Fd())

	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		rec.Err = fmt.Errorf("stat %s: %w", path, err)
		return rec
	}
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(fd, &sfs); err != nil {
		rec.Err = fmt.Errorf("statfs %s: %w", path, err)
		return rec
	}
	rec.DeviceID, rec.Inode = uint64(st.Dev), st.Ino
	rec.FSID = fsidText(sfs.Fsid.Val)
	rec.FSType = fmt.Sprintf("0x%x", sfs.Type)
	rec.StorageMaximum, rec.StorageAvailable = capacity(sfs)
	id, isRoot := mountOf(fd)
	rec.InsideMount = !isRoot
	if m := mounts[id]; m != nil {
		rec.FSType, rec.MountSource = m.FSType, m.Source
		rec.SuperBlockID = unix.Mkdev(uint32(m.Major), uint32(m.Minor))
		rec.ReadOnly = isReadOnly(m.VFSOptions)
	}
	rec.ReadOnly = rec.ReadOnly || sfs.Flags&unix.ST_RDONLY != 0

	rec.ReplicasErr = checkReplicasDir(fd, path, st.Dev)
	cfg, err := readConfig(dir)
	if err != nil {
		rec.ConfigErr = err
		return rec
	}
	rec.Config = &cfg
	return rec
}

// isReadOnly reports whether the options of a super block say that nothing is written to it. After an error that ended
// its journal, ext4 keeps "rw", and additionally shows emergency_ro (Linux 6.15) or shutdown.
func isReadOnly(options string) bool {
	for _, option := range strings.Split(options, ",") {
		switch option {
		case "ro", "emergency_ro", "shutdown":
			return true
		}
	}
	return false
}

// checkReplicasDir returns the reason why replicas could not be opened beneath a disk's directory: the data plane
// follows no link there and enters no other file system.
func checkReplicasDir(fd int, path string, device uint64) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, ReplicasDirName, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return ErrReplicasMissing
	case err != nil:
		return fmt.Errorf("stat %s in %s: %w", ReplicasDirName, path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s in %s is not a directory", ReplicasDirName, path)
	case st.Dev != device:
		return fmt.Errorf("%s in %s is on another file system", ReplicasDirName, path)
	}
	return nil
}

// mountOf returns the first field of the directory's line in /proc/self/mountinfo, by statx(2). isRoot says whether the
// directory is the root of that mount. If the kernel does not report the mount, id is 0, which no mount has, and isRoot
// is true.
func mountOf(fd int) (id int, isRoot bool) {
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stx); err != nil {
		return 0, true
	}
	if stx.Mask&unix.STATX_MNT_ID != 0 {
		id = int(stx.Mnt_id)
	}
	return id, stx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 || stx.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// capacity returns the size and the rounded free space in bytes. Blocks are counted in fragments where a file system
// has fragments (statvfs(3)). All relevant local file systems have f_frsize equal to f_bsize.
func capacity(sfs unix.Statfs_t) (maximum, available int64) {
	unit := sfs.Frsize
	if unit == 0 {
		unit = sfs.Bsize
	}
	maximum = int64(sfs.Blocks) * unit
	available = int64(sfs.Bfree) * unit
	if availableGranularity <= maximum/100 {
		available -= available % availableGranularity
	}
	return maximum, available
}

// InMemory reports whether a file system of that type, in the form of Record.FSType, is lost at a restart of the node.
func InMemory(fsType string) bool {
	switch fsType {
	case "tmpfs", "ramfs", "rootfs", fmt.Sprintf("0x%x", unix.TMPFS_MAGIC), fmt.Sprintf("0x%x", unix.RAMFS_MAGIC):
		return true
	}
	return false
}

// OnOverlay reports whether a file system of that type, in the form of Record.FSType, is overlayfs. There the kernel
// shows nothing of the file below, neither cached pages nor failed write-outs (docs/dataplane/CRASHES.md, "What the
// cache shows and the disk lacks").
func OnOverlay(fsType string) bool {
	return fsType == "overlay" || fsType == fmt.Sprintf("0x%x", unix.OVERLAYFS_SUPER_MAGIC)
}

func fsidText(words [2]int32) string {
	return fmt.Sprintf("%012x", uint64(uint32(words[0]))<<32|uint64(uint32(words[1])))
}

// sameFilesystem reports whether two records lie on one file system. They must have the same super block if the mount
// table shows it, and otherwise the same st_dev. f_fsid does not help, because a byte-for-byte clone has the same.
func sameFilesystem(a, b Record) bool {
	if a.SuperBlockID != 0 && b.SuperBlockID != 0 {
		return a.SuperBlockID == b.SuperBlockID
	}
	return a.DeviceID == b.DeviceID
}
