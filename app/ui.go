package app

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/page"
)

func uiCommand() *cli.Command {
	return &cli.Command{
		Name: "ui", Usage: "the web page: forward a port of this machine to it, and print its address and a token to log in",
		Flags: append(clusterFlags(),
			&cli.StringFlag{Name: "account", Value: page.DefaultAccount, Usage: "ServiceAccount, in the namespace of the installation, whose token is created; empty: no token"},
			&cli.DurationFlag{Name: "duration", Value: page.DefaultDuration, Usage: "how long the token is valid", Validator: func(d time.Duration) error {
				if d < page.ShortestDuration {
					return fmt.Errorf("--duration is %s: it must be at least %s", d, page.ShortestDuration)
				}
				return nil
			}},
			&cli.IntFlag{Name: "port", HideDefault: true, Usage: "port of this machine; by default 9500, or any free port", Validator: func(port int) error {
				if port < 0 || port > 65535 {
					return fmt.Errorf("--port is %d: it must be from 0 to 65535", port)
				}
				return nil
			}},
			&cli.BoolFlag{Name: "open", Usage: "open the page in the browser"}),
		Action: runUI,
	}
}

func runUI(ctx context.Context, c *cli.Command) error {
	cluster, config, err := clusterOf(c)
	if err != nil {
		return err
	}
	if err := cluster.CheckInstalled(ctx); err != nil {
		return err
	}
	o := page.Options{
		Kube: cluster.Kube, Namespace: cluster.Namespace, Account: c.String("account"), Duration: c.Duration("duration"), Port: c.Int("port"),
		Tunnel: page.NewTunnel(cluster.Kube, config, cluster.Namespace), Clock: clock.RealClock{}, Out: c.Root().Writer,
	}
	if c.Bool("open") {
		o.Browse = page.Browse
	}
	return page.Run(ctx, o)
}
