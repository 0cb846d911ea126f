package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// apiServerOrders is the file with the order for the API server.
func (c *Cluster) apiServerOrders() string { return c.path("conf", "kube-apiserver.order") }

// followerOrders is the file with the order for the controller manager and the scheduler.
func (c *Cluster) followerOrders() string { return c.path("conf", "kube-followers.order") }

// OrderAPIServer freezes the API server, stops it and prevents its start, or lets it run again. It returns when that is seen.
// A frozen server accepts connections, because the kernel does, and answers nothing.
//
// The controller manager and the scheduler stop together with the API server. Elsewhere they exit when they cannot renew their leases for ten
// seconds; here they have no leases, and would take all nodes for dead when the API server is back.
func (c *Cluster) OrderAPIServer(ctx context.Context, order machine.Order) error {
	followers := machine.OrderRun
	if order == machine.OrderStop {
		followers = machine.OrderStop
	}
	if err := writeFile(c.followerOrders(), string(followers)+"\n"); err != nil {
		return err
	}
	if err := writeFile(c.apiServerOrders(), string(order)+"\n"); err != nil {
		return err
	}
	c.state.APIServer = order
	if order == machine.OrderRun {
		c.state.APIServer = ""
	}
	if err := c.save(); err != nil {
		return err
	}
	if order == machine.OrderRun {
		return c.awaitAPI(ctx)
	}
	return c.awaitSilence(ctx)
}

var errAnswers = errors.New("it answers")

// awaitSilence waits until the API server does not answer.
func (c *Cluster) awaitSilence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := c.client()
	if err != nil {
		return err
	}
	err = proc.WaitFor(ctx, 50*time.Millisecond, "the API server to be away", func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/livez/ping").DoRaw(ctx); err != nil {
			return nil //nolint:nilerr // that it fails is what is waited for
		}
		return errAnswers
	})
	if err != nil {
		return fmt.Errorf("%w; see %s", err, c.path("log", "machine.log"))
	}
	return nil
}
