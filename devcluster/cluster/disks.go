package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/uml"
)

// diskPatience bounds a change of a disk. The change does not wait for requests of the disk. So if it takes longer, the
// guest hangs or is frozen.
const diskPatience = 30 * time.Second

var errNoGuest = errors.New("its disk cannot be changed and it takes no other; that needs a node with a kernel of its own (add-node --kernel uml)")

// guest is like runningNode, for operations that only guests support.
func (s *State) guest(name string) (*Node, error) {
	n, err := s.runningNode(name)
	if err == nil && n.Guest == nil {
		err = fmt.Errorf("node %s: %w", name, errNoGuest)
	}
	if err == nil && n.Frozen {
		err = fmt.Errorf("node %s is frozen; thaw it first", name)
	}
	return n, err
}

func (g *Guest) disk(name string) (int, error) {
	names := make([]string, 0, len(g.Disks))
	for i, d := range g.Disks {
		if d.Name == name {
			return i, nil
		}
		names = append(names, d.Name)
	}
	return 0, fmt.Errorf("no disk %q; there are %v", name, names)
}

// SetDisk changes the behaviour of a disk of a guest. It can be changed at any time, even if the disk hangs or fails. A
// stopped node's disks are ok when it starts again.
func (c *Cluster) SetDisk(ctx context.Context, node, name string, state dm.State) error {
	n, err := c.state.guest(node)
	if err != nil {
		return err
	}
	i, err := n.Guest.disk(name)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	ctx, cancel := context.WithTimeout(ctx, diskPatience)
	defer cancel()
	d := &n.Guest.Disks[i]
	if _, err := c.onGuest(ctx, *n, d.device(i).SwitchCommand(state)...); err != nil {
		return fmt.Errorf("disk %s of node %s: %w", name, node, err)
	}
	d.State = state
	return c.save()
}

// ShowDisks prints a line for each disk of a guest: name, path, behaviour.
func ShowDisks(l Layout, node string, out io.Writer) error {
	s, err := loadState(l.stateFile())
	if err != nil {
		return err
	}
	n, err := s.node(node)
	if err != nil {
		return err
	}
	if n.Guest == nil {
		return fmt.Errorf("node %s: %w", node, errNoGuest)
	}
	for _, d := range n.Guest.Disks {
		fmt.Fprintln(out, d.Name, d.Path, d.State)
	}
	return nil
}

// AddDisk adds a disk to a running guest, with a file system mounted at path.
func (c *Cluster) AddDisk(ctx context.Context, node, name, path string, o UpOptions) error {
	n, err := c.state.guest(node)
	if err != nil {
		return err
	}
	if err := n.Guest.checkNewDisk(name, path); err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	d := GuestDisk{Name: name, Path: filepath.Clean(path), FSType: o.DiskFS, Bytes: o.DiskSizeBytes}
	index := len(n.Guest.Disks)
	return c.progress.step("Adding disk "+name+" to "+node, func() error {
		image := c.guestImage(node, name)
		if err := disk.Create(image, d.FSType, d.Bytes); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, diskPatience)
		defer cancel()
		err := netns.Do(c.routerNetns(), func() error {
			return uml.PlugDisk(ctx, uml.ConsolePath(n.Init.PID), index+1, image)
		})
		if err != nil {
			return fmt.Errorf("plug disk %s into node %s: %w", name, node, err)
		}
		// From now on the kernel has the disk, and its index is in use.
		n.Guest.Disks = append(n.Guest.Disks, d)
		if err := c.save(); err != nil {
			return err
		}
		for _, command := range [][]string{
			d.device(index).CreateCommand(),
			{"mkdir", "-p", d.Path},
			{"mount", "-t", d.FSType, d.device(index).Path(), d.Path},
		} {
			if _, err := c.onGuest(ctx, *n, command...); err != nil {
				return fmt.Errorf("mount disk %s on node %s: %w", name, node, err)
			}
		}
		return nil
	})
}

func (g *Guest) checkNewDisk(name, path string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, err := dm.ParseState([]string{name}); err == nil || name == string(dm.Slow) {
		return fmt.Errorf("disk %q: that is the name of a behaviour", name)
	}
	if _, err := g.disk(name); err == nil || name == stateDisk {
		return fmt.Errorf("there is a disk %s already", name)
	}
	if !filepath.IsAbs(path) || strings.ContainsAny(path, " \t\n") {
		return fmt.Errorf("path %q: give an absolute one without spaces", path)
	}
	if len(g.Disks)+1 >= uml.MaxDisks {
		return fmt.Errorf("a kernel takes no more than %d disks", uml.MaxDisks)
	}
	return nil
}
