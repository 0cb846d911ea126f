package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/image"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// Cluster is one cluster during one command. Create it with Open.
type Cluster struct {
	Layout
	state    *State
	progress *Progress
	unlock   func()

	mu sync.Mutex // guards state and its file while nodes start in parallel
}

// UpOptions are the options of Up.
type UpOptions struct {
	// Nodes to create, named node-1 and so on. None: only etcd, the API server and the controller manager run.
	Nodes int
	// Guests are nodes with a kernel of their own, created in addition to these, named guest-1 and so on. Each has
	// MemoryMiB of memory and the kernel of KernelDir (uml.KernelIn).
	Guests    int
	MemoryMiB int
	KernelDir string
	// ImageTars are loaded into every node.
	ImageTars []string
	// DiskSizeBytes and DiskFS describe the data disk of each node.
	DiskSizeBytes int64
	DiskFS        string
}

// Open locks an existing cluster for a command that changes it. Close must be called. Open fails with ErrNoCluster if
// the cluster does not exist.
func Open(l Layout, out io.Writer) (*Cluster, error) {
	if _, err := os.Stat(l.stateFile()); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoCluster
	}
	unlock, err := l.lock()
	if err != nil {
		return nil, err
	}
	s, err := loadState(l.stateFile())
	if err != nil {
		unlock()
		return nil, err
	}
	return &Cluster{Layout: l, state: s, progress: NewProgress(out), unlock: unlock}, nil
}

// Close unlocks the cluster for other commands.
func (c *Cluster) Close() { c.unlock() }

func (c *Cluster) save() error { return c.state.save(c.stateFile()) }

// update changes the state with f and saves it.
func (c *Cluster) update(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	return c.save()
}

// Up creates a cluster. If the cluster runs, Up leaves it unchanged, except that it loads the images. If a crash left
// parts of a cluster, Up clears these first. After a failure, the created parts stay for inspection; Down or the next
// Up clears them.
func Up(ctx context.Context, l Layout, o UpOptions, out io.Writer) error {
	if all := o.Nodes + o.Guests; o.Nodes < 0 || o.Guests < 0 || all > config.MaxNodes {
		return fmt.Errorf("number of nodes %d: give 0 to %d", all, config.MaxNodes)
	}
	if err := preflight(l.Dir, o.Nodes+o.Guests > 0, o.Guests > 0, o.KernelDir); err != nil {
		return err
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	c := &Cluster{Layout: l, state: &State{}, progress: NewProgress(out)}
	found, err := loadState(l.stateFile())
	switch {
	case err == nil:
		c.state = found
		if c.isHealthy() {
			c.progress.note("The cluster is up already, with %d nodes.", len(c.state.Nodes))
			return c.loadImages(ctx, o.ImageTars)
		}
		if err := c.progress.step("Clearing what an earlier cluster left", func() error { return c.clear(ctx) }); err != nil {
			return err
		}
		c.state = &State{}
	case !errors.Is(err, ErrNoCluster):
		return err
	}
	if err := c.up(ctx, o); err != nil {
		return err
	}
	c.progress.done("The cluster is up.")
	return nil
}

func (c *Cluster) up(ctx context.Context, o UpOptions) error {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	defer func() { _ = listener.Close() }()
	c.state.APIPort = listener.Addr().(*net.TCPAddr).Port
	if err := c.save(); err != nil {
		return err
	}
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"Preparing programs and certificates", c.prepare},
		{"Making the network", c.makeNetwork},
		{"Starting the control plane", func() error { return c.startPlane(listener, o.Nodes+o.Guests > 0) }},
		{"Waiting for the API server", func() error { return c.awaitAPI(ctx) }},
	} {
		if err := c.progress.step(s.what, s.do); err != nil {
			return err
		}
	}
	if o.Nodes+o.Guests > 0 {
		if err := c.upNodes(ctx, o); err != nil {
			return err
		}
	}
	c.state.Complete = true
	return c.save()
}

func (c *Cluster) prepare() error {
	for _, dir := range []string{"bin", "log", "images", "nodes"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if err := copySelf(c.Binary()); err != nil {
		return err
	}
	if err := c.raiseSettings(); err != nil {
		return err
	}
	return c.makeCertificates()
}

// copySelf copies the program, so that later builds do not affect the cluster.
func copySelf(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open own program: %w", err)
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copy own program: %w", err)
	}
	_, err = io.Copy(f, from)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("copy own program: %w", err)
	}
	return nil
}

func (c *Cluster) upNodes(ctx context.Context, o UpOptions) error {
	begin := time.Now()
	err := c.progress.step("Creating the cluster's own objects", func() error {
		if err := image.BuildPause(c.image("pause.tar")); err != nil {
			return err
		}
		c.state.Images = append(c.state.Images, "pause.tar")
		return c.createObjects(ctx)
	})
	if err != nil {
		return err
	}
	var names []string
	for i := 1; i <= o.Nodes; i++ {
		names = append(names, fmt.Sprintf("node-%d", i))
		if _, err := c.state.addNode(names[len(names)-1], o.DiskFS, nil); err != nil {
			return err
		}
	}
	for i := 1; i <= o.Guests; i++ {
		names = append(names, fmt.Sprintf("guest-%d", i))
		if _, err := c.state.addNode(names[len(names)-1], o.DiskFS, o.guest()); err != nil {
			return err
		}
	}
	if err := c.save(); err != nil {
		return err
	}
	err = c.progress.step(fmt.Sprintf("Starting %d nodes", len(names)), func() error { return c.makeNodes(ctx, o) })
	if err != nil {
		return err
	}
	err = c.progress.step("Waiting for the nodes to be ready", func() error { return c.awaitNodes(ctx, begin, names...) })
	if err != nil {
		return err
	}
	return c.loadImages(ctx, o.ImageTars)
}

// makeNodes creates all nodes of the state in parallel.
func (c *Cluster) makeNodes(ctx context.Context, o UpOptions) error {
	if err := c.prepareGuests(); err != nil {
		return err
	}
	return c.sideBySide(ctx, func(ctx context.Context, n *Node) error { return c.makeNode(ctx, n, o) })
}

// sideBySide calls f for all nodes. It limits the number of concurrent calls: a machine with few processors is not
// faster with more.
func (c *Cluster) sideBySide(ctx context.Context, f func(context.Context, *Node) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * runtime.NumCPU())
	for i := range c.state.Nodes {
		group.Go(func() error { return f(ctx, &c.state.Nodes[i]) })
	}
	return group.Wait()
}

// makeNode creates and starts a node of the state. It does not wait until the node is ready.
func (c *Cluster) makeNode(ctx context.Context, n *Node, o UpOptions) error {
	if err := c.createNode(*n, o.DiskSizeBytes); err != nil {
		return err
	}
	return c.bringUp(ctx, n)
}

// bringUp starts a node that is off, with all images that were loaded before.
func (c *Cluster) bringUp(ctx context.Context, n *Node) error {
	start := c.startNode
	if n.Guest != nil {
		start = c.startGuest
	}
	if err := start(n); err != nil {
		return err
	}
	for _, archive := range c.state.Images {
		if err := c.importImage(ctx, *n, c.image(archive)); err != nil {
			return err
		}
	}
	return nil
}

// Down stops and removes all that Up created, and nothing else. It is not an error if the cluster does not exist.
func Down(ctx context.Context, l Layout, out io.Writer) error {
	c, err := Open(l, out)
	if errors.Is(err, ErrNoCluster) {
		fmt.Fprintln(out, "There is no cluster.")
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.progress.step("Clearing the cluster", func() error { return c.clear(ctx) }); err != nil {
		return err
	}
	// Anything else in the directory does not belong to the cluster, and prevents its removal.
	_ = os.Remove(c.Dir)
	return nil
}

// inNode runs f on a thread in the node's network namespace.
func (c *Cluster) inNode(name string, f func() error) error {
	return netns.Do(c.nodeNetns(name), f)
}
