package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"
)

// Version is set by the linker.
var Version = "unknown"

// logLevelEnv says how much is logged, where no flag does.
const logLevelEnv = "LOG_LEVEL"

// Main runs the program with its arguments and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().Run(ctx, args); err != nil {
		fmt.Fprintln(os.Stderr, "longhorn-manager:", err)
		return 1
	}
	return 0
}

func root() *cli.Command {
	return &cli.Command{
		Name:    "longhorn-manager",
		Usage:   "replicated volumes from the disks of a Kubernetes cluster's nodes",
		Version: Version,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warning or error", Sources: cli.EnvVars(logLevelEnv)},
		},
		Commands: []*cli.Command{
			daemonCommand(),
			instanceManagerCommand(),
			csiCommand(),
			shareManagerCommand(),
			replicaCommand(),
			uninstallCommand(),
		},
	}
}

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
