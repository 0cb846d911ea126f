package types

import (
	"errors"
	"path"
	"regexp"
)

// What a disk's path may not be, as regular expressions that the admission policy
// longhorn-disk-rules spells out too.
const (
	// SystemPathPattern matches directories that belong to the system, the kubelet, a
	// container runtime or the cluster's database, with all below them, and the
	// directories above those.
	SystemPathPattern = `^/(|var|var/lib|(bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|root|run|sbin|sys|usr|var/run|var/lib/kubelet|var/lib/containerd|var/lib/containers|var/lib/docker|var/lib/etcd|var/lib/rancher|var/lib/k0s)(/.*)?)$`
	// UncleanPathPattern matches absolute paths that are not in their shortest form.
	UncleanPathPattern = `//|/[.][.]?(/|$)|./$`
	// TagPattern matches the tags of nodes and disks.
	TagPattern = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
)

var systemPath = regexp.MustCompile(SystemPathPattern)

// Why a path is none for a disk, each a clause that follows the path.
var (
	errPathRelative = errors.New("must be an absolute path")
	errPathSystem   = errors.New("is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1")
)

// CheckDiskPath tells why a directory cannot be a disk's, whatever lies there. The error
// does not show the path. A path that is not clean is taken for the one that it means.
func CheckDiskPath(p string) error {
	if !path.IsAbs(p) {
		return errPathRelative
	}
	if systemPath.MatchString(path.Clean(p)) {
		return errPathSystem
	}
	return nil
}
