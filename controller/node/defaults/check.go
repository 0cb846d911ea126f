package defaults

import (
	"fmt"
	"math/big"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Found is the result of scanning a disk's path. The zero value: nothing is there.
type Found struct {
	// Exists says whether the path is a directory.
	Exists bool
	// Err is why the directory could not be examined.
	Err error
	// Filesystem is the same for paths on one file system, and for no others.
	Filesystem uint64
	// FSID names the disk, but does not identify it: a byte-for-byte clone has the same FSID.
	FSID string
	// MaximumBytes is the size of the file system.
	MaximumBytes int64
}

// Check compares disks with the scan results of their paths (by path), and returns the disk specs to add to the node,
// by name. If a disk does not set its reserve, Check reserves reservedPercent of the size. An error is an *Error: a
// path does not exist or cannot be examined, two paths are on one file system, or a reserve exceeds the size.
func Check(disks []Disk, found map[string]Found, reservedPercent int64) (map[string]longhorn.DiskSpec, error) {
	filesystems := make(map[uint64]Disk, len(disks))
	for _, d := range disks {
		f := found[d.Path]
		switch {
		case f.Err != nil:
			return nil, d.broken(keyPath, quoted(d.Path)+" cannot be used: "+limited(f.Err.Error()))
		case !f.Exists:
			return nil, d.broken(keyPath, quoted(d.Path)+" does not exist on the node")
		}
		if other, taken := filesystems[f.Filesystem]; taken {
			return nil, d.broken(keyPath, fmt.Sprintf("%s is on the same file system as %s (%s); each disk needs its own file system", quoted(d.Path), other.element, quoted(other.Path)))
		}
		filesystems[f.Filesystem] = d
		if r := d.StorageReserved; r != nil && *r > f.MaximumBytes {
			return nil, d.broken(keyStorageReserved, fmt.Sprintf("must be at most %d bytes, which is the size of the file system, got %d", f.MaximumBytes, *r))
		}
	}
	return specs(disks, found, reservedPercent), nil
}

// limited shortens the text of another package, so that it fits an Event.
func limited(text string) string {
	const most = 400
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

func specs(disks []Disk, found map[string]Found, reservedPercent int64) map[string]longhorn.DiskSpec {
	names := make(map[string]bool, len(disks))
	for _, d := range disks {
		names[d.Name] = true // this includes "", which is not a name either
	}
	byName := make(map[string]longhorn.DiskSpec, len(disks))
	for _, d := range disks {
		f := found[d.Path]
		name := d.Name
		if name == "" {
			name = freeName(f.FSID, names)
			names[name] = true
		}
		spec := longhorn.DiskSpec{
			Type: longhorn.DiskTypeFilesystem, Path: d.Path, AllowScheduling: d.AllowScheduling,
			EvictionRequested: d.EvictionRequested, Tags: d.Tags,
		}
		if d.StorageReserved != nil {
			spec.StorageReserved = *d.StorageReserved
		} else {
			spec.StorageReserved = PercentOf(f.MaximumBytes, reservedPercent)
		}
		byName[name] = spec
	}
	return byName
}

// DiskName is the name of a disk without a given name, on a file system with that id.
func DiskName(fsid string) string { return "default-disk-" + fsid }

// freeName is DiskName, followed by the first free number if the name is taken. The user may have given it to another
// disk, or a clone of the file system came before.
func freeName(fsid string, taken map[string]bool) string {
	name := DiskName(fsid)
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", DiskName(fsid), n)
	}
	return name
}

// PercentOf is a part of a size, rounded down. It uses big numbers, because size × percent may overflow.
func PercentOf(size, percent int64) int64 {
	product := new(big.Int).Mul(big.NewInt(size), big.NewInt(percent))
	return product.Div(product, big.NewInt(100)).Int64()
}
