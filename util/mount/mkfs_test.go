package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

func TestNewerFeaturesAreOffUnlessRequested(t *testing.T) {
	const off = "^orphan_file,^metadata_csum_seed"
	for _, c := range []struct{ name, fsType, given, want string }{
		{"ext4 as it is → off", "ext4", "", "-O " + off},
		{"ext4 with features → these have the last word", "ext4", "-O orphan_file -m 1", "-O " + off + " -O orphan_file -m 1"},
		{"xfs as it is → off", "xfs", "", "-m rmapbt=0 -i nrext64=0"},
		{"xfs with other keys → off, too", "xfs", "-m reflink=0 -i size=1024", "-m reflink=0 -i size=1024 -m rmapbt=0 -i nrext64=0"},
		{"xfs with one of them → the other is off", "xfs", "-m crc=1,rmapbt=1", "-m crc=1,rmapbt=1 -i nrext64=0"},
		{"xfs with one in one word → the other is off", "xfs", "-inrext64=1", "-inrext64=1 -m rmapbt=0"},
		{"a key of another option → off", "xfs", "-L rmapbt", "-L rmapbt -m rmapbt=0 -i nrext64=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			given := strings.Fields(c.given)
			assert.Equal(t, c.want, strings.Join(mkfsOptions(c.fsType, given), " "))
			assert.Equal(t, c.given, strings.Join(given, " "))
		})
	}
}

// TestFileSystemsHaveTheFeaturesOfEarlierReleases creates file systems with the image's tools, or this machine's. It
// expects the same features as from the tools of Debian 12.
func TestFileSystemsHaveTheFeaturesOfEarlierReleases(t *testing.T) {
	mountns.Needs(t, "mkfs.ext4", "dumpe2fs", "mkfs.xfs", "xfs_db")
	if !mountns.Own(t) {
		return
	}
	mountns.EnterImage(t)
	made := func(t *testing.T, fsType string, args ...string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "image")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Truncate(file, 400<<20))
		out, err := exec.Command("mkfs."+fsType, append(mkfsOptions(fsType, args), "-q", file)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return file
	}
	ext4 := func(t *testing.T, file string) []string {
		t.Helper()
		out, err := exec.Command("dumpe2fs", "-h", file).Output()
		require.NoError(t, err)
		line := regexp.MustCompile(`(?m)^Filesystem features: *(.*)$`).FindSubmatch(out)
		require.NotNil(t, line, "%s", out)
		return strings.Fields(string(line[1]))
	}
	xfs := func(t *testing.T, file string) string {
		t.Helper()
		out, err := exec.Command("xfs_db", "-r", "-c", "sb 0", "-c", "p features_compat features_ro_compat features_incompat", file).Output()
		require.NoError(t, err)
		return strings.Join(strings.Fields(string(out)), " ")
	}
	plain := []string{
		"has_journal", "ext_attr", "resize_inode", "dir_index", "filetype", "extent", "64bit", "flex_bg", "sparse_super", "large_file",
		"huge_file", "dir_nlink", "extra_isize", "metadata_csum",
	}
	assert.ElementsMatch(t, plain, ext4(t, made(t, "ext4")))
	assert.ElementsMatch(t, append(plain, "inline_data", "orphan_file"), ext4(t, made(t, "ext4", "-O", "inline_data,orphan_file")), "asked for")
	assert.Equal(t, "features_compat = 0 features_ro_compat = 0xd features_incompat = 0xb", xfs(t, made(t, "xfs")))
	assert.Equal(t, "features_compat = 0 features_ro_compat = 0xf features_incompat = 0xb", xfs(t, made(t, "xfs", "-m", "rmapbt=1")), "asked for")
}
