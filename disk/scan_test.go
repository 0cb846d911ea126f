package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
)

func testRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("testdata/host")
	require.NoError(t, err)
	return root
}

func TestScanReadsTheUUIDFileOfEachDirectory(t *testing.T) {
	ready := &Config{Name: "ready", UUID: uuidA, State: "ready"}
	twin := &Config{Name: "twin-a", UUID: "33333333-55d0-4a8b-9a0e-0c4f5a1d2b31", State: "ready"}
	tests := map[string]struct {
		path    string
		want    *Config
		wantErr error
	}{
		"a whole file":     {path: "/disks/ready", want: ready},
		"a trailing slash": {path: "/disks/ready/", want: ready},
		"an absolute link stays beneath the root": {path: "/disks/absolute-link", want: ready},
		"dots beyond the root stay beneath it":    {path: "/../../disks/ready", want: ready},
		"a link beyond the root stays beneath it": {path: "/disks/escaping-link", want: ready},
		"a legacy file":                               {path: "/disks/legacy", want: &Config{UUID: "11111111-55d0-4a8b-9a0e-0c4f5a1d2b31"}},
		"a file of a later version":                   {path: "/disks/future", want: &Config{Name: "future", UUID: "22222222-55d0-4a8b-9a0e-0c4f5a1d2b31", State: "ready", Claim: 7}},
		"the first of two with one UUID":              {path: "/disks/twin-a", want: twin},
		"the second of two with one UUID":             {path: "/disks/twin-b", want: twin},
		"no file":                                     {path: "/disks/missing", wantErr: ErrConfigMissing},
		"a cut file":                                  {path: "/disks/torn", wantErr: ErrConfigTorn},
		"an empty file":                               {path: "/disks/empty", wantErr: ErrConfigTorn},
		"a file of zero bytes":                        {path: "/disks/zeros", wantErr: ErrConfigTorn},
		"a file without UUID":                         {path: "/disks/no-uuid", wantErr: ErrConfigNoUUID},
		"a file with a malformed UUID":                {path: "/disks/bad-uuid", wantErr: ErrConfigBadUUID},
		"a link in place of the file is not followed": {path: "/disks/symlinked-file", wantErr: ErrConfigNotRegular},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rec := Scan(testRoot(t), map[string]string{"d": tt.path})["d"]
			require.NoError(t, rec.Err)
			require.True(t, rec.Exists)
			require.Equal(t, "d", rec.Name)
			require.Equal(t, tt.path, rec.Path)
			require.ErrorIs(t, rec.ConfigErr, tt.wantErr)
			require.Equal(t, tt.wantErr == nil, rec.ConfigErr == nil)
			assert.Equal(t, tt.want == nil, rec.Config == nil)
			if rec.Config != nil {
				assert.Equal(t, *tt.want, *rec.Config)
			}
		})
	}
}

func TestScanReportsWhetherReplicasCanBeOpened(t *testing.T) {
	root := t.TempDir()
	for name, tc := range map[string]struct {
		make    func(path string) error
		missing bool
		want    string // "" is no error
	}{
		"a directory":  {make: func(path string) error { return os.Mkdir(path, 0o700) }},
		"nothing":      {make: func(string) error { return nil }, missing: true, want: "its directory replicas is missing"},
		"a file":       {make: func(path string) error { return os.WriteFile(path, nil, 0o600) }, want: "is not a directory"},
		"a link to it": {make: func(path string) error { return os.Symlink("/tmp", path) }, want: "is not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := filepath.Join(root, strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.Mkdir(disk, 0o755))
			require.NoError(t, tc.make(filepath.Join(disk, ReplicasDirName)))
			got := Scan(root, map[string]string{"d": "/" + filepath.Base(disk)})["d"].ReplicasErr
			assert.Equal(t, tc.want == "", got == nil)
			assert.Equal(t, tc.missing, errors.Is(got, ErrReplicasMissing))
			if got != nil {
				assert.ErrorContains(t, got, tc.want)
			}
		})
	}
}

func TestScanReportsWhetherAFilesystemIsReadOnly(t *testing.T) {
	for options, want := range map[string]bool{
		"rw,relatime": false, "ro,relatime": true, "rw,emergency_ro": true, "rw,errors=remount-ro": false, "rw,shutdown": true, "": false,
	} {
		assert.Equal(t, want, isReadOnly(options), options)
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: nothing can be mounted")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	scan := func() bool {
		rec := Scan("/", map[string]string{"d": dir})["d"]
		require.NoError(t, rec.Err)
		return rec.ReadOnly
	}
	assert.False(t, scan(), "one that can be written to is read-only")
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	assert.True(t, scan(), "a read-only one is not noticed")
}

func TestScanReportsWhetherAFilesystemIsMountedThere(t *testing.T) {
	got := Scan("/", map[string]string{"root": "/", "plain": t.TempDir()})
	assert.False(t, got["root"].InsideMount, "a file system is mounted at /")
	assert.True(t, got["plain"].InsideMount, "none is mounted at a new directory")
}

func TestScanReportsWhyADirectoryCannotBeExamined(t *testing.T) {
	tests := map[string]struct {
		root    string
		path    string
		wantErr error
	}{
		"no directory":                   {testRoot(t), "/disks/nowhere", fs.ErrNotExist},
		"a file in place of a directory": {testRoot(t), "/disks/plain-file", unix.ENOTDIR},
		"a relative path":                {testRoot(t), "disks/ready", openat.ErrRelative},
		"an empty path":                  {testRoot(t), "", openat.ErrRelative},
		"no root":                        {"/nonexistent-root", "/disks/ready", fs.ErrNotExist},
		"a link made up by the kernel":   {"/", "/proc/self/cwd", unix.ELOOP},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rec := Scan(tt.root, map[string]string{"d": tt.path})["d"]
			assert.False(t, rec.Exists)
			assert.Nil(t, rec.Config)
			assert.ErrorIs(t, rec.Err, tt.wantErr)
		})
	}
}

func TestScanRefusesInvalidUUIDFiles(t *testing.T) {
	tests := map[string]struct {
		make    func(path string) error
		wantErr error
	}{
		"a pipe without writer does not block": {func(p string) error { return unix.Mkfifo(p, 0o600) }, ErrConfigNotRegular},
		"a directory":                          {func(p string) error { return os.Mkdir(p, 0o700) }, ErrConfigNotRegular},
		"a socket":                             {func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, ErrConfigNotRegular},
		"a file beyond the limit": {func(p string) error {
			return os.WriteFile(p, bytes.Repeat([]byte(" "), MaxConfigBytes+1), 0o600)
		}, ErrConfigTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, tt.make(filepath.Join(root, ConfigFileName)))
			rec := Scan(root, map[string]string{"d": "/"})["d"]
			require.NoError(t, rec.Err)
			assert.ErrorIs(t, rec.ConfigErr, tt.wantErr)
		})
	}
}

func TestScanDistinguishesFilesystems(t *testing.T) {
	tempDir := t.TempDir()
	records := Scan("/", map[string]string{"a": tempDir, "b": filepath.Dir(tempDir), "proc": "/proc"})
	a, b, proc := records["a"], records["b"], records["proc"]
	require.NoError(t, a.Err)
	require.NoError(t, b.Err, "records %+v", records)
	require.NoError(t, proc.Err)
	assert.True(t, sameFilesystem(a, b), "devices a %d/%d, b %d/%d, proc %d/%d", a.DeviceID, a.SuperBlockID, b.DeviceID, b.SuperBlockID, proc.DeviceID, proc.SuperBlockID)
	assert.False(t, sameFilesystem(a, proc))
	assert.Equal(t, "proc", proc.FSType)
	assert.Zero(t, proc.StorageMaximum)
	var sfs unix.Statfs_t
	require.NoError(t, unix.Statfs(tempDir, &sfs))
	want := int64(sfs.Blocks) * sfs.Bsize
	assert.Equal(t, want, a.StorageMaximum)
	assert.NotEmpty(t, a.MountSource)
	assert.GreaterOrEqual(t, len(a.FSID), 12)
	assert.Zero(t, a.StorageAvailable%(100<<20))
	assert.LessOrEqual(t, a.StorageAvailable, a.StorageMaximum)
}

func TestSameFilesystem(t *testing.T) {
	tests := map[string]struct {
		a, b Record
		want bool
	}{
		"one device":  {Record{DeviceID: 5}, Record{DeviceID: 5}, true},
		"two devices": {Record{DeviceID: 5}, Record{DeviceID: 6}, false},
		"two btrfs subvolumes of one super block":     {Record{DeviceID: 5, SuperBlockID: 4}, Record{DeviceID: 6, SuperBlockID: 4}, true},
		"two super blocks with one f_fsid (clones)":   {Record{DeviceID: 5, SuperBlockID: 5, FSID: "1"}, Record{DeviceID: 6, SuperBlockID: 6, FSID: "1"}, false},
		"a super block known for one only → st_dev":   {Record{DeviceID: 5, SuperBlockID: 4}, Record{DeviceID: 5}, true},
		"a super block known for one only, elsewhere": {Record{DeviceID: 5, SuperBlockID: 4}, Record{DeviceID: 4}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, sameFilesystem(tt.a, tt.b))
		})
	}
}

func TestCapacityRoundsFreeSpaceOfLargeDisksDown(t *testing.T) {
	const mib, large = 1 << 20, 256 * 10000
	tests := map[string]struct {
		sfs           unix.Statfs_t
		maximum, free int64
	}{
		"just below a step":             {unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: large, Bfree: 256*200 - 1}, 10000 * mib, 100 * mib},
		"on a step":                     {unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: large, Bfree: 256 * 200}, 10000 * mib, 200 * mib},
		"under 100 MiB":                 {unix.Statfs_t{Bsize: 4096, Blocks: large, Bfree: 256 * 99}, 10000 * mib, 0},
		"fragments are units":           {unix.Statfs_t{Bsize: mib, Frsize: 4096, Blocks: large, Bfree: 256 * 100}, 10000 * mib, 100 * mib},
		"reserved blocks count":         {unix.Statfs_t{Bsize: 4096, Blocks: large, Bfree: 256 * 300, Bavail: 256 * 100}, 10000 * mib, 300 * mib},
		"a small disk has what is free": {unix.Statfs_t{Bsize: 4096, Blocks: 256 * 100, Bfree: 256 * 99}, 100 * mib, 99 * mib},
		"the largest exact one":         {unix.Statfs_t{Bsize: 4096, Blocks: large - 1, Bfree: 256*200 - 1}, 10000*mib - 4096, 200*mib - 4096},
		"a small one that is full":      {unix.Statfs_t{Bsize: 4096, Blocks: 256 * 100}, 100 * mib, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			maximum, free := capacity(tt.sfs)
			assert.Equal(t, tt.maximum, maximum)
			assert.Equal(t, tt.free, free)
		})
	}
}

func TestFSIDText(t *testing.T) {
	tests := map[string]struct {
		words [2]int32
		want  string
	}{
		"small words are padded to 12 digits": {[2]int32{1, 2}, "000100000002"},
		"negative words are bit patterns":     {[2]int32{-1, -2}, "fffffffffffffffe"},
		"none":                                {[2]int32{0, 0}, strings.Repeat("0", 12)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, fsidText(tt.words))
		})
	}
}
