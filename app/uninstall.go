package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/uninstall"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func uninstallCommand() *cli.Command {
	return &cli.Command{
		Name:   "uninstall",
		Usage:  "remove the installation from the cluster, see docs/UNINSTALL.md",
		Action: runUninstall,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "namespace", Value: types.Namespace, Usage: "namespace of the installation"},
			&cli.BoolFlag{Name: "delete-volumes", Usage: "delete volumes with their data without the setting deleting-confirmation-flag, if the settings no longer exist"},
			&cli.DurationFlag{
				Name: "patience", Value: uninstall.DefaultPatience, Usage: "how long to wait for a node that does not answer, and for a missing disk",
				Validator: func(d time.Duration) error {
					if d < 0 {
						return fmt.Errorf("--patience is %s: it must not be negative", d)
					}
					return nil
				},
			},
			&cli.StringFlag{Name: "kubeconfig", Usage: "kubeconfig file to use instead of the pod's service account"},
		},
	}
}

func runUninstall(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	clients, err := newClients(ctx, c.String("kubeconfig"), log)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(clients.config)
	if err != nil {
		return err
	}
	err = uninstall.Run(ctx, uninstall.Options{
		Client: client, Clock: clock.RealClock{}, Namespace: c.String("namespace"), DeleteVolumes: c.Bool("delete-volumes"),
		Out: os.Stdout, Every: 3 * time.Second, Patience: c.Duration("patience"),
	})
	var refused *uninstall.RefusedError
	if errors.As(err, &refused) {
		return cli.Exit(refused, exitRefused)
	}
	return err
}

// exitRefused tells the Job that a retry does not help; deploy/uninstall.yaml contains the same code.
const exitRefused = 3
