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

// The kinds of new block devices.
const (
	devicesAuto = "auto" // nbd if the kernel has it, else fuse
	devicesFUSE = "fuse"
	devicesNBD  = "nbd" // the same as auto
)

// devicesEnv is the variable with the kind of devices that an instance manager creates. The daemon gets it and passes
// it on. A release that does not know the variable, or its value, creates FUSE devices.
const devicesEnv = "LONGHORN_DEVICES"

// loadTimeout bounds the loading of a kernel module.
const loadTimeout = 10 * time.Second

// useDevices sets the kind of devices that the keeper creates. It always opens the kernel's NBD client, because an
// earlier holder of the node may have left devices of that kind. It loads the NBD module only for new devices, with the
// node's own modprobe. root is where the node's root directory is mounted.
func useDevices(ctx context.Context, kind, root string, o *device.Options) {
	netNS := filepath.Join(root, "proc/1/ns/net") // the pod has its own, where the kernel's interface is not visible
	var err error
	o.NBD, err = kernel.Open(netNS)
	if kind == devicesFUSE {
		o.NoNBD = "the configuration requests FUSE devices"
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
