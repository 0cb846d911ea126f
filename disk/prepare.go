package disk

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

// Prepare creates the directory of a default disk, below root, with missing parents (mode 0755), and in it the replicas
// directory (mode 0700). It leaves existing directories unchanged, so it may be repeated. It creates no UUID file:
// Create does so, after Match. It must be called only when a default disk is first added to a node. It must never be
// called for a disk with a recorded UUID: if the directory of such a disk is missing, something is not mounted. A
// dangling symbolic link on the way is an error.
func Prepare(root, path string) error {
	dir, err := makeDirs(root, path)
	if err != nil {
		return fmt.Errorf("prepare disk directory %s: %w", path, err)
	}
	defer dir.Close()
	if err := makeReplicasDir(dir); err != nil {
		return fmt.Errorf("prepare disk directory %s: %w", path, err)
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("prepare disk directory %s: sync: %w", path, err)
	}
	return nil
}

// makeDirs opens path, and creates one missing component after the other. It resolves each prefix from root again, so
// symbolic links on the way stay beneath root.
func makeDirs(root, path string) (*os.File, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, openat.ErrRelative
	}
	current, err := openat.Dir(root, "/")
	if err != nil {
		return nil, err
	}
	prefix := ""
	for _, part := range strings.Split(path, "/") {
		if part == "" || part == "." {
			continue
		}
		prefix += "/" + part
		next, err := openOrCreate(root, current, prefix, part)
		current.Close()
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

func openOrCreate(root string, parent *os.File, prefix, part string) (*os.File, error) {
	dir, err := openat.Dir(root, prefix)
	if !errors.Is(err, unix.ENOENT) {
		return dir, err
	}
	if err := unix.Mkdirat(int(parent.Fd()), part, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create directory %s: %w", prefix, err)
	}
	if err := parent.Sync(); err != nil {
		return nil, fmt.Errorf("sync the parent directory of %s: %w", prefix, err)
	}
	return openat.Dir(root, prefix)
}
