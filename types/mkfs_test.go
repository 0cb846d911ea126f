package types

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseMkfsParams(t *testing.T) {
	tests := map[string]struct{ fsType, value, err string }{
		"none → nothing": {"ext4", "", ""},
		"ext4 with values apart and attached → taken": {"ext4", "-b 4096 -i8192 -O ^64bit,metadata_csum -E lazy_itable_init=0,nodiscard -J size=64 -m 0 -F", ""},
		"xfs → taken":                                 {"xfs", "-K -i size=512,sparse=1 -m reflink=1 -d agcount=4 -f", ""},
		"a device → refused":                          {"ext4", "/dev/sda -F", `has the argument "/dev/sda", which is not an option`},
		"a relative file → refused":                   {"ext4", "-F disk.img", `has the argument "disk.img", which is not an option`},
		"a dry run → refused, and what is allowed":    {"ext4", "-n", `has the option "-n", which mkfs.ext4 may not be given; allowed are -b, -C, -D, -E, -e, -F, -G, -g, -I, -i, -J, -j, -K, -L, -m, -N, -O, -q, -T, -v`},
		"a directory to copy in → refused":            {"ext4", "-d /root", `has the option "-d", which mkfs.ext4 may not be given`},
		"an undo file → refused":                      {"ext4", "-z x", `has the option "-z"`},
		"another type → refused":                      {"ext4", "-t xfs", `has the option "-t"`},
		"a journal on another device → refused":       {"ext4", "-J device=UUID=1", `has "device=UUID=1" in option -J; allowed there are fast_commit_size, size`},
		"a journal device → refused":                  {"ext4", "-O journal_dev", `has "journal_dev" in option -O; allowed there are 64bit,`},
		"an offset into the device → refused":         {"ext4", "-E offset=1024", `has "offset=1024" in option -E`},
		"a value with a slash → refused":              {"ext4", "-L a/b", `has the value "a/b" of option -L; allowed are letters, digits and any of`},
		"a value is missing at the end → refused":     {"ext4", "-F -b", `has the option "-b" without a value`},
		"a value is missing before another → refused": {"ext4", "-b -F", `has the option "-b" without a value`},
		"a long option → refused":                     {"xfs", "--help", `has the option "--help"`},
		"flags together → refused":                    {"xfs", "-Kf", `has the option "-Kf"`},
		"xfs, data in a file → refused":               {"xfs", "-d file,name=x,size=1g", `has "file" in option -d`},
		"xfs, a log on another device → refused":      {"xfs", "-l logdev=x", `has "logdev=x" in option -l`},
		"xfs, a prototype file → refused":             {"xfs", "-p proto", `has the option "-p", which mkfs.xfs may not be given; allowed are -b, -d, -f, -i, -K, -L, -l, -m, -n, -q, -s`},
		"xfs is given an option of ext4 → refused":    {"xfs", "-O 64bit", `has the option "-O"`},
		"a lone minus → refused":                      {"xfs", "-", `has the argument "-"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			args, err := parseMkfsParams(tt.fsType, tt.value)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				assert.Nil(t, args)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, strings.Fields(tt.value), args)
		})
	}
}

func TestTheErrorOfParseMkfsParamsNamesTheParameter(t *testing.T) {
	_, err := ParseMkfsParams("xfs", "-O 64bit")
	require.ErrorContains(t, err, `parameter mkfsParams: value "-O 64bit" has the option "-O", which mkfs.xfs may not be given`)
}
