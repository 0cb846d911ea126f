package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// AddNode adds a node and waits until it is ready.
func (c *Cluster) AddNode(ctx context.Context, name string, o UpOptions) error {
	begin := time.Now()
	return c.progress.step("Adding "+name, func() error {
		var guest *Guest
		if o.Guests > 0 {
			guest = o.guest()
		}
		if err := preflight(c.Dir, true, guest != nil, o.KernelDir); err != nil {
			return err
		}
		n, err := c.state.addNode(name, o.DiskFS, guest)
		if err != nil {
			return err
		}
		if err := c.save(); err != nil {
			return err
		}
		if err := c.prepareGuests(); err != nil {
			return err
		}
		if err := c.makeNode(ctx, n, o); err != nil {
			return err
		}
		return c.awaitNodes(ctx, begin, name)
	})
}

// RemoveNode stops a node, deletes its Node from the API server, and removes its disk.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	n, err := c.state.node(name)
	if err != nil {
		return err
	}
	return c.progress.step("Removing "+name, func() error {
		if err := c.stopNode(ctx, n, EndDiscard); err != nil {
			return err
		}
		if err := c.deleteNodeObject(ctx, name); err != nil {
			return err
		}
		if err := os.RemoveAll(c.node(name)); err != nil {
			return fmt.Errorf("remove directory of node %s: %w", name, err)
		}
		c.state.removeNode(name)
		return c.save()
	})
}

// StopNode turns off a whole node.
func (c *Cluster) StopNode(ctx context.Context, name string, how End) error {
	n, err := c.state.node(name)
	if err != nil {
		return err
	}
	return c.progress.step("Stopping "+name, func() error { return c.stopNode(ctx, n, how) })
}

// StartNode turns a node on again, with the disk that it had. It waits until the node is ready, unless a command has
// stopped or suspended the API server.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	n, err := c.state.node(name)
	if err != nil {
		return err
	}
	if n.Init.IsAlive() {
		return fmt.Errorf("node %s runs already", name)
	}
	return c.progress.step("Starting "+name, func() error {
		// A node that was not stopped by a command may have left something behind.
		if err := c.stopNode(ctx, n, EndDiscard); err != nil {
			return err
		}
		begin := time.Now()
		if err := c.bringUp(ctx, n); err != nil {
			return err
		}
		if c.state.APIServer != "" {
			return nil
		}
		return c.awaitNodes(ctx, begin, name)
	})
}

// Cut makes the network drop every packet from and to the node, silently.
func (c *Cluster) Cut(name string) error {
	return c.setCut(name, true)
}

// Heal undoes Cut.
func (c *Cluster) Heal(name string) error {
	return c.setCut(name, false)
}

func (c *Cluster) setCut(name string, cut bool) error {
	n, err := c.state.runningNode(name)
	if err != nil {
		return err
	}
	change := netns.Heal
	if cut {
		change = netns.Cut
	}
	if err := change(c.routerNetns(), port(n.Index)); err != nil {
		return err
	}
	n.Cut = cut
	return c.save()
}

// Freeze suspends the whole node.
func (c *Cluster) Freeze(name string) error {
	return c.setFrozen(name, true)
}

// Thaw undoes Freeze.
func (c *Cluster) Thaw(name string) error {
	return c.setFrozen(name, false)
}

func (c *Cluster) setFrozen(name string, frozen bool) error {
	n, err := c.state.runningNode(name)
	if err != nil {
		return err
	}
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	group := cgroup.Find(c.cgroup(name), mounts)
	change := group.Thaw
	if frozen {
		change = group.Freeze
	}
	if err := change(); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	n.Frozen = frozen
	return c.save()
}

// Enter returns the command line that runs a program inside the node, in the environment of a shell on the node. Enter
// takes no lock, because it changes nothing.
func Enter(l Layout, name string, command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, errors.New("no command to run in the node")
	}
	s, err := loadState(l.stateFile())
	if err != nil {
		return nil, err
	}
	n, err := s.runningNode(name)
	if err != nil {
		return nil, err
	}
	return l.enterArgs(*n, command...), nil
}
