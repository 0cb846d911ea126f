package disk

import (
	"os"
	"path/filepath"
	"testing"

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
	if err := MarkVolumes(root, "/dev/longhorn", records); err != nil {
		t.Errorf("no device was ever made: %v", err)
	}
	dir := filepath.Join(root, "dev/longhorn")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "vol"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Skipf("no device can be made here: %v", err)
	}
	for _, name := range []string{"no-device", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := MarkVolumes(root, "/dev/longhorn", records); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"on it": "vol", "by st_dev alone": "vol", "a subvolume": "vol", "elsewhere": "", "unread": ""} {
		if got := records[name].OnVolume; got != want {
			t.Errorf("%s: on volume %q, want %q", name, got, want)
		}
	}
}
