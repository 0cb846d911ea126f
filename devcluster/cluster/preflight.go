package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/uml"
)

// needs is the only list of programs and files that the machine must have, with the Debian package of each.
var needs = []need{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{config.CNIPlugins + "/ptp", "containernetworking-plugins"},
	{config.CNIPlugins + "/loopback", "containernetworking-plugins"},
	{config.CNIPlugins + "/portmap", "containernetworking-plugins"},
	{config.CNIPlugins + "/host-local", "containernetworking-plugins"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"mkfs.ext4", "e2fsprogs"},
	{"nsenter", "util-linux"},
	{"losetup", "mount"},
	{"mount", "mount"},
	{"busybox", "busybox-static"},
	{"fio", "fio"},
	{"curl", "curl"},
}

type need struct{ path, debianPackage string }

// guestNeeds are what nodes with a kernel of their own need in addition.
var guestNeeds = []need{
	{uml.KernelIn("").Program, "user-mode-linux"},
	{"dmsetup", "dmsetup"},
	{"modprobe", "kmod"},
	{"iptables-legacy", "iptables"},
}

// compilerNeed is an additional need of guests on some processors.
var compilerNeed = need{uml.Compiler, "gcc"}

// Packages lists the Debian packages that a cluster and its workload image need.
func Packages() []string {
	var names []string
	seen := map[string]bool{}
	for _, n := range slices.Concat(needs, guestNeeds, []need{compilerNeed}) {
		if !seen[n.debianPackage] {
			seen[n.debianPackage] = true
			names = append(names, n.debianPackage)
		}
	}
	sort.Strings(names)
	return names
}

// minFreeBytes is the free space needed below the state directory: for images of three nodes and logs.
const minFreeBytes = 3 << 30

// preflight finds problems that would cause failures later, with their solutions. It reports all problems together.
func preflight(dir string, withNodes, withGuests bool, kernelDir string) error {
	var wrong []error
	if os.Geteuid() != 0 {
		wrong = append(wrong, errors.New("not root: a cluster makes namespaces and mounts; run it with sudo"))
	}
	if withNodes {
		wrong = append(wrong, checkPackages(needs), checkKernel())
		if runtime.GOARCH != "amd64" {
			wrong = append(wrong, fmt.Errorf("architecture %s: nodes need amd64", runtime.GOARCH))
		}
	}
	if withGuests {
		wrong = append(wrong, CheckGuests(kernelDir))
	}
	wrong = append(wrong, checkSpace(dir))
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("this machine is not ready:\n%w", err)
	}
	return nil
}

// CheckGuests checks whether nodes can have a kernel of their own here: the kernel in a directory (uml.KernelIn).
func CheckGuests(kernelDir string) error {
	all := guestNeeds
	preload, err := uml.NeedsPreload()
	if err != nil {
		return err
	}
	if preload {
		all = append(slices.Clone(all), compilerNeed)
	}
	if err := checkPackages(all); err != nil {
		return fmt.Errorf("for nodes with a kernel of their own, %w", err)
	}
	return checkGuestKernel(kernelDir)
}

func checkGuestKernel(dir string) error {
	mend := "apt-get install --reinstall user-mode-linux"
	if dir != "" {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("kernel of guests %q: give an absolute path", dir)
		}
		mend = "make it, or do without"
	}
	kernel := uml.KernelIn(dir)
	if _, err := exec.LookPath(kernel.Program); err != nil {
		return fmt.Errorf("kernel of guests: %w: %s", err, mend)
	}
	overlays, err := filepath.Glob(filepath.Join(kernel.ModulesDir, "*", "kernel/fs/overlayfs/overlay.ko"))
	if err != nil || len(overlays) == 0 {
		return fmt.Errorf("%s has no modules for %s: %s", kernel.ModulesDir, kernel.Program, mend)
	}
	return nil
}

func checkPackages(needs []need) error {
	missing := map[string]bool{}
	for _, n := range needs {
		if _, err := exec.LookPath(n.path); err != nil {
			missing[n.debianPackage] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, 0, len(missing))
	for name := range missing {
		names = append(names, name)
	}
	sort.Strings(names)
	return fmt.Errorf("programs are missing: apt-get install -y %s", strings.Join(names, " "))
}

func checkKernel() error {
	raw, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("read file systems of the kernel: %w", err)
	}
	if !strings.Contains(string(raw), "\toverlay\n") {
		return errors.New("the kernel has no overlay file system: modprobe overlay")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return errors.New("the kernel has no loop devices: modprobe loop")
	}
	return nil
}

func checkSpace(dir string) error {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, unix.ENOENT) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return fmt.Errorf("find free space of %s: %w", dir, err)
		}
		if free := s.Bavail * uint64(s.Bsize); free < minFreeBytes {
			return fmt.Errorf("%s has %d MiB free, %d are needed: free some, or choose another --dir", dir, free>>20, minFreeBytes>>20)
		}
		return nil
	}
}
