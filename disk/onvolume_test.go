package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestADiskOnTheDeviceOfAVolumeIsMarked(t *testing.T) {
	root := t.TempDir()
	records := map[string]Record{
		"on it":           {SuperBlockID: unix.Mkdev(7, 250)},
		"by st_dev alone": {DeviceID: unix.Mkdev(7, 250)},
		"a subvolume":     {DeviceID: unix.Mkdev(0, 77), SuperBlockID: unix.Mkdev(7, 250)},
		"elsewhere":       {SuperBlockID: unix.Mkdev(8, 1), DeviceID: unix.Mkdev(8, 1)},
		"unread":          {},
	}
	assert.NoError(t, MarkVolumes(root, "/dev/longhorn", records), "no device was ever made")
	dir := filepath.Join(root, "dev/longhorn")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if err := unix.Mknod(filepath.Join(dir, "vol"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Skipf("no device can be made here: %v", err)
	}
	for _, name := range []string{"no-device", "other"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, MarkVolumes(root, "/dev/longhorn", records))
	for name, want := range map[string]string{"on it": "vol", "by st_dev alone": "vol", "a subvolume": "vol", "elsewhere": "", "unread": ""} {
		assert.Equal(t, want, records[name].OnVolume, name)
	}
}
