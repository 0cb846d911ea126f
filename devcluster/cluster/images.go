package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/devcluster/image"
)

// LoadImages loads docker-archives into every running node, and stores copies for nodes that are stopped or added
// later.
func (c *Cluster) LoadImages(ctx context.Context, tars []string) error {
	return c.loadImages(ctx, tars)
}

func (c *Cluster) loadImages(ctx context.Context, tars []string) error {
	for _, tar := range tars {
		name, err := image.Repository(tar)
		if err != nil {
			return err
		}
		err = c.progress.step("Loading "+name, func() error { return c.loadImage(ctx, tar, name) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) loadImage(ctx context.Context, tar, name string) error {
	archive := archiveName(name)
	if err := copyFile(tar, c.image(archive)); err != nil {
		return err
	}
	if !slices.Contains(c.state.Images, archive) {
		c.state.Images = append(c.state.Images, archive)
	}
	if err := c.save(); err != nil {
		return err
	}
	return c.sideBySide(ctx, func(ctx context.Context, n *Node) error {
		if !n.Init.IsAlive() {
			return nil
		}
		return c.importImage(ctx, *n, c.image(archive))
	})
}

// archiveName returns the file for an image. A later image of the same name replaces it.
func archiveName(imageName string) string {
	sum := sha256.Sum256([]byte(imageName))
	return hex.EncodeToString(sum[:8]) + ".tar"
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	defer src.Close()
	dst, err := os.Create(to + ".new")
	if err != nil {
		return fmt.Errorf("copy image: %w", err)
	}
	_, err = io.Copy(dst, src)
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("copy image %s: %w", from, err)
	}
	return os.Rename(to+".new", to)
}

// importImage passes the archive to the node's containerd. It may be repeated.
func (c *Cluster) importImage(ctx context.Context, n Node, archive string) error {
	if err := c.awaitContainerd(ctx, n); err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	defer f.Close()
	load := []string{"ctr", "--namespace", "k8s.io", "images", "import", "-"}
	if n.Guest != nil {
		// The image is loaded only once, so it must survive a loss of power.
		load = []string{"sh", "-ec", strings.Join(load, " ") + "; sync -f /var/lib/containerd"}
	}
	args := c.enterArgs(n, load...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load image %s into %s: %w: %s", archive, n.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// enterArgs returns the command line that runs a program on the node. For a node without a kernel of its own, the
// program runs in all its namespaces, as a process that ends with the node. For a guest, the agent runs it.
func (l Layout) enterArgs(n Node, command ...string) []string {
	if n.Guest != nil {
		return append([]string{
			l.Binary(), "component", "on-guest", l.routerNetns(), agentAddress(n), strconv.Itoa(n.Init.PID),
		}, command...)
	}
	return append([]string{
		"nsenter", "--target", strconv.Itoa(n.Init.PID),
		"--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
	}, command...)
}
