package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
)

// makePrivate separates the mount namespace from the real machine's: mounts inside must not appear outside.
func makePrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	return nil
}

func mountProc(at string) error {
	if err := unix.Mount("proc", at, "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	return nil
}

// enterRoot builds the tree and makes it the root of the mount namespace. At the end the mounts are shared. So if a pod
// mounts a file system with Bidirectional propagation, the machine and its other pods see it.
func enterRoot(r Root) error {
	outside, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	root, err := mountOverlay(r.Dir)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return bindOtherFileSystems(root, r.Dir, outside) },
		func() error { return mountKernel(root) },
		func() error { return cgroup.MountInside(filepath.Join(root, "sys/fs/cgroup"), outside) },
		func() error { return mountAll(root, r) },
		func() error { return pivot(root) },
		func() error { return coverFiles(r.Covers) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

func mountOverlay(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make root directory: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=1g"); err != nil {
		return "", fmt.Errorf("mount %s: %w", dir, err)
	}
	upper, work, root := filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "root")
	for _, d := range []string{upper, work, root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", fmt.Errorf("make root directory: %w", err)
		}
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", upper, work)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return "", fmt.Errorf("mount overlay (%s): %w", options, err)
	}
	return root, nil
}

// bindOtherFileSystems makes disks visible that the real machine has mounted below its root, such as a separate /usr or
// /home. Without this, the overlay shows only the root file system.
func bindOtherFileSystems(root, own string, outside []mountinfo.Mount) error {
	for _, m := range outside {
		isDisk := strings.HasPrefix(m.Source, "/dev/") && m.Target != "/"
		if !isDisk || strings.HasPrefix(m.Target, own) || strings.HasPrefix(m.Target, "/dev/") || strings.HasPrefix(m.Target, "/run/") {
			continue
		}
		if err := bind(m.Target, filepath.Join(root, m.Target)); err != nil {
			return err
		}
	}
	return nil
}

func mountKernel(root string) error {
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", filepath.Join(root, "sys"), "sysfs", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	// One devtmpfs serves all machines: loop devices appear in it.
	if err := unix.Mount("/dev", filepath.Join(root, "dev"), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	return nil
}

func mountAll(root string, r Root) error {
	for _, dir := range r.Tmpfs {
		at := filepath.Join(root, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		mode := "mode=755"
		if dir == "/tmp" || dir == "/dev/shm" {
			mode = "mode=1777"
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, mode); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
	}
	for _, b := range r.Binds {
		if err := bind(b.From, filepath.Join(root, b.To)); err != nil {
			return err
		}
	}
	for name, content := range r.Files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("make %s: %w", filepath.Dir(name), err)
		}
		// The lower layer may have a link there that points outside the machine's own tree.
		_ = os.Remove(at)
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	for _, d := range r.Disks {
		at := filepath.Join(root, d.To)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", d.To, err)
		}
		if err := disk.Mount(d.Image, d.FSType, at); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(to, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("make mount point %s: %w", to, err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

// pivot makes root the root of the mount namespace and releases the old root.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	// If both arguments are ".", the old root is mounted on top of the new one.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	return nil
}

// coverFiles mounts files with the given content over others. Most of these are kernel tunables that belong to the
// whole real machine and must not change. Files that the kernel does not have are left out.
func coverFiles(covers map[string]string) error {
	const dir = "/run/devcluster/covers"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	names := make([]string, 0, len(covers))
	for name := range covers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, err := os.Stat(name); os.IsNotExist(err) {
			continue
		}
		from := filepath.Join(dir, strings.ReplaceAll(strings.Trim(name, "/"), "/", "-"))
		if err := os.WriteFile(from, []byte(covers[name]), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", from, err)
		}
		if err := unix.Mount(from, name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	return nil
}
