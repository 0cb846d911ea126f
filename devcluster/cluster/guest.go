package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/agent"
	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/uml"
)

// KernelUML is the only kind of kernel of its own that a node can have.
const KernelUML = "uml"

// Guest is the state of a node with a kernel of its own: user-mode Linux, one process of this machine with helpers.
type Guest struct {
	MemoryMiB int `json:"memoryMiB"`
	// KernelDir is the directory with the kernel (uml.KernelIn).
	KernelDir string `json:"kernelDir,omitempty"`
	// Disks are in the order in which the kernel has them, after the disk that stores the state of containers. The
	// first is the data disk.
	Disks []GuestDisk `json:"disks"`
}

// GuestDisk is a disk of a guest and its behaviour.
type GuestDisk struct {
	Name   string   `json:"name"`
	Path   string   `json:"path"`
	FSType string   `json:"fsType"`
	Bytes  int64    `json:"bytes"`
	State  dm.State `json:"state"`
}

// DataDisk is the name of the disk that is mounted at config.NodeData.
const DataDisk = "data"

func (o UpOptions) guest() *Guest {
	return &Guest{
		MemoryMiB: o.MemoryMiB,
		KernelDir: o.KernelDir,
		Disks:     []GuestDisk{{Name: DataDisk, Path: config.NodeData, FSType: o.DiskFS, Bytes: o.DiskSizeBytes}},
	}
}

func (n Node) kernel() string {
	if n.Guest != nil {
		return KernelUML
	}
	return "shared"
}

// keptOnGuest and freshOnGuest are directories on the state disk; the values are their paths inside the guest.
var (
	keptOnGuest = map[string]string{
		"containerd": "/var/lib/containerd",
		"kubelet":    "/var/lib/kubelet",
		"pods":       "/var/log/pods",
		"containers": "/var/log/containers",
	}
	freshOnGuest = map[string]string{"tmp": "/tmp"}
)

// stateDisk is the name of the disk that stores these directories.
const stateDisk = "state"

// stateBytes is the size of the state disk. It uses only as much space as is written.
const stateBytes = 32 << 30

func (c *Cluster) guestImage(node, disk string) string {
	return filepath.Join(c.node(node), "disks", disk+".img")
}

// prepareGuests creates the files that all guests share, if there are guests.
func (c *Cluster) prepareGuests() error {
	some := false
	for _, n := range c.state.Nodes {
		some = some || n.Guest != nil
	}
	if !some {
		return nil
	}
	if err := uml.CheckPath(c.Dir); err != nil {
		return err
	}
	needed, err := uml.NeedsPreload()
	if _, found := os.Stat(c.preload()); err != nil || !needed || found == nil {
		return err
	}
	return uml.BuildPreload(c.preload())
}

func (c *Cluster) createGuest(n Node, diskSizeBytes int64) error {
	for _, dir := range []string{"conf", "log", "disks", "root"} {
		if err := os.MkdirAll(filepath.Join(c.node(n.Name), dir), 0o755); err != nil {
			return fmt.Errorf("make directory of node %s: %w", n.Name, err)
		}
	}
	if err := c.writeNodeConfig(n); err != nil {
		return err
	}
	if err := disk.Create(c.guestImage(n.Name, stateDisk), "ext4", stateBytes); err != nil {
		return err
	}
	return disk.Create(c.guestImage(n.Name, DataDisk), n.FSType, diskSizeBytes)
}

// startGuest is startNode for a guest.
func (c *Cluster) startGuest(n *Node) error {
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	err = c.update(func() {
		for i := range n.Guest.Disks {
			n.Guest.Disks[i].State = dm.State{}
		}
	})
	if err != nil {
		return err
	}
	if err := netns.Plug(c.routerNetns(), guestLinks(*n)); err != nil {
		return err
	}
	group, err := cgroup.Create(c.cgroup(n.Name), mounts)
	if err != nil {
		return err
	}
	guestFile, specFile := filepath.Join(c.node(n.Name), "machine.json"), filepath.Join(c.node(n.Name), "kernel.json")
	inside, err := c.guestSpec(*n)
	if err != nil {
		return err
	}
	if err := inside.Write(guestFile); err != nil {
		return err
	}
	if err := c.kernelSpec(*n, guestFile).Write(specFile); err != nil {
		return err
	}
	return machine.Start(machine.Options{
		Command:   []string{c.Binary(), "component", "uml"},
		SpecFile:  specFile,
		Netns:     c.routerNetns(),
		OwnMounts: true,
		Cgroup:    group,
		Log:       filepath.Join(c.node(n.Name), "log", "machine.log"),
		Record:    c.recordStart(n),
	})
}

func (c *Cluster) kernelSpec(n Node, guestFile string) uml.Spec {
	s := uml.Spec{
		Program:   uml.KernelIn(n.Guest.KernelDir).Program,
		MemoryMiB: n.Guest.MemoryMiB,
		Taps:      guestLinks(n).Taps(),
		Disks:     []string{c.guestImage(n.Name, stateDisk)},
		Writable:  []string{filepath.Join(c.node(n.Name), "disks"), filepath.Join(c.node(n.Name), "log")},
		Init:      []string{c.Binary(), "component", "guest", guestFile},
	}
	for _, d := range n.Guest.Disks {
		s.Disks = append(s.Disks, c.guestImage(n.Name, d.Name))
	}
	if _, err := os.Stat(c.preload()); err == nil {
		s.Preload = c.preload()
	}
	return s
}

// guestSpec is nodeSpec for a guest, with the same files and programs.
func (c *Cluster) guestSpec(n Node) (machine.Spec, error) {
	machineID, err := c.machineID(n.Name)
	if err != nil {
		return machine.Spec{}, err
	}
	nc := n.config()
	spec := machine.Spec{
		Hostname: n.Name,
		Root: &machine.Root{
			Dir:   filepath.Join(c.node(n.Name), "root"),
			Tmpfs: []string{"/run", "/dev/shm", "/dev/longhorn", "/etc/cni/net.d"},
			Binds: []machine.Bind{
				{From: c.Binary(), To: config.NodeBinary},
				{From: filepath.Join(c.node(n.Name), "conf"), To: config.NodeConf},
			},
			Files: nodeFiles(nc, machineID),
		},
		Guest: &machine.Guest{
			Network:    guestLinks(n),
			ModulesDir: uml.KernelIn(n.Guest.KernelDir).ModulesDir,
			Modules:    append(dm.Modules(), config.GuestModules()...),
			State:      uml.DiskDevice(0),
			Kept:       keptOnGuest,
			Fresh:      freshOnGuest,
			Shared:     []machine.Bind{{From: filepath.Join(c.node(n.Name), "log"), To: config.NodeLogs}},
			Links:      config.GuestLinks(),
		},
		Processes: append(nodeProcesses(nc), machine.Process{
			Name: "agent",
			Argv: []string{config.NodeBinary, "component", "agent"},
			Log:  config.NodeLogs + "/agent.log",
		}),
	}
	for i, d := range n.Guest.Disks {
		spec.Guest.Disks = append(spec.Guest.Disks, machine.GuestDisk{Disk: d.device(i), FSType: d.FSType, To: d.Path})
	}
	return spec, nil
}

// device returns the disk as the guest has it; the kernel's first disk stores the state.
func (d GuestDisk) device(index int) dm.Disk {
	return dm.Disk{Name: d.Name, Device: uml.DiskDevice(index + 1), Bytes: d.Bytes}
}

func guestLinks(n Node) netns.Guest {
	return netns.Guest{
		Port: port(n.Index), IP: config.NodeIP(n.Index), Pods: config.NodePods(n.Index),
		ManagementPort: managementPort(n.Index), ManagementIP: config.ManagementIP(n.Index),
	}
}

// stopGuest is stopNode for a guest. If its process dies, that is a loss of power: data that the guest's kernel had not
// written to its disks is lost.
func (c *Cluster) stopGuest(ctx context.Context, n *Node, how End) error {
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	group := cgroup.Find(c.cgroup(n.Name), mounts)
	if n.Init.IsAlive() && how == EndSync && !n.Frozen {
		// A guest loses its unwritten data if it hangs, or if one of its disks hangs.
		writing, cancel := context.WithTimeout(ctx, syncTimeout)
		_, _ = c.onGuest(writing, *n, "sync")
		cancel()
	}
	if n.Frozen { // so it cannot exit
		if err := group.KillFrozen(); err != nil {
			return fmt.Errorf("stop node %s: %w", n.Name, err)
		}
	}
	if err := n.Init.Kill(ctx); err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	err = errors.Join(c.killForwards(ctx, n.Name), netns.Unplug(c.routerNetns(), guestLinks(*n)), group.Remove(ctx))
	if err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	return c.recordStop(n)
}

// agentAddress returns the address of the guest's agent, in the router's namespace.
func agentAddress(n Node) string {
	return fmt.Sprintf("%s:%d", config.ManagementIP(n.Index), config.AgentPort)
}

// onGuest runs a program on the guest and returns its output.
func (c *Cluster) onGuest(ctx context.Context, n Node, argv ...string) (string, error) {
	return agent.Output(ctx, c.routerNetns(), agentAddress(n), argv...)
}

// dialOnGuest connects to an address as the guest sees it.
func (c *Cluster) dialOnGuest(ctx context.Context, n Node, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return agent.DialInside(ctx, c.routerNetns(), agentAddress(n), network, address)
}
