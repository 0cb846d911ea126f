// Package kmod loads kernel modules with a node's own modprobe, which has the node's modules and configuration. It
// knows no particular module.
package kmod

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Load loads a module. It succeeds if the module is loaded or built in. root is the node's root directory, as this
// process sees it.
func Load(ctx context.Context, root, name string) error {
	if err := modprobe(ctx, root, name); err != nil {
		return fmt.Errorf("load kernel module %s: %w", name, err)
	}
	return nil
}

// Find checks whether Load would succeed according to the node's files: the module exists. It loads nothing.
func Find(ctx context.Context, root, name string) error {
	if err := modprobe(ctx, root, "--dry-run", name); err != nil {
		return fmt.Errorf("find kernel module %s: %w", name, err)
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
