package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
)

func nodeCommands() []*cli.Command {
	stop := nodeCommand("stop-node", "turn a node off as a whole", func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster, name string) error {
		how := cluster.EndSync
		if cmd.Bool("power-loss") {
			how = cluster.EndPowerLoss
		}
		return c.StopNode(ctx, name, how)
	})
	stop.Flags = []cli.Flag{&cli.BoolFlag{Name: "power-loss", Usage: "lose what its file systems had not written"}}
	add := nodeCommand("add-node", "add a node", func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster, name string) error {
		o := upOptions(cmd)
		switch kernel := cmd.String("kernel"); kernel {
		case "":
		case cluster.KernelUML:
			o.Guests = 1
		default:
			return fmt.Errorf("kernel %q: give %s, or nothing for this machine's", kernel, cluster.KernelUML)
		}
		return c.AddNode(ctx, name, o)
	})
	add.Flags = append(nodeFlags(), &cli.StringFlag{Name: "kernel", Usage: "uml gives it a kernel of its own"})
	return []*cli.Command{
		shellCommand(), execCommand(), forwardCommand(), add, stop,
		nodeCommand("remove-node", "end a node and remove its disk", func(ctx context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.RemoveNode(ctx, name)
		}),
		nodeCommand("start-node", "turn a node on again, with the disk it had", func(ctx context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.StartNode(ctx, name)
		}),
		nodeCommand("cut", "silently drop all packets from and to a node", func(_ context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.Cut(name)
		}),
		nodeCommand("freeze", "have a whole node stand still", func(_ context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.Freeze(name)
		}),
		nodeCommand("thaw", "undo freeze", func(_ context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.Thaw(name)
		}),
		nodeCommand("heal", "undo cut", func(_ context.Context, _ *cli.Command, c *cluster.Cluster, name string) error {
			return c.Heal(name)
		}),
	}
}

// nodeCommand returns a command with a node as its only argument.
func nodeCommand(name, usage string, f func(context.Context, *cli.Command, *cluster.Cluster, string) error) *cli.Command {
	return &cli.Command{
		Name:      name,
		Usage:     usage,
		ArgsUsage: "NODE",
		Action: withCluster(func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster) error {
			if cmd.Args().Len() != 1 {
				return fmt.Errorf("%s takes the name of one node, got %d arguments", name, cmd.Args().Len())
			}
			return f(ctx, cmd, c, cmd.Args().First())
		}),
	}
}

func shellCommand() *cli.Command {
	return &cli.Command{
		Name:      "shell",
		Usage:     "open a shell on a node",
		ArgsUsage: "NODE",
		Action: func(_ context.Context, cmd *cli.Command) error {
			return enter(cmd, cmd.Args().First(), []string{"/bin/bash", "--norc"})
		},
	}
}

func execCommand() *cli.Command {
	return &cli.Command{
		Name:            "exec",
		Usage:           "run a command on a node; its exit code is passed on",
		ArgsUsage:       "NODE -- COMMAND...",
		SkipFlagParsing: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			args := cmd.Args().Slice()
			if len(args) < 2 {
				return errors.New("exec takes a node and a command: exec NODE -- COMMAND [ARGS]")
			}
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			return enter(cmd, args[0], command)
		},
	}
}

func enter(cmd *cli.Command, node string, command []string) error {
	l, err := layout(cmd)
	if err != nil {
		return err
	}
	args, err := cluster.Enter(l, node, command)
	if err != nil {
		return err
	}
	return become(args, []string{"PS1=" + node + ":\\w# "})
}

func forwardCommand() *cli.Command {
	return &cli.Command{
		Name:      "forward",
		Usage:     "print an address on this machine that leads to one in the cluster",
		ArgsUsage: "ADDRESS:PORT | NAMESPACE/SERVICE:PORT",
		Flags:     []cli.Flag{&cli.StringFlag{Name: "from", Usage: "node to reach it from; the first that runs if not given"}},
		Action: withCluster(func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster) error {
			if cmd.Args().Len() != 1 {
				return errors.New("forward takes one address")
			}
			address, err := c.Forward(ctx, cmd.String("from"), cmd.Args().First())
			if err != nil {
				return err
			}
			fmt.Println(address)
			return nil
		}),
	}
}
