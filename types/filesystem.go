package types

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The types of file systems that are made on volumes. Without a word of the user it is ext4.
const (
	FSTypeExt4 = "ext4"
	FSTypeXFS  = "xfs"
)

var fsTypes = []string{FSTypeExt4, FSTypeXFS}

// CheckFSType tells whether file systems of a type are made. The error is a clause that follows the value.
func CheckFSType(value string) error {
	if !slices.Contains(fsTypes, value) {
		return fmt.Errorf("is none of %s", strings.Join(fsTypes, ", "))
	}
	return nil
}

// MaximumFilesystemSize is the size in bytes up to which a file system of a type can grow. Of a type that it does not know it
// knows no limit; xfs can be larger than any volume.
func MaximumFilesystemSize(fsType string) int64 {
	switch fsType {
	case "ext3", FSTypeExt4:
		return 16 << 40
	}
	return math.MaxInt64
}
