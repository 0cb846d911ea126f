package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/image"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/pki"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// keptDirs are the directories that a node keeps when it is off: path below its directory, path inside the node. All
// other files of a node are then lost.
var keptDirs = map[string]string{
	"containerd": "/var/lib/containerd",
	"kubelet":    "/var/lib/kubelet",
	"pods":       "/var/log/pods",
	"containers": "/var/log/containers",
	"log":        config.NodeLogs,
	"conf":       config.NodeConf,
}

// createNode creates a node's directory, its certificates and its disk.
func (c *Cluster) createNode(n Node, diskSizeBytes int64) error {
	if n.Guest != nil {
		return c.createGuest(n, diskSizeBytes)
	}
	for dir := range keptDirs {
		if err := os.MkdirAll(filepath.Join(c.node(n.Name), dir), 0o755); err != nil {
			return fmt.Errorf("make directory of node %s: %w", n.Name, err)
		}
	}
	if err := c.writeNodeConfig(n); err != nil {
		return err
	}
	return disk.Create(c.diskImage(n.Name), n.FSType, diskSizeBytes)
}

func (c *Cluster) diskImage(name string) string {
	return filepath.Join(c.node(name), "disk.img")
}

func (c *Cluster) writeNodeConfig(n Node) error {
	authority, err := c.authority()
	if err != nil {
		return err
	}
	serving, err := authority.Issue(pki.Request{CommonName: "system:node:" + n.Name, Hosts: []string{n.Name}, IPs: []net.IP{config.NodeIP(n.Index)}})
	if err != nil {
		return err
	}
	client, err := authority.Issue(pki.Request{CommonName: "system:node:" + n.Name, Groups: []string{"system:nodes"}})
	if err != nil {
		return err
	}
	proxyCert, err := os.ReadFile(c.pki("kube-proxy.crt"))
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	proxyKey, err := os.ReadFile(c.pki("kube-proxy.key"))
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	inside := func(name string) string { return config.NodeConf + "/" + name }
	kubeconfig := func(identity string) string {
		return config.Kubeconfig(config.APIURL(), inside("ca.crt"), inside(identity+".crt"), inside(identity+".key"))
	}
	nc := n.config()
	for file, content := range map[string]string{
		"ca.crt":                string(authority.Cert),
		"kubelet-server.crt":    string(serving.Cert),
		"kubelet-server.key":    string(serving.Key),
		"kubelet.crt":           string(client.Cert),
		"kubelet.key":           string(client.Key),
		"kubelet.kubeconfig":    kubeconfig("kubelet"),
		"kube-proxy.crt":        string(proxyCert),
		"kube-proxy.key":        string(proxyKey),
		"kube-proxy.kubeconfig": kubeconfig("kube-proxy"),
		"kubelet.yaml":          nc.Kubelet(),
		"containerd.toml":       nc.Containerd(image.PauseName),
	} {
		if err := writeFile(filepath.Join(c.node(n.Name), "conf", file), content); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts a node from the content of its directory. The state must already have the node. After a failure,
// stopNode clears the parts that were started.
func (c *Cluster) startNode(n *Node) error {
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if err := netns.Create(c.nodeNetns(n.Name)); err != nil {
		return err
	}
	err = netns.Join(c.routerNetns(), netns.Member{
		Name: c.nodeNetns(n.Name), Port: port(n.Index), IP: config.NodeIP(n.Index), Pods: config.NodePods(n.Index),
	})
	if err != nil {
		return err
	}
	group, err := cgroup.Create(c.cgroup(n.Name), mounts)
	if err != nil {
		return err
	}
	spec, err := c.nodeSpec(*n)
	if err != nil {
		return err
	}
	specFile := filepath.Join(c.node(n.Name), "machine.json")
	if err := spec.Write(specFile); err != nil {
		return err
	}
	return machine.Start(machine.Options{
		Command:   insideCommand(c.Binary()),
		SpecFile:  specFile,
		Netns:     c.nodeNetns(n.Name),
		OwnMounts: true,
		Cgroup:    group,
		Log:       filepath.Join(c.node(n.Name), "log", "machine.log"),
		Record:    c.recordStart(n),
	})
}

// recordStart returns a function that records that the node runs.
func (c *Cluster) recordStart(n *Node) func(proc.Record) error {
	return func(r proc.Record) error {
		return c.update(func() { n.Init, n.Stopped, n.Cut, n.Frozen = r, false, false, false })
	}
}

func (c *Cluster) nodeSpec(n Node) (machine.Spec, error) {
	machineID, err := c.machineID(n.Name)
	if err != nil {
		return machine.Spec{}, err
	}
	bootID, err := randomUUID()
	if err != nil {
		return machine.Spec{}, err
	}
	nc := n.config()
	root := &machine.Root{
		Dir:    filepath.Join(c.node(n.Name), "root"),
		Tmpfs:  []string{"/run", "/tmp", "/dev/shm", "/dev/longhorn", "/etc/cni/net.d"},
		Binds:  []machine.Bind{{From: c.Binary(), To: config.NodeBinary}},
		Files:  nodeFiles(nc, machineID),
		Covers: config.Tunables(),
		Disks:  []machine.Disk{{Image: c.diskImage(n.Name), FSType: n.FSType, To: config.NodeData}},
	}
	// By a boot id of its own, the kubelet and other programs notice that the node was off.
	root.Covers["/proc/sys/kernel/random/boot_id"] = bootID + "\n"
	for dir, inside := range keptDirs {
		root.Binds = append(root.Binds, machine.Bind{From: filepath.Join(c.node(n.Name), dir), To: inside})
	}
	return machine.Spec{Hostname: n.Name, Root: root, Processes: nodeProcesses(nc)}, nil
}

// nodeFiles returns the files that are written again at each start.
func nodeFiles(nc config.Node, machineID string) map[string]string {
	return map[string]string{
		"/etc/hostname":                         nc.Name + "\n",
		"/etc/machine-id":                       machineID + "\n",
		"/etc/resolv.conf":                      nc.Resolver(),
		"/etc/hosts":                            nc.Hosts(),
		"/etc/cni/net.d/10-devcluster.conflist": nc.PodNetwork(),
	}
}

func nodeProcesses(nc config.Node) []machine.Process {
	component := func(name, after string, args []string) machine.Process {
		return machine.Process{
			Name:  name,
			Argv:  append([]string{config.NodeBinary, "component", name}, args...),
			Log:   config.NodeLogs + "/" + name + ".log",
			After: after,
		}
	}
	return []machine.Process{
		{
			Name: "containerd",
			Argv: []string{"/usr/bin/containerd", "--config", config.NodeConf + "/containerd.toml"},
			Log:  config.NodeLogs + "/containerd.log",
		},
		component("kubelet", config.ContainerdSocket, nc.KubeletArgs()),
		component("kube-proxy", "", nc.ProxyArgs()),
	}
}

// machineID returns the node's machine id. It is generated once in the life of a node.
func (c *Cluster) machineID(name string) (string, error) {
	file := filepath.Join(c.node(name), "machine-id")
	if raw, err := os.ReadFile(file); err == nil {
		return string(raw), nil
	}
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("draw machine id: %w", err)
	}
	id := hex.EncodeToString(raw)
	return id, writeFile(file, id)
}

func randomUUID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return "", fmt.Errorf("draw boot id: %w", err)
	}
	return string(raw[:36]), nil
}

// inside returns a path of the node as the real machine sees it. It is valid while the node runs.
func inside(n Node, path string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.Init.PID, path)
}

func (c *Cluster) dialContainerd(ctx context.Context, n Node) (net.Conn, error) {
	if n.Guest != nil {
		return c.dialOnGuest(ctx, n, "unix", config.ContainerdSocket)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", inside(n, config.ContainerdSocket))
}

// awaitContainerd waits until images can be loaded.
func (c *Cluster) awaitContainerd(ctx context.Context, n Node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := proc.WaitFor(ctx, 100*time.Millisecond, "containerd of "+n.Name, func() error {
		if !n.Init.IsAlive() {
			return fmt.Errorf("node %s ended", n.Name)
		}
		conn, err := c.dialContainerd(ctx, n)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("%w; see %s", err, filepath.Join(c.node(n.Name), "log"))
	}
	return nil
}
