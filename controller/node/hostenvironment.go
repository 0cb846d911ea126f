package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// Environment reads this process's /proc, the host's /dev and the network of the host's first process. The kernel
// offers a device in two cases: its driver is registered (/proc/misc), or its device file exists. In the latter case
// the kernel loads the driver when the device is opened.
func (h HostDisks) Environment() Environment {
	var e Environment
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(h.Root))
	e.Err = err
	e.RootMount = mountOf(mounts)

	misc, err := tableColumn("/proc/misc")
	e.Err = errors.Join(e.Err, err)
	for _, device := range NeededDevices {
		_, err := os.Lstat(filepath.Join(h.Root, "dev", device))
		if err == nil || slices.Contains(misc, device) {
			e.Devices = append(e.Devices, device)
		}
	}
	filesystems, err := tableColumn("/proc/filesystems")
	e.Filesystems, e.Err = filesystems, errors.Join(e.Err, err)
	// Only the list of clients of shared volumes depends on the addresses, and the leader reports nodes without them.
	e.Addresses, _ = networkAddresses(filepath.Join(h.Root, "proc/1/ns/net"))
	return e
}

// ipvsLink has all addresses of all Services if kube-proxy uses IPVS. No packet leaves a node with one of these
// addresses.
const ipvsLink = "kube-ipvs0"

// networkAddresses are the addresses of a network that other machines may see, sorted.
func networkAddresses(file string) ([]string, error) {
	var addresses []string
	err := netns.In(file, func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, link := range links {
			if link.Name == ipvsLink {
				continue
			}
			found, err := link.Addrs()
			if err != nil {
				continue // the link has disappeared since
			}
			for _, a := range found {
				if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
					addresses = append(addresses, network.IP.String())
				}
			}
		}
		return nil
	})
	slices.Sort(addresses)
	return slices.Compact(addresses), err
}

// mountOf returns the optional fields of the mount that contains a directory, given the mounts above it. This is the
// longest mount point; of several at that point, it is the last, which is on top.
func mountOf(mounts []*mountinfo.Info) string {
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	if best == nil {
		return ""
	}
	return best.Optional
}

// tableColumn is the last word of each line of a file.
func tableColumn(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the kernel's features: %w", err)
	}
	var words []string
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			words = append(words, fields[len(fields)-1])
		}
	}
	return words, nil
}
