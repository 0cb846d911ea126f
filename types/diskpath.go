package types

import (
	"errors"
	"path"
	"regexp"
)

// Regular expressions for paths that a disk must not have. The admission policy longhorn-disk-rules contains copies
// of them.
const (
	// SystemPathPattern matches directories that belong to the system, the kubelet, a container runtime or the
	// cluster's database, and everything below them. It also matches the directories above those.
	SystemPathPattern = `^/(|var|var/lib|(bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|root|run|sbin|sys|usr|var/run|var/lib/kubelet|var/lib/containerd|var/lib/containers|var/lib/docker|var/lib/etcd|var/lib/rancher|var/lib/k0s)(/.*)?)$`
	// UncleanPathPattern matches absolute paths that are not in their shortest form.
	UncleanPathPattern = `//|/[.][.]?(/|$)|./$`
	// TagPattern matches the tags of nodes and disks.
	TagPattern = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
)

var systemPath = regexp.MustCompile(SystemPathPattern)

// The reasons why a path cannot be the path of a disk. Each is a clause that follows the path.
var (
	ErrPathRelative = errors.New("must be an absolute path")
	ErrPathSystem   = errors.New("is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1")
)

// CheckDiskPath returns an error if a directory cannot be a disk because of its path. Its content does not matter.
// The error does not contain the path. A path that is not clean is treated like its clean form.
func CheckDiskPath(p string) error {
	if !path.IsAbs(p) {
		return ErrPathRelative
	}
	if systemPath.MatchString(path.Clean(p)) {
		return ErrPathSystem
	}
	return nil
}
