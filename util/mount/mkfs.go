package mount

import (
	"slices"
	"strings"
)

// The tools of the image turn more features on by themselves than those of earlier releases' images know. Such a file
// system could not be checked there after a return to that release, nor mounted by an older kernel: Linux knows orphan_file
// since 5.15 and nrext64 since 5.19. So these stay off, unless a StorageClass asks for them.
//
//	ext4   orphan_file, metadata_csum_seed    on by default since e2fsprogs 1.47.1
//	xfs    rmapbt, nrext64                    on by default since xfsprogs 6.6
const ext4Off = "^orphan_file,^metadata_csum_seed"

var xfsOff = []struct{ option, key string }{{"-m", "rmapbt"}, {"-i", "nrext64"}}

// mkfsOptions are the options for mkfs of a type: those given, which types.ParseMkfsParams has accepted, with newer
// features off that they do not name.
func mkfsOptions(fsType string, given []string) []string {
	switch fsType {
	case typeExt4:
		return append([]string{"-O", ext4Off}, given...) // the last word on a feature counts
	case typeXFS:
		return xfsOptions(given)
	}
	return given
}

// xfsOptions leaves out what is given: mkfs.xfs refuses a key that it finds twice.
func xfsOptions(given []string) []string {
	all := slices.Clone(given)
	for _, off := range xfsOff {
		if !namesKey(given, off.option, off.key) {
			all = append(all, off.option, off.key+"=0")
		}
	}
	return all
}

// namesKey tells whether a value of an option, a list of KEY=VALUE, has a key.
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
