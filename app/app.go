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

// logLevelEnv is the variable with the log level, if no flag sets it.
const logLevelEnv = "LOG_LEVEL"

// Main runs the program with its arguments and returns its exit code. The first argument is the name under which the
// program runs: kubectl calls it by another name.
func Main(args []string) int {
	cli.HelpPrinter, cli.ShowCommandHelp = printHelp, showHelp
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
		printError(os.Stderr, name, err)
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

// plugin returns the command of the program as a plugin of kubectl: it has only the commands for people.
func plugin() *cli.Command {
	return strict(&cli.Command{
		Name: pluginName, Usage: "look at Longhorn's volumes, nodes and disks (kubectl longhorn)", Version: Version, Commands: inspectCommands(),
		EnableShellCompletion: true, ConfigureShellCompletionCommand: showCompletion,
	})
}

// showCompletion shows the command that prints the shells' scripts in the list of commands; the library hides it by
// default.
func showCompletion(c *cli.Command) { c.Hidden = false }

// newLog returns the program's logger according to the flags.
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

// nodeFlag is the flag with the node on which a role runs.
func nodeFlag() cli.Flag {
	return &cli.StringFlag{Name: "node-id", Usage: "name of the Kubernetes node on which this process runs", Sources: cli.EnvVars("NODE_NAME"), Required: true}
}
