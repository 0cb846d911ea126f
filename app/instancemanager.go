package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/device/holder"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// instanceManagerCommand is the data plane of a node. It has two processes. The holder keeps the block devices and
// starts the serving process. The serving process serves the devices and everything else, and can be replaced while its
// devices are in use.
func instanceManagerCommand() *cli.Command {
	return &cli.Command{
		Name:   "instance-manager",
		Usage:  "the data plane of a node",
		Action: runHolder,
		Flags: append(servingFlags(),
			&cli.StringFlag{Name: "holder-socket", Value: types.HolderSocket(), Usage: "socket on which the daemon replaces the serving process"},
			&cli.StringFlag{Name: "devices", Value: devicesAuto, Sources: cli.EnvVars(devicesEnv), Usage: "kind of new block devices: auto (the kernel's NBD client where it has one, else FUSE), or fuse", Validator: isDevices},
			&cli.StringFlag{Name: "program-dir", Value: filepath.Join(os.TempDir(), "longhorn-programs"), Usage: "directory for programs of other versions; its file system must allow them to run"},
		),
		Commands: []*cli.Command{{
			Name:   "serve",
			Usage:  "the serving process; the holder starts it",
			Action: runInstanceManager,
			Flags:  servingFlags(),
		}},
	}
}

func servingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "node-id", Usage: "name of the Kubernetes node on which this process runs", Sources: cli.EnvVars("NODE_NAME")},
		&cli.StringFlag{Name: "root", Value: "/host", Usage: "where the node's root directory is mounted"},
		&cli.StringFlag{Name: "data-listen", Value: fmt.Sprintf(":%d", types.ReplicaPort), Usage: "host:port at which replicas are served"},
		&cli.StringFlag{Name: "grpc-socket", Value: types.InstanceManagerSocket(), Usage: "socket for the daemon"},
		&cli.StringFlag{Name: "tool-socket", Value: types.ToolSocket(), Usage: "NBD socket for tools"},
		&cli.StringFlag{Name: "device-dir", Value: types.DeviceDirectory, Usage: "directory in which block devices are created"},
	}
}

// runHolder keeps the devices, and runs this program a second time as the process that serves them.
func runHolder(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	if err := os.Setenv(logLevelEnv, c.String("log-level")); err != nil {
		return fmt.Errorf("pass the log level to the serving process: %w", err)
	}
	command := []string{self, "instance-manager", "serve"}
	for _, flag := range []string{"node-id", "root", "data-listen", "grpc-socket", "tool-socket", "device-dir"} {
		command = append(command, "--"+flag, c.String(flag))
	}
	entry := log.WithField(logfields.Node, c.String("node-id"))
	devices := device.Options{DeviceDir: c.String("device-dir"), Node: device.NodeName(c.String("node-id")), Log: entry}
	useDevices(ctx, c.String("devices"), c.String("root"), &devices)
	return holder.Run(ctx, holder.Options{
		Command: command, Version: Version, Devices: devices,
		ControlSocket: c.String("holder-socket"), Dir: c.String("program-dir"), Check: []string{"--version"}, Log: entry,
	})
}

// runInstanceManager serves until it gets a signal to stop, or until the holder requests that it exits for a successor.
func runInstanceManager(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	opts := instance.Options{
		Root:       c.String("root"),
		DataListen: c.String("data-listen"),
		GRPCSocket: c.String("grpc-socket"),
		ToolSocket: c.String("tool-socket"),
		// This is not a flag: a holder of an earlier release may start this process, and a holder of this release may
		// start a process of an earlier release.
		GenerationsSocket: types.GenerationsSocketBeside(c.String("grpc-socket")),
		DeviceDir:         c.String("device-dir"),
		Version:           Version,
		Log:               log.WithField(logfields.Node, c.String("node-id")),
	}
	kept, err := holder.Connect()
	switch {
	case errors.Is(err, holder.ErrNoHolder): // started by hand: its devices end with it
	case err != nil:
		return err
	default:
		opts.Keeper, opts.Mounts = kept, kept.Mounts()
	}
	i, err := instance.New(opts)
	if err != nil {
		return fmt.Errorf("start the instance manager: %w", err)
	}
	if kept == nil {
		return i.Run(ctx)
	}
	return serveHeld(ctx, i, kept)
}

// serveHeld serves devices that a holder keeps. When the holder requests that it exits, it returns immediately, as if
// the process had died. An orderly stop would remove the devices. Callers repeat their pending calls to the successor.
func serveHeld(ctx context.Context, i *instance.Instance, kept *holder.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- i.Run(ctx) }()
	if err := kept.Ready(Version); err != nil {
		return fmt.Errorf("report to the holder that the serving process is ready: %w", err)
	}
	ended := kept.Ended()
	for {
		select {
		case err := <-served:
			return err
		case <-kept.Leaving():
			return nil
		case <-ended:
			ended = nil
			cancel() // the devices are gone with the holder
		}
	}
}
