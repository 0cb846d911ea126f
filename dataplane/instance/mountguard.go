package instance

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// mountGuard removes file systems on devices that this process serves from the mount namespace of this process. The
// node's mounts propagate into the pod, including mounts of volumes. Suppose the process is killed while it holds the
// last such mount. Then the kernel writes the file system out while it ends the process. This needs a device that the
// same process serves, so the process would never end, and the node could not shut down.
//
// The guard detaches only copies. A mount that propagated here is a copy: a slave. A mount that was created here stays.
// So does a mount with a shared parent, because detaching it would remove it from the node too.
type mountGuard struct {
	deviceDir string
	log       *logrus.Entry
}

// look is called when mounts have changed.
func (g *mountGuard) look() {
	if err := g.sweep(); err != nil {
		g.log.WithError(err).Warn("Cannot find the mounts of served devices")
	}
}

// sweep detaches the current copies.
func (g *mountGuard) sweep() error {
	served, err := g.served()
	if err != nil || len(served) == 0 {
		return err
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range copiesOf(served, mounts) {
		log := g.log.WithField(logfields.Path, m.Mountpoint)
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			log.WithError(err).Warn("Cannot detach the copy of a volume's mount from this process")
			continue
		}
		log.Debug("Detached the copy of a volume's mount from this process")
	}
	return nil
}

// blockNumber is the number of a block device.
type blockNumber struct{ major, minor int }

// served lists the devices that are currently offered.
func (g *mountGuard) served() (map[blockNumber]bool, error) {
	numbers, err := servedDevices(g.deviceDir)
	devices := map[blockNumber]bool{}
	for n := range numbers {
		devices[blockNumber{int(unix.Major(n)), int(unix.Minor(n))}] = true
	}
	return devices, err
}

// servedDevices returns the numbers (dev_t) of the block devices that have a node in a directory.
func servedDevices(dir string) (map[uint64]bool, error) {
	nodes, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	devices := map[uint64]bool{}
	for _, node := range nodes {
		var s unix.Stat_t
		if unix.Stat(node, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFBLK {
			devices[s.Rdev] = true
		}
	}
	return devices, nil
}

// copiesOf selects the mounts of these devices that can be detached only here. The mounts have the order of
// /proc/self/mountinfo; in the result, the topmost mount comes first.
func copiesOf(devices map[blockNumber]bool, mounts []*mountinfo.Info) []*mountinfo.Info {
	shared := map[int]bool{}
	for _, m := range mounts {
		shared[m.ID] = strings.Contains(m.Optional, "shared:")
	}
	var copies []*mountinfo.Info
	for i := len(mounts) - 1; i >= 0; i-- {
		m := mounts[i]
		isCopy := strings.Contains(m.Optional, "master:")
		if devices[blockNumber{m.Major, m.Minor}] && isCopy && !shared[m.Parent] {
			copies = append(copies, m)
		}
	}
	return copies
}
