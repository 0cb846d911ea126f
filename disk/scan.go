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

// availableGranularity is what StorageAvailable is rounded down to, in bytes, so
// that a busy disk does not make its node's status change at every scan. A disk of
// which that is more than a hundredth has an exact figure: a small one is not full
// because its free space is less.
const availableGranularity = 100 << 20

// Record is what the kernel and the UUID file say about one disk. When Err is
// not nil, only Name, Path and Exists mean anything.
type Record struct {
	Name string // as asked
	Path string // as asked: below root, absolute

	// Exists: Path leads to a directory that could be opened, by openat2(2).
	Exists bool
	// Err: why the directory could not be examined.
	Err error

	// DeviceID and Inode are st_dev and st_ino of the directory, by fstat(2).
	DeviceID uint64
	Inode    uint64
	// SuperBlockID is the device number of the mount, the third field of its line
	// in /proc/self/mountinfo, or 0 when there was no such line. It differs from
	// DeviceID on btrfs only, where each subvolume has an st_dev of its own.
	SuperBlockID uint64
	// FSType and MountSource are the file system type ("ext4") and the mounted
	// device ("/dev/sdb1"), from /proc/self/mountinfo; without a line there, FSType
	// is f_type of statfs(2) in hex and MountSource is empty.
	FSType      string
	MountSource string
	// Beneath: no file system is mounted at the directory itself: it lies beneath a mount, and shares that
	// file system with whatever else is on it. False where the kernel does not tell.
	Beneath bool
	// ReadOnly: nothing can write to the file system: it is mounted so, or the kernel made it so after
	// an error.
	ReadOnly bool
	// OnVolume names the volume whose device on this node the directory's file system
	// lies on, if MarkVolumes found one.
	OnVolume string
	// FSID is f_fsid of statfs(2): both 32-bit words joined, in lower hex, of at
	// least 12 digits. It names default disks, identifies nothing, and may change
	// at a remount.
	FSID string
	// StorageMaximum is f_blocks and StorageAvailable f_bfree of statfs(2), in
	// bytes; the latter is rounded down to a multiple of 100 MiB on disks of 10000 MiB
	// or more.
	StorageMaximum   int64
	StorageAvailable int64

	// Config is the content of the UUID file, nil when ConfigErr says why not.
	Config    *Config
	ConfigErr error
	// ReplicasErr: why the directory of the disk's replicas cannot be used; it wraps
	// ErrReplicasMissing where there is none.
	ReplicasErr error
}

// ErrReplicasMissing says that a disk lacks its directory for replicas.
var ErrReplicasMissing = errors.New("its directory " + ReplicasDirName + " is missing")

// Scan examines the directories paths (disk name → absolute path) as a process with the root directory
// root sees them, and returns one Record per name. It writes nothing. Trouble with a disk is in its
// Record, never in another's. It may block for as long as the kernel does (a network file system whose
// server is gone): run it where it blocks nothing else.
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

	// After all directories are open: what is open stays mounted, so every directory's line is in this
	// reading of the mount table.
	mounts := mountsByID()
	for name, dir := range opened {
		records[name] = examine(name, paths[name], dir, mounts)
	}
	return records
}

func mountsByID() map[int]*mountinfo.Info {
	// Without a mount table, the records lack the fields that say so; it is no
	// reason to call a disk broken.
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
	rec.Beneath = !isRoot
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

// isReadOnly tells whether the options of a super block say that nothing is written to it. ext4 keeps
// "rw" after an error that ended its journal, and shows emergency_ro (Linux 6.15) or shutdown besides.
func isReadOnly(options string) bool {
	for _, option := range strings.Split(options, ",") {
		switch option {
		case "ro", "emergency_ro", "shutdown":
			return true
		}
	}
	return false
}

// checkReplicasDir tells why replicas could not be opened beneath a disk's directory: the
// data plane follows no link there and enters no other file system.
func checkReplicasDir(fd int, path string, device uint64) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, ReplicasDirName, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return ErrReplicasMissing
	case err != nil:
		return fmt.Errorf("stat %s in %s: %w", ReplicasDirName, path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s in %s is no directory", ReplicasDirName, path)
	case st.Dev != device:
		return fmt.Errorf("%s in %s is on another file system", ReplicasDirName, path)
	}
	return nil
}

// mountOf returns the first field of the directory's line in /proc/self/mountinfo, by statx(2), or 0, which is
// no mount's, when the kernel does not tell, and whether the directory is the root of that mount, as it is
// taken to be when the kernel does not tell.
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

// capacity is the size and the rounded free space in bytes. Blocks are counted in
// fragments where a file system has such (statvfs(3)); all local ones that matter
// have f_frsize equal to f_bsize.
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

// InMemory tells whether a file system of that type, as Record has it, is lost at a
// restart of the node.
func InMemory(fsType string) bool {
	switch fsType {
	case "tmpfs", "ramfs", "rootfs", fmt.Sprintf("0x%x", unix.TMPFS_MAGIC), fmt.Sprintf("0x%x", unix.RAMFS_MAGIC):
		return true
	}
	return false
}

// OnOverlay tells whether a file system of that type, as Record has it, is overlayfs. The kernel tells nothing there of the
// file beneath, neither cached pages nor failed write-outs (docs/DATAPLANE.md, "What the cache shows and the disk lacks").
func OnOverlay(fsType string) bool {
	return fsType == "overlay" || fsType == fmt.Sprintf("0x%x", unix.OVERLAYFS_SUPER_MAGIC)
}

func fsidText(words [2]int32) string {
	return fmt.Sprintf("%012x", uint64(uint32(words[0]))<<32|uint64(uint32(words[1])))
}

// sameFilesystem tells whether two records lie on one file system: the same super
// block where the mount table told it, otherwise the same st_dev. f_fsid is no
// help: a byte-for-byte clone has it too.
func sameFilesystem(a, b Record) bool {
	if a.SuperBlockID != 0 && b.SuperBlockID != 0 {
		return a.SuperBlockID == b.SuperBlockID
	}
	return a.DeviceID == b.DeviceID
}
