package uml

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
)

// Run executes the guest's kernel in place of this process. The process must be the first process of a PID namespace.
// Then killing it also kills the processes that the kernel creates for itself, which would otherwise keep the disks
// locked. The process must also have a mount namespace of its own.
func Run(specFile string) error {
	if err := machine.AwaitGo(); err != nil {
		return err
	}
	s, err := readSpec(specFile)
	if err != nil {
		return err
	}
	if err := confine(s); err != nil {
		return err
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + scratch, "TMPDIR=" + scratch}
	if s.Preload != "" {
		env = append(env, "LD_PRELOAD="+s.Preload)
	}
	if err := unix.Exec(s.Program, s.args(), env); err != nil {
		return fmt.Errorf("run %s: %w", s.Program, err)
	}
	return nil
}

// confine makes every mount read-only except the guest's own mounts. Devices can still be opened for writing: the tap
// device needs that. hostfs does not open devices.
func confine(s Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range s.Writable {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", dir, err)
		}
	}
	if err := unix.MountSetattr(-1, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make mounts read-only: %w", err)
	}
	for _, dir := range s.Writable {
		if err := unix.MountSetattr(-1, dir, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("make %s writable: %w", dir, err)
		}
	}
	// The kernel's memory file is larger than the memory by a gap of up to a gigabyte, which is never written.
	size := fmt.Sprintf("mode=700,size=%dm", s.MemoryMiB+1024)
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, size); err != nil {
		return fmt.Errorf("mount %s: %w", scratch, err)
	}
	return nil
}
