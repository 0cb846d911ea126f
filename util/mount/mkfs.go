package mount

import (
	"slices"
	"strings"
)

// By default, the tools of the image turn on features that the tools in earlier releases' images do not know. After a
// return to such a release, its tools could not check the file system, nor could an older kernel mount it. Linux knows
// orphan_file since 5.15 and nrext64 since 5.19. So these features stay off, unless a StorageClass requests them.
//
//	ext4   orphan_file, metadata_csum_seed    on by default since e2fsprogs 1.47.1
//	xfs    rmapbt, nrext64                    on by default since xfsprogs 6.6
const ext4Off = "^orphan_file,^metadata_csum_seed"

var xfsOff = []struct{ option, key string }{{"-m", "rmapbt"}, {"-i", "nrext64"}}

// mkfsOptions are the options for mkfs of a type. They contain the given options, which types.ParseMkfsParams has
// accepted. They turn off newer features that the given options do not name.
func mkfsOptions(fsType string, given []string) []string {
	switch fsType {
	case typeExt4:
		return append([]string{"-O", ext4Off}, given...) // the last value of a feature counts
	case typeXFS:
		return xfsOptions(given)
	}
	return given
}

// xfsOptions omits keys that are given: mkfs.xfs refuses a key that it finds twice.
func xfsOptions(given []string) []string {
	all := slices.Clone(given)
	for _, off := range xfsOff {
		if !namesKey(given, off.option, off.key) {
			all = append(all, off.option, off.key+"=0")
		}
	}
	return all
}

// namesKey reports whether a value of an option, a list of KEY=VALUE, has a key.
func namesKey(given []string, option, key string) bool {
	for i, word := range given {
		value, ok := strings.CutPrefix(word, option)
		if !ok {
			continue
		}
		if value == "" && i+1 < len(given) {
			value = given[i+1]
		}
		for _, part := range strings.Split(value, ",") {
			if name, _, _ := strings.Cut(part, "="); name == key {
				return true
			}
		}
	}
	return false
}
