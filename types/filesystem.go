package types

import "math"

// MaximumFilesystemSize is the size in bytes up to which a file system of a type can grow. Of a type that it does not know it
// knows no limit; xfs can be larger than any volume.
func MaximumFilesystemSize(fsType string) int64 {
	switch fsType {
	case "ext3", "ext4":
		return 16 << 40
	}
	return math.MaxInt64
}
