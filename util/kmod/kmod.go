// Package kmod loads modules of the kernel with a node's own modprobe, which has the node's modules and configuration. It knows no module.
package kmod

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Load loads a module; a module that is loaded or built in is no error. root is where the node's root directory is seen.
func Load(ctx context.Context, root, name string) error {
	if err := modprobe(ctx, root, name); err != nil {
		return fmt.Errorf("load module %s: %w", name, err)
	}
	return nil
}

// Find tells whether Load would succeed as far as the node's files say: the module is there. It loads nothing.
func Find(ctx context.Context, root, name string) error {
	if err := modprobe(ctx, root, "--dry-run", name); err != nil {
		return fmt.Errorf("find module %s: %w", name, err)
	}
	return nil
}

func modprobe(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "/usr/sbin/modprobe", args...)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
