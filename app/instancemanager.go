package app

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/instance"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

func instanceManagerCommand() *cli.Command {
	return &cli.Command{
		Name:   "instance-manager",
		Usage:  "the data plane of a node",
		Action: runInstanceManager,
		Flags: []cli.Flag{
			nodeFlag(),
			&cli.StringFlag{Name: "root", Value: "/host", Usage: "where the node's root directory is mounted"},
			&cli.StringFlag{Name: "data-listen", Value: fmt.Sprintf(":%d", types.ReplicaPort), Usage: "host:port at which replicas are served"},
			&cli.StringFlag{Name: "grpc-socket", Value: types.InstanceManagerSocket(), Usage: "socket for the daemon"},
			&cli.StringFlag{Name: "tool-socket", Value: types.ToolSocket(), Usage: "NBD socket for tools"},
			&cli.StringFlag{Name: "device-dir", Value: types.DeviceDirectory, Usage: "where block devices are made"},
		},
	}
}

func runInstanceManager(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	i, err := instance.New(instance.Options{
		Root:       c.String("root"),
		DataListen: c.String("data-listen"),
		GRPCSocket: c.String("grpc-socket"),
		ToolSocket: c.String("tool-socket"),
		DeviceDir:  c.String("device-dir"),
		Version:    Version,
		Log:        log.WithField(logfields.Node, c.String("node-id")),
	})
	if err != nil {
		return fmt.Errorf("start the instance manager: %w", err)
	}
	return i.Run(ctx)
}
