package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
)

// RunGuest is process 1 of a machine with a kernel of its own. When it returns, the kernel stops, and with it the
// machine.
//
// The kernel was started with the real machine's tree as its read-only root, and with no module loaded.
func RunGuest(specFile string) error {
	os.Clearenv() // it contains the kernel's command line
	for name, value := range map[string]string{"PATH": searchPath, "HOME": "/root"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	log := logrus.New().WithField("machine", specFile)
	spec, err := ReadSpec(specFile)
	if err != nil {
		return err
	}
	if spec.Root == nil || spec.Guest == nil {
		return errors.New("the spec is not a guest's")
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := setUpGuest(*spec.Root, *spec.Guest); err != nil {
		return err
	}
	supervise(log, spec.Processes)
	return nil
}

func setUpGuest(r Root, g Guest) error {
	if err := mountProc("/proc"); err != nil {
		return err
	}
	if err := insertOverlay(g.ModulesDir); err != nil {
		return err
	}
	root, err := mountOverlay(r.Dir)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return mountState(root, r.Dir, g) },
		func() error { return mountGuestKernel(root) },
		func() error { return cgroup.MountVersion2(filepath.Join(root, "sys/fs/cgroup")) },
		func() error { return bind(g.ModulesDir, filepath.Join(root, "usr/lib/modules")) },
		func() error { return mountAll(root, r) },
		func() error { return mountShared(root, g.Shared) },
		func() error { return makeLinks(root, g.Links) },
		func() error { return pivot(root) },
		addClockSpeed,
		func() error { return loadModules(g.Modules) },
		g.Network.SetUpInside,
		func() error { return mountGuestDisks(g.Disks) },
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

// insertOverlay loads the one module that is needed before modprobe(8) finds modules; the module does not depend on
// others.
func insertOverlay(modulesDir string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("find release of the kernel: %w", err)
	}
	f, err := os.Open(filepath.Join(modulesDir, unix.ByteSliceToString(u.Release[:]), "kernel/fs/overlayfs/overlay.ko"))
	if err != nil {
		return fmt.Errorf("load overlay: %w", err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load overlay: %w", err)
	}
	return nil
}

func loadModules(names []string) error {
	if len(names) == 0 {
		return nil
	}
	out, err := exec.Command("modprobe", append([]string{"-a"}, names...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load modules: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// mountState mounts the disk with the files that containers and programs write outside the data disk. They would need
// too much memory.
func mountState(root, dir string, g Guest) error {
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	if err := unix.Mount(g.State, state, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", g.State, err)
	}
	for name := range g.Fresh {
		if err := os.RemoveAll(filepath.Join(state, name)); err != nil {
			return fmt.Errorf("empty %s: %w", name, err)
		}
	}
	for _, dirs := range []map[string]string{g.Kept, g.Fresh} {
		for name, inside := range dirs {
			from := filepath.Join(state, name)
			if err := os.MkdirAll(from, 0o755); err != nil {
				return fmt.Errorf("make %s: %w", name, err)
			}
			if err := bind(from, filepath.Join(root, inside)); err != nil {
				return err
			}
		}
	}
	return nil
}

func mountGuestKernel(root string) error {
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	for _, m := range []struct{ fsType, at, options string }{
		{"sysfs", "sys", ""},
		{"devtmpfs", "dev", "mode=755"},
		{"devpts", "dev/pts", "mode=620,ptmxmode=666"},
	} {
		at := filepath.Join(root, m.at)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", m.at, err)
		}
		if err := unix.Mount(m.fsType, at, m.fsType, 0, m.options); err != nil {
			return fmt.Errorf("mount /%s: %w", m.at, err)
		}
	}
	return nil
}

// mountShared mounts directories of the real machine a second time, because they are read-only below the guest's root.
func mountShared(root string, shared []Bind) error {
	for _, b := range shared {
		at := filepath.Join(root, b.To)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", b.To, err)
		}
		if err := unix.Mount("none", at, "hostfs", 0, b.From); err != nil {
			return fmt.Errorf("mount %s: %w", b.To, err)
		}
	}
	return nil
}

func makeLinks(root string, links map[string]string) error {
	for name, target := range links {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("make link %s: %w", name, err)
		}
		_ = os.Remove(at)
		if err := os.Symlink(target, at); err != nil {
			return fmt.Errorf("make link: %w", err)
		}
	}
	return nil
}

// addClockSpeed covers /proc/cpuinfo with a file that contains a clock speed. This kernel reports none, and without it
// a kubelet does not start.
func addClockSpeed() error {
	const file = "/proc/cpuinfo"
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read processors: %w", err)
	}
	if strings.Contains(string(raw), "cpu MHz") {
		return nil
	}
	return coverFiles(map[string]string{file: strings.TrimRight(string(raw), "\n") + "\ncpu MHz\t\t: 2000.000\n\n"})
}

func mountGuestDisks(disks []GuestDisk) error {
	for _, d := range disks {
		command := d.CreateCommand()
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make device %s: %w: %s", d.Name, err, strings.TrimSpace(string(out)))
		}
		if err := os.MkdirAll(d.To, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", d.To, err)
		}
		if err := unix.Mount(d.Path(), d.To, d.FSType, 0, ""); err != nil {
			return fmt.Errorf("mount disk %s: %w", d.Name, err)
		}
	}
	return nil
}
