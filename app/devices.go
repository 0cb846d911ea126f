package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/longhorn-lep/longhorn-manager/nbd/kernel"
	"github.com/longhorn-lep/longhorn-manager/util/kmod"
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
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if loading := kmod.Load(ctx, root, "nbd"); loading != nil {
		return nil, errors.Join(err, loading)
	}
	return kernel.Open(netNS)
}
