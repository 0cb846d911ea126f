// Package cluster gives tests a real Kubernetes cluster. It runs the devcluster program with a separate directory and
// name, so that it does not disturb a demo on the same machine. It wraps kubectl, commands on nodes, waits, and a dump
// of the cluster's last state and logs.
//
// It must not know the subject of a test. It knows nothing of the storage manager except the names of the installed
// objects.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Options define the cluster to start.
type Options struct {
	// Root is the root of the repository, with bin/ and dist/ built.
	Root string
	// Dir and Name belong to this cluster alone.
	Dir, Name string
	// Nodes is the number of nodes that share this machine's kernel. If Guests is zero too, the API server runs without
	// nodes.
	Nodes int
	// Guests is the number of additional nodes that have their own kernel.
	Guests int
	// Images are docker-archives for all nodes.
	Images []string
	// Reuse uses a running cluster as it is, if there is one.
	Reuse bool
	// Out receives the output of the programs.
	Out io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	o        Options
	Kube     kubernetes.Interface
	Longhorn versioned.Interface
}

// Up starts a cluster. The caller must call Down, even if the cluster fails later.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{o: o}
	if !o.Reuse || !c.answers(ctx) {
		release, err := turn()
		if err != nil {
			return nil, err
		}
		defer release()
		args := []string{"up", "--nodes", fmt.Sprint(o.Nodes)}
		if o.Guests > 0 {
			args = append(args, "--kernel", fmt.Sprintf("uml=%d", o.Guests))
		}
		for _, image := range o.Images {
			args = append(args, "--image-tar", image)
		}
		cmd := c.command(ctx, args...)
		cmd.Stdout, cmd.Stderr = o.Out, o.Out
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
		}
	}
	path, err := c.run(ctx, "", "kubeconfig")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of cluster %s: %w", o.Name, err)
	}
	config.QPS, config.Burst = 50, 100
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client of cluster %s: %w", o.Name, err)
	}
	if c.Longhorn, err = versioned.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client of cluster %s: %w", o.Name, err)
	}
	return c, nil
}

// turn waits until no other process and no other test of this process starts a cluster on the machine. When many
// clusters start at the same time on few cores, their components miss their deadlines.
func turn() (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "longhorn-e2e-start.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take turns with other starts of clusters: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX) // the kernel releases it when the process exits
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for other starts of clusters: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Root is the root of the repository.
func (c *Cluster) Root() string { return c.o.Root }

// Nodes returns the names of the nodes that the cluster was started with.
func (c *Cluster) Nodes() []string {
	var names []string
	for i := range c.o.Nodes {
		names = append(names, fmt.Sprintf("node-%d", i+1))
	}
	for i := range c.o.Guests {
		names = append(names, fmt.Sprintf("guest-%d", i+1))
	}
	return names
}

// Down stops the cluster and removes all of it.
func (c *Cluster) Down(ctx context.Context) error {
	cmd := c.command(ctx, "down")
	cmd.Stdout, cmd.Stderr = c.o.Out, c.o.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("end cluster %s: %w", c.o.Name, err)
	}
	return nil
}

// Install applies deploy/longhorn.yaml and waits until the whole installation is ready.
func (c *Cluster) Install(ctx context.Context) error {
	return c.InstallFrom(ctx, "deploy/longhorn.yaml")
}

// InstallFrom is Install with another manifest, a path in the repository.
func (c *Cluster) InstallFrom(ctx context.Context, manifest string) error {
	if _, err := c.Kubectl(ctx, "apply", "-f", filepath.Join(c.o.Root, manifest)); err != nil {
		return err
	}
	return c.WaitInstalled(ctx)
}

// WaitInstalled waits until the whole installation is ready on every node.
func (c *Cluster) WaitInstalled(ctx context.Context) error {
	for _, object := range []string{"daemonset/longhorn-manager", "daemonset/longhorn-csi-plugin", "deployment/longhorn-csi-controller"} {
		if _, err := c.Kubectl(ctx, "-n", types.Namespace, "rollout", "status", object, "--timeout=180s"); err != nil {
			return err
		}
	}
	var nodes []string
	for _, node := range c.Nodes() {
		nodes = append(nodes, "nodes.longhorn.io/"+node)
	}
	for _, args := range [][]string{
		append([]string{"wait", "--for=create", "--timeout=60s"}, nodes...),
		append([]string{"wait", "--for=condition=Ready", "--timeout=180s"}, nodes...),
		{"wait", "--for=jsonpath={.status.currentState}=running", "--timeout=120s", "instancemanagers.longhorn.io", "--all"},
	} {
		if _, err := c.Kubectl(ctx, append([]string{"-n", types.Namespace}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// Kubectl returns the output of kubectl, without the newline at the end. An error contains the arguments and the output
// on stderr. Commands that wait get slack times their --timeout.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", append([]string{"kubectl"}, withSlack(args)...)...)
}

// Apply applies a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	_, err := c.run(ctx, manifest, "kubectl", "apply", "-f", "-")
	return err
}

// Helm runs Helm in the version that the repository pins, and returns its output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	path, err := c.run(ctx, "", "kubeconfig")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.o.Root, "scripts/helm.sh"), append([]string{"--kubeconfig", path}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// OnNode runs a command in a node's namespaces and returns its output.
func (c *Cluster) OnNode(ctx context.Context, node string, command ...string) (string, error) {
	return c.run(ctx, "", append([]string{"exec", node, "--"}, command...)...)
}

// CopyToNode copies a file of this machine to a node, with its mode.
func (c *Cluster) CopyToNode(ctx context.Context, node, file, target string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", node, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("copy to %s: %w", node, err)
	}
	_, err = c.run(ctx, string(content), "exec", node, "--", "install", "-m", fmt.Sprintf("%o", info.Mode().Perm()), "/dev/stdin", target)
	return err
}

// InRouter runs a program of this machine in the network namespace that all packets between nodes pass through.
func (c *Cluster) InRouter(ctx context.Context, command ...string) error {
	out, err := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", c.o.Name + "-net"}, command...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s in the network between nodes: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Devcluster runs the devcluster program with another command, such as cut or stop-node.
func (c *Cluster) Devcluster(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", args...)
}

func (c *Cluster) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := c.Kubectl(ctx, "get", "--raw", "/readyz")
	return err == nil
}

func (c *Cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--dir", c.o.Dir, "--name", c.o.Name}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(c.o.Root, "bin/devcluster"), args...)
	// After an interrupt, the program can clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

func (c *Cluster) run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.Cause(ctx))
		}
		return "", fmt.Errorf("devcluster %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// At is a handle on a cluster that may be only partly started. It is good for Down alone.
func At(o Options) *Cluster { return &Cluster{o: o} }
