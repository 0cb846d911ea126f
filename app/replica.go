package app

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance"
)

// replicaCommand is for people at a node, when no manager runs.
func replicaCommand() *cli.Command {
	return &cli.Command{
		Name:  "replica",
		Usage: "read one replica's directory by hand",
		Commands: []*cli.Command{{
			Name:   "serve",
			Usage:  "serve a replica's directory read-only over NBD until interrupted; nothing is written to it",
			Action: serveReplica,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "directory", Usage: "absolute path of the replica's directory", Required: true},
				&cli.StringFlag{Name: "socket", Usage: "path of the unix socket to create", Required: true},
			},
		}},
	}
}

func serveReplica(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	socket := c.String("socket")
	return instance.ServeCopy(ctx, instance.CopyOptions{
		Directory: c.String("directory"), Socket: socket, Log: log,
		Ready: func(export string) {
			fmt.Fprintf(c.Root().Writer, "nbd+unix:///%s?socket=%s\n", export, socket)
		},
	})
}
