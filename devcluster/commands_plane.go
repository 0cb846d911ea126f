package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
)

func apiServerCommand() *cli.Command {
	return &cli.Command{
		Name:      "api-server",
		Usage:     "have the API server stand still, or end it, and have it run again",
		ArgsUsage: "freeze | stop | run",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			order := machine.Order(cmd.Args().First())
			if cmd.Args().Len() != 1 || !slices.Contains(machine.Orders, order) {
				return fmt.Errorf("api-server %q: give one of: freeze, stop, run", cmd.Args().Slice())
			}
			return withCluster(func(ctx context.Context, _ *cli.Command, c *cluster.Cluster) error {
				return c.OrderAPIServer(ctx, order)
			})(ctx, cmd)
		},
	}
}
