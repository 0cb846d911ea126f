package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// TestRealDevice formats and mounts a loop device with the real commands, in a mount
// namespace of its own that ends with it.
func TestRealDevice(t *testing.T) {
	for _, command := range []string{"losetup", "blkid", "fsck", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "cp"} {
		if _, err := exec.LookPath(command); err != nil {
			mountns.Missing(t, command+" (util-linux, e2fsprogs, xfsprogs, coreutils)")
		}
	}
	if !mountns.Own(t) {
		return
	}
	device := loopDevice(t, newImage(t, 64<<20))
	dir := t.TempDir()
	s := New()
	t.Run("a file system survives everything but being asked for", func(t *testing.T) { filesystemOnDevice(t, s, device, dir) })
	t.Run("a device is bound and unbound", func(t *testing.T) { boundDevice(t, s, device, dir) })
	t.Run("a mount in use is detached, and refused to be unmounted", func(t *testing.T) { detachedInUse(t, s, device, dir) })
	t.Run("xfs is mounted anew while its mount of a former device lives", func(t *testing.T) { xfsOnAnotherDevice(t, s, dir) })
	t.Run("a device whose backing went away is dead", func(t *testing.T) { deadDevice(t, s, device) })
}

// newImage makes a sparse file for a loop device.
func newImage(t *testing.T, sizeBytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, sizeBytes))
	return file
}

// loopDevice puts a device in front of a file until the test ends.
func loopDevice(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		mountns.Missing(t, fmt.Sprintf("a loop device: losetup: %v: %s", err, out))
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", device, err, out)
		}
	})
	return device
}

func filesystemOnDevice(t *testing.T, s *System, device, dir string) {
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	fsys := Filesystem{Device: device, Target: staging, Type: "ext4", MkfsOptions: []string{"-i", "8192"}, Options: []string{"noatime"}}
	number, err := s.BlockDevice(device)
	must(t, err)
	must(t, s.FormatAndMount(fsys))
	must(t, os.WriteFile(filepath.Join(staging, "file"), []byte("data"), 0o600))
	wantPoint(t, s, staging, Point{Mounted: true, Device: number})
	must(t, s.BindDirectory(staging, target, []string{"ro"}))
	wantPoint(t, s, target, Point{Mounted: true, Device: number})
	if err := os.WriteFile(filepath.Join(target, "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only bind: %v", err)
	}
	refs, err := s.References(staging)
	must(t, err)
	if !reflect.DeepEqual(refs, []string{target}) {
		t.Errorf("references %v, want %s", refs, target)
	}
	st, err := s.Statistics(target)
	must(t, err)
	if st.Block || st.TotalBytes < 32<<20 || st.TotalBytes > 64<<20 || st.UsedInodes < 11 {
		t.Errorf("statistics %+v", st)
	}
	for _, path := range []string{target, staging} {
		must(t, s.Remove(path))
		wantPoint(t, s, path, Point{})
	}
	other := fsys
	other.Type = "xfs"
	if err := s.FormatAndMount(other); err == nil {
		t.Error("a device with ext4 was mounted as xfs")
	}
	must(t, s.FormatAndMount(fsys))
	if data, err := os.ReadFile(filepath.Join(staging, "file")); err != nil || string(data) != "data" {
		t.Errorf("after mounting again the file holds %q, %v", data, err)
	}
	must(t, s.Remove(staging))
}

func boundDevice(t *testing.T, s *System, device, dir string) {
	number, err := s.BlockDevice(device)
	must(t, err)
	bound := filepath.Join(dir, "volumes", "pvc-1")
	must(t, s.BindFile(device, bound, nil))
	wantPoint(t, s, bound, Point{Mounted: true, Block: true, Device: number})
	st, err := s.Statistics(bound)
	must(t, err)
	if want := (Statistics{Block: true, TotalBytes: 64 << 20}); st != want {
		t.Errorf("statistics %+v, want %+v", st, want)
	}
	must(t, s.Remove(bound))
	if _, err := os.Lstat(bound); !os.IsNotExist(err) {
		t.Errorf("the bound file is left: %v", err)
	}
}

func detachedInUse(t *testing.T, s *System, device, dir string) {
	staging := filepath.Join(dir, "in-use")
	must(t, s.FormatAndMount(Filesystem{Device: device, Target: staging, Type: "ext4"}))
	f, err := os.Create(filepath.Join(staging, "open"))
	must(t, err)
	if err := s.Unmount(staging); err == nil {
		t.Error("unmounted while a file is open")
	}
	must(t, s.Detach(staging))
	wantPoint(t, s, staging, Point{Device: pointOf(t, s, dir).Device})
	must(t, s.Remove(staging))
	must(t, f.Close())
}

// xfsOnAnotherDevice is a volume whose device was replaced while a pod had a file open:
// the old mount is detached, its superblock lives on, and the same file system is on
// another device.
func xfsOnAnotherDevice(t *testing.T, s *System, dir string) {
	image := newImage(t, 320<<20) // xfs wants at least 300 MiB
	old := Filesystem{Device: loopDevice(t, image), Target: filepath.Join(dir, "xfs"), Type: "xfs", Options: []string{"noatime"}}
	must(t, s.FormatAndMount(old))
	must(t, os.WriteFile(filepath.Join(old.Target, "file"), []byte("data"), 0o600))
	must(t, s.Unmount(old.Target))
	replica := image + ".copy"
	out, err := exec.CommandContext(t.Context(), "cp", "--sparse=always", image, replica).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, s.FormatAndMount(old))
	held, err := os.Open(filepath.Join(old.Target, "file"))
	must(t, err)
	defer func() { _ = held.Close() }() // else the old device would stay mounted
	must(t, s.Detach(old.Target))

	anew := old
	anew.Device = loopDevice(t, replica)
	must(t, s.FormatAndMount(anew))
	number, err := s.BlockDevice(anew.Device)
	must(t, err)
	wantPoint(t, s, anew.Target, Point{Mounted: true, Device: number})
	if data, err := os.ReadFile(filepath.Join(anew.Target, "file")); err != nil || string(data) != "data" {
		t.Errorf("on the new device the file holds %q, %v", data, err)
	}
	must(t, s.Remove(anew.Target))
}

func deadDevice(t *testing.T, s *System, device string) {
	if s.IsDead(device) {
		t.Error("a device that answers is called dead")
	}
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	must(t, err)
	must(t, os.Truncate(strings.TrimSpace(string(backing)), 0))
	if !s.IsDead(device) {
		t.Error("a device whose reads fail is called alive")
	}
}

func pointOf(t *testing.T, s *System, path string) Point {
	t.Helper()
	point, err := s.Look(path)
	must(t, err)
	return point
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantPoint(t *testing.T, s *System, path string, want Point) {
	t.Helper()
	if got, err := s.Look(path); err != nil || got != want {
		t.Fatalf("%s: %+v, %v, want %+v", path, got, err, want)
	}
}
