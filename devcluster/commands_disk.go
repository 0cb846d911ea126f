package main

import (
	"context"
	"errors"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
)

func diskCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name:      "disk",
			Usage:     "show the disks of a node with a kernel of its own, or change how one behaves",
			ArgsUsage: "NODE [[DISK] ok | slow DELAY_MS | fail | fail-writes | hang | drop-writes]",
			Action: func(ctx context.Context, cmd *cli.Command) error {
				args := cmd.Args().Slice()
				switch len(args) {
				case 0:
					return errors.New("disk takes the name of a node")
				case 1:
					l, err := layout(cmd)
					if err != nil {
						return err
					}
					return cluster.ShowDisks(l, args[0], os.Stdout)
				}
				name, state, err := diskState(args[1:])
				if err != nil {
					return err
				}
				return withCluster(func(ctx context.Context, _ *cli.Command, c *cluster.Cluster) error {
					return c.SetDisk(ctx, args[0], name, state)
				})(ctx, cmd)
			},
		},
		{
			Name:      "add-disk",
			Usage:     "give a node with a kernel of its own one more disk while it runs",
			ArgsUsage: "NODE DISK PATH",
			Flags:     diskFlags(),
			Action: withCluster(func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster) error {
				if cmd.Args().Len() != 3 {
					return errors.New("add-disk takes a node, a name for the disk and the path to mount it at")
				}
				return c.AddDisk(ctx, cmd.Args().Get(0), cmd.Args().Get(1), cmd.Args().Get(2), upOptions(cmd))
			}),
		},
	}
}

// diskState parses [DISK] STATE.
func diskState(words []string) (string, dm.State, error) {
	state, err := dm.ParseState(words)
	if err == nil {
		return cluster.DataDisk, state, nil
	}
	if len(words) > 1 && words[0] != string(dm.Slow) {
		state, err = dm.ParseState(words[1:])
	}
	return words[0], state, err
}
