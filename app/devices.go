package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
	"github.com/longhorn-lep/longhorn-manager/util/kmod"
)

// What new block devices are made with.
const (
	devicesAuto = "auto" // nbd where the kernel has it, else fuse
	devicesFUSE = "fuse"
	devicesNBD  = "nbd" // the same as auto
)

// devicesEnv is how the daemon is told what an instance manager makes devices with, and tells it. A release that does not know it, or a
// value of it, makes FUSE devices.
const devicesEnv = "LONGHORN_DEVICES"

// loadTimeout bounds the loading of a kernel module.
const loadTimeout = 10 * time.Second

// useDevices says with what the keeper makes devices. It reaches the kernel's NBD client whatever is asked for, because one of the node's
// holders may have left devices of that kind; its module is loaded for new devices alone, with the node's own modprobe. root is where the
// node's root directory is mounted.
func useDevices(ctx context.Context, kind, root string, o *device.Options) {
	netNS := filepath.Join(root, "proc/1/ns/net") // the pod has its own, where the kernel's interface is not seen
	var err error
	o.NBD, err = kernel.Open(netNS)
	if kind == devicesFUSE {
		o.NoNBD = "FUSE devices are asked for"
		return
	}
	if err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if loading := kmod.Load(ctx, root, "nbd"); loading != nil {
		err = errors.Join(err, loading)
	} else {
		o.NBD, err = kernel.Open(netNS)
	}
	if err != nil {
		o.NBD, o.NoNBD = nil, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
}

// isDevices checks a flag.
func isDevices(kind string) error {
	if !slices.Contains([]string{"", devicesAuto, devicesFUSE, devicesNBD}, kind) {
		return fmt.Errorf("--devices: %q must be auto or fuse", kind)
	}
	return nil
}
