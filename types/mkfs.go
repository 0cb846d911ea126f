package types

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// mkfsOption describes the value of an option, which is one letter.
type mkfsOption struct {
	// flag: the option has no value.
	flag bool
	// keys are the allowed parts of its value, a comma-separated list; nil: the value is not a list.
	keys []string
}

// mkfsOptions are the options of mkfs that a StorageClass may specify, by the type of the file system. They determine
// the format of the file system on the volume. Options that are not listed here name another device or file, create a
// file system that cannot be mounted, or create none.
var mkfsOptions = map[string]map[string]mkfsOption{
	FSTypeExt4: {
		"b": {}, "C": {}, "e": {}, "g": {}, "G": {}, "i": {}, "I": {}, "L": {}, "m": {}, "N": {}, "T": {},
		"E": {keys: []string{
			"assume_storage_prezeroed", "discard", "lazy_itable_init", "lazy_journal_init", "no_copy_xattrs", "nodiscard",
			"num_backup_sb", "packed_meta_blocks", "stride", "stripe-width", "stripe_width",
		}},
		"J": {keys: []string{"fast_commit_size", "size"}},
		"O": {keys: []string{
			"64bit", "bigalloc", "casefold", "dir_index", "dir_nlink", "ea_inode", "ext_attr", "extent", "extents", "extra_isize", "fast_commit",
			"filetype", "flex_bg", "has_journal", "huge_file", "inline_data", "large_dir", "large_file", "meta_bg", "metadata_csum",
			"metadata_csum_seed", "orphan_file", "resize_inode", "sparse_super", "sparse_super2", "stable_inodes", "uninit_bg",
		}},
		"D": {flag: true}, "F": {flag: true}, "j": {flag: true}, "K": {flag: true}, "q": {flag: true}, "v": {flag: true},
	},
	FSTypeXFS: {
		"L": {},
		"b": {keys: []string{"log", "size"}},
		"d": {keys: []string{"agcount", "agsize", "cowextsize", "extszinherit", "noalign", "su", "sunit", "sw", "swidth"}},
		"i": {keys: []string{"align", "attr", "exchange", "maxpct", "nrext64", "perblock", "projid32bit", "size", "sparse"}},
		"l": {keys: []string{"lazy-count", "size", "su", "sunit", "version"}},
		"m": {keys: []string{"bigtime", "crc", "finobt", "inobtcount", "reflink", "rmapbt"}},
		"n": {keys: []string{"ftype", "size", "version"}},
		"s": {keys: []string{"log", "size"}},
		"f": {flag: true}, "K": {flag: true}, "q": {flag: true},
	},
}

// mkfsValue matches an allowed value. A value has no slash, so it cannot be a path.
var mkfsValue = regexp.MustCompile(`^[A-Za-z0-9_.,:=^%+-]+$`)

// ParseMkfsParams splits additional arguments of mkfs at spaces. It accepts only arguments that determine the format
// of a file system of that type on the volume. The error names the parameter, the value and the rule.
func ParseMkfsParams(fsType, value string) ([]string, error) {
	args, err := parseMkfsParams(fsType, value)
	if err != nil {
		return nil, fmt.Errorf("parameter %s: value %q %w", ParameterMkfsParams, value, err)
	}
	return args, nil
}

// parseMkfsParams is ParseMkfsParams, but its error is a clause that follows the value.
func parseMkfsParams(fsType, value string) ([]string, error) {
	args := strings.Fields(value)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if len(arg) < 2 || arg[0] != '-' {
			return nil, fmt.Errorf("has the argument %q, which is not an option: mkfs may be given no device, file or size", arg)
		}
		letter, text := arg[1:2], arg[2:]
		option, ok := mkfsOptions[fsType][letter]
		switch {
		case !ok || option.flag && text != "":
			return nil, fmt.Errorf("has the option %q, which mkfs.%s may not be given; allowed are %s", arg, fsType, allowedMkfs(fsType))
		case option.flag:
			continue
		case text == "" && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")):
			return nil, fmt.Errorf("has the option %q without a value", arg)
		case text == "":
			i++
			text = args[i]
		}
		if err := option.check("-"+letter, text); err != nil {
			return nil, err
		}
	}
	return args, nil
}

func (o mkfsOption) check(name, value string) error {
	if !mkfsValue.MatchString(value) {
		return fmt.Errorf("has the value %q of option %s; allowed are letters, digits and any of _.,:=^%%+-", value, name)
	}
	if o.keys == nil {
		return nil
	}
	for _, part := range strings.Split(value, ",") {
		key, _, _ := strings.Cut(strings.TrimPrefix(part, "^"), "=")
		if !slices.Contains(o.keys, key) {
			return fmt.Errorf("has %q in option %s; allowed there are %s", part, name, strings.Join(o.keys, ", "))
		}
	}
	return nil
}

// allowedMkfs lists the options of a type, for errors.
func allowedMkfs(fsType string) string {
	letters := slices.SortedFunc(maps.Keys(mkfsOptions[fsType]), func(a, b string) int {
		if c := strings.Compare(strings.ToLower(a), strings.ToLower(b)); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return "-" + strings.Join(letters, ", -")
}
