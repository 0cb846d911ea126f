package types

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The types of file systems that can be created on volumes. The default is ext4.
const (
	FSTypeExt4 = "ext4"
	FSTypeXFS  = "xfs"
)

var fsTypes = []string{FSTypeExt4, FSTypeXFS}

// CheckFSType returns an error if the product does not create file systems of this type. The error is a clause that
// follows the value.
func CheckFSType(value string) error {
	if !slices.Contains(fsTypes, value) {
		return fmt.Errorf("must be one of %s", strings.Join(fsTypes, ", "))
	}
	return nil
}

// MaximumFilesystemSize returns the size in bytes up to which a file system of a type can grow. For an unknown type
// it returns no limit; xfs can be larger than any volume.
func MaximumFilesystemSize(fsType string) int64 {
	switch fsType {
	case "ext3", FSTypeExt4:
		return 16 << 40
	}
	return math.MaxInt64
}
