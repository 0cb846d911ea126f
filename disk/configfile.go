package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// ReplicasDirName is the directory that contains one directory per replica. It lies directly in a disk's directory.
const ReplicasDirName = "replicas"

var (
	// ErrConfigExists says that Create found a UUID file, with any content.
	ErrConfigExists = errors.New("a UUID file already exists")
	// ErrConfigChanged says that the UUID file is no longer the scanned one.
	ErrConfigChanged = errors.New("the UUID file is not the one that was scanned")
	// ErrDirectoryChanged says that the path no longer leads to the scanned directory, because something was mounted,
	// unmounted or renamed since.
	ErrDirectoryChanged = errors.New("the directory is not the one that was scanned")
)

// readConfig reads the UUID file of an open disk directory. It does not follow symbolic links, does not wait for the
// writer of a pipe, and reads at most MaxConfigBytes+1.
func readConfig(dir *os.File) (Config, error) {
	fd, err := unix.Openat(int(dir.Fd()), ConfigFileName,
		unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return Config{}, ErrConfigMissing
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO): // symbolic link; socket
		return Config{}, fmt.Errorf("%w: %w", ErrConfigNotRegular, err)
	case err != nil:
		return Config{}, fmt.Errorf("open the UUID file: %w", err)
	}
	file := os.NewFile(uintptr(fd), ConfigFileName)
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return Config{}, fmt.Errorf("stat the UUID file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Config{}, fmt.Errorf("%w: %s", ErrConfigNotRegular, info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("read the UUID file: %w", err)
	}
	return ParseConfig(data)
}

// Create creates the UUID file of the disk that rec was scanned from. If the directory for its replicas does not exist,
// Create also creates that. It must be called only where Match said CreateConfig.
//
// It fails with ErrDirectoryChanged if rec.Path leads elsewhere since the scan. It fails with ErrConfigExists if there
// is a UUID file, with any content: of two creators one wins, and a torn file is never overwritten. When it returns
// nil, the file is durable. After a crash at any line there is either no UUID file or a complete one. A stray
// ".longhorn-disk.cfg.*.tmp" may remain, and is harmless.
func Create(root string, rec Record, cfg Config) error { return create(root, rec, cfg, nil) }

func create(root string, rec Record, cfg Config, before func(step) error) error {
	data, err := EncodeConfig(cfg)
	if err != nil {
		return err
	}
	dir, err := openScanned(root, rec)
	if err != nil {
		return fmt.Errorf("disk %s: %w", rec.Name, err)
	}
	defer dir.Close()
	// The replicas directory comes first: a disk with a UUID file always has one. So if it is missing later, replicas
	// do not start beneath a mount point.
	if err := makeReplicasDir(dir); err != nil {
		return fmt.Errorf("disk %s: %w", rec.Name, err)
	}
	if err := (writer{dir: dir, before: before}).writeNew(data); err != nil {
		return fmt.Errorf("disk %s in %s: %w", rec.Name, rec.Path, err)
	}
	return nil
}

// openScanned opens the directory that rec was scanned from and no other one.
func openScanned(root string, rec Record) (*os.File, error) {
	dir, err := openat.Dir(root, rec.Path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		dir.Close()
		return nil, fmt.Errorf("stat %s: %w", rec.Path, err)
	}
	if uint64(st.Dev) != rec.DeviceID || st.Ino != rec.Inode {
		dir.Close()
		return nil, fmt.Errorf("%s: %w", rec.Path, ErrDirectoryChanged)
	}
	return dir, nil
}

// makeReplicasDir creates the replicas directory, accessible only to root, unless something with that name exists. The
// caller syncs dir.
func makeReplicasDir(dir *os.File) error {
	err := unix.Mkdirat(int(dir.Fd()), ReplicasDirName, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create directory %s/%s: %w", dir.Name(), ReplicasDirName, err)
	}
	return nil
}
