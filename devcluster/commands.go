package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
)

func rootCommand() *cli.Command {
	return &cli.Command{
		Name:           "devcluster",
		Usage:          "a real Kubernetes cluster of several nodes on this machine",
		ExitErrHandler: func(context.Context, *cli.Command, error) {}, // main prints the error and exits
		Action: func(_ context.Context, cmd *cli.Command) error { // called if no command of that name was found
			if name := cmd.Args().First(); name != "" {
				return fmt.Errorf("no such command: %q; devcluster --help lists them", name)
			}
			return cli.ShowRootCommandHelp(cmd)
		},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: "/var/lib/longhorn-devcluster", Usage: "state directory; a cluster has all it keeps below it"},
			&cli.StringFlag{Name: "name", Value: "longhorn", Usage: "begins the names of network namespaces and control groups"},
			&cli.StringFlag{Name: "cache", Value: "/var/cache/longhorn-devcluster", Usage: "directory for what outlives clusters"},
		},
		Commands: append([]*cli.Command{
			upCommand(), downCommand(), statusCommand(), kubectlCommand(), kubeconfigCommand(), apiServerCommand(),
			loadImageCommand(), imageCommand(), workloadImageCommand(), packagesCommand(),
		}, slices.Concat(nodeCommands(), diskCommands())...),
	}
}

func layout(cmd *cli.Command) (cluster.Layout, error) {
	return cluster.NewLayout(cmd.String("dir"), cmd.String("name"))
}

// withCluster turns a function that changes an existing cluster into an action.
func withCluster(f func(context.Context, *cli.Command, *cluster.Cluster) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		l, err := layout(cmd)
		if err != nil {
			return err
		}
		c, err := cluster.Open(l, os.Stdout)
		if err != nil {
			return err
		}
		defer c.Close()
		return f(ctx, cmd, c)
	}
}

func nodeFlags() []cli.Flag {
	return append(diskFlags(), &cli.IntFlag{Name: "memory", Value: 1024, Usage: "memory of a node with a kernel of its own, in MiB"})
}

func diskFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "disk-size", Value: 8, Usage: "size of a node's data disk, in GiB; it takes only what is written"},
		&cli.StringFlag{Name: "disk-fs", Value: "ext4", Usage: "file system of a node's data disk: ext4 or xfs"},
	}
}

// guestKernel is the environment variable with the directory of the kernel for nodes that get one of their own
// (uml.KernelIn).
const guestKernel = "LONGHORN_GUEST_KERNEL"

func upOptions(cmd *cli.Command) cluster.UpOptions {
	return cluster.UpOptions{
		Nodes:         cmd.Int("nodes"),
		MemoryMiB:     cmd.Int("memory"),
		KernelDir:     os.Getenv(guestKernel),
		ImageTars:     cmd.StringSlice("image-tar"),
		DiskSizeBytes: int64(cmd.Int("disk-size")) << 30,
		DiskFS:        cmd.String("disk-fs"),
	}
}

func upCommand() *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "make the cluster; one that a crash left is cleared first",
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "nodes", Value: 3, Usage: "number of nodes; 0 runs only the API server, for tests"},
			&cli.StringFlag{Name: "kernel", Usage: "uml=N makes N nodes besides, guest-1 and so on, that have a kernel of their own"},
			&cli.StringSliceFlag{Name: "image-tar", Usage: "docker-archive to load into all nodes; may be repeated"},
		}, nodeFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			l, err := layout(cmd)
			if err != nil {
				return err
			}
			o := upOptions(cmd)
			if kernel := cmd.String("kernel"); kernel != "" {
				if o.Guests, err = guests(kernel); err != nil {
					return err
				}
			}
			if err := cluster.Up(ctx, l, o, os.Stdout); err != nil {
				return err
			}
			fmt.Printf("Use it:  devcluster kubectl get nodes   or   export KUBECONFIG=%s\n", l.Kubeconfig())
			return nil
		},
	}
}

// guests parses uml=N.
func guests(kernel string) (int, error) {
	kind, number, ok := strings.Cut(kernel, "=")
	n, err := strconv.Atoi(number)
	if !ok || kind != cluster.KernelUML || err != nil || n < 0 {
		return 0, fmt.Errorf("kernel %q: give %s=N, the number of nodes with a kernel of their own", kernel, cluster.KernelUML)
	}
	return n, nil
}

func downCommand() *cli.Command {
	return &cli.Command{
		Name:  "down",
		Usage: "end the cluster and remove everything that up made",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			l, err := layout(cmd)
			if err != nil {
				return err
			}
			return cluster.Down(ctx, l, os.Stdout)
		},
	}
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show what runs",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			l, err := layout(cmd)
			if err != nil {
				return err
			}
			return cluster.Status(ctx, l, os.Stdout)
		},
	}
}

func kubeconfigCommand() *cli.Command {
	return &cli.Command{
		Name:  "kubeconfig",
		Usage: "print the path of the administrator's kubeconfig",
		Action: func(_ context.Context, cmd *cli.Command) error {
			l, err := layout(cmd)
			if err != nil {
				return err
			}
			fmt.Println(l.Kubeconfig())
			return nil
		},
	}
}

func kubectlCommand() *cli.Command {
	return &cli.Command{
		Name:            "kubectl",
		Usage:           "run kubectl on the cluster",
		SkipFlagParsing: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			l, err := layout(cmd)
			if err != nil {
				return err
			}
			if _, err := os.Stat(l.Kubeconfig()); errors.Is(err, os.ErrNotExist) {
				return cluster.ErrNoCluster
			}
			args := append([]string{l.Binary(), "component", "kubectl"}, cmd.Args().Slice()...)
			env := l.KubectlEnv()
			if program, err := os.Executable(); err == nil { // kubectl finds plugins that were built into the same directory
				env = append(env, "PATH="+filepath.Dir(program)+string(filepath.ListSeparator)+os.Getenv("PATH"))
			}
			return become(args, env)
		},
	}
}

// become replaces this program by another one, so that signals, terminal and exit code belong to that program. Each
// element of env is NAME=VALUE, and replaces a variable of this program: a program that finds a variable twice may use
// either value.
func become(args, env []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("find %s: %w", args[0], err)
	}
	if err := unix.Exec(path, args, withEnv(os.Environ(), env)); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

func packagesCommand() *cli.Command {
	return &cli.Command{
		Name:  "packages",
		Usage: "print the Debian packages that a cluster needs",
		Action: func(context.Context, *cli.Command) error {
			for _, name := range cluster.Packages() {
				fmt.Println(name)
			}
			return nil
		},
	}
}

// withEnv returns an environment in which the variables of changes replace those of the same names.
func withEnv(environment, changes []string) []string {
	name := func(variable string) string { before, _, _ := strings.Cut(variable, "="); return before }
	kept := slices.DeleteFunc(slices.Clone(environment), func(variable string) bool {
		return slices.ContainsFunc(changes, func(change string) bool { return name(change) == name(variable) })
	})
	return append(kept, changes...)
}
