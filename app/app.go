package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"
)

// Version is set by the linker.
var Version = "unknown"

// logLevelEnv says how much is logged, where no flag does.
const logLevelEnv = "LOG_LEVEL"

// Main runs the program with its arguments and returns its exit code. The first says what the program is: kubectl calls it by
// another name.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name := filepath.Base(args[0])
	var err error
	switch name {
	case completionName:
		err = completeForKubectl(ctx, plugin(), args[1:], os.Stdout)
	case pluginName:
		err = plugin().Run(ctx, args)
	default:
		name = "longhorn-manager"
		err = root().Run(ctx, args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

func root() *cli.Command {
	return strict(&cli.Command{
		Name:    "longhorn-manager",
		Usage:   "replicated volumes from the disks of a Kubernetes cluster's nodes",
		Version: Version,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warning or error", Sources: cli.EnvVars(logLevelEnv)},
		},
		Commands: append([]*cli.Command{
			daemonCommand(),
			instanceManagerCommand(),
			csiCommand(),
			shareManagerCommand(),
			replicaCommand(),
			uninstallCommand(),
			trimCommand(),
		}, inspectCommands()...),
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: showCompletion,
	})
}

// plugin is the program as kubectl calls it: with the commands for people alone.
func plugin() *cli.Command {
	return strict(&cli.Command{
		Name: pluginName, Usage: "look at Longhorn's volumes, nodes and disks (kubectl longhorn)", Version: Version, Commands: inspectCommands(),
		EnableShellCompletion: true, ConfigureShellCompletionCommand: showCompletion,
	})
}

// showCompletion lists the command that prints the shells' scripts among the others.
func showCompletion(c *cli.Command) { c.Hidden = false }

// newLog makes the program's logger as the flags say.
func newLog(c *cli.Command) (*logrus.Entry, error) {
	level, err := logrus.ParseLevel(c.String("log-level"))
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	log := logrus.New()
	log.SetLevel(level)
	log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	return logrus.NewEntry(log), nil
}

// nodeFlag names the node that a role runs on.
func nodeFlag() cli.Flag {
	return &cli.StringFlag{Name: "node-id", Usage: "name of the Kubernetes node that this runs on", Sources: cli.EnvVars("NODE_NAME"), Required: true}
}
