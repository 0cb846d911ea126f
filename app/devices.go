package app

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/longhorn-lep/longhorn-manager/nbd/kernel"
)

// What new block devices are made with.
const (
	devicesFUSE = "fuse"
	devicesNBD  = "nbd"
)

var errNBDNotAsked = errors.New("the instance manager was not started with --devices nbd")

// loadTimeout bounds the loading of a kernel module.
const loadTimeout = 10 * time.Second

// nbdLink reaches the kernel's NBD client, and loads its module if need be, with the node's own modprobe. root is where the node's root
// directory is mounted.
func nbdLink(ctx context.Context, devices, root string) (*kernel.Link, error) {
	switch devices {
	case devicesFUSE:
		return nil, errNBDNotAsked
	case devicesNBD:
	default:
		return nil, fmt.Errorf("--devices %s is not known", devices)
	}
	netNS := filepath.Join(root, "proc/1/ns/net") // the pod has its own, where the kernel's interface is not seen
	link, err := kernel.Open(netNS)
	if err == nil {
		return link, nil
	}
	if loading := loadModule(ctx, root, "nbd"); loading != nil {
		return nil, errors.Join(err, loading)
	}
	return kernel.Open(netNS)
}

func loadModule(ctx context.Context, root, name string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/sbin/modprobe", name)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load module %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
