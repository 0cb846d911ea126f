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

// OrderAPIServer has the API server stand still, ends it and keeps it from being started, or has it run again. It returns when that is seen.
// A server that stands still accepts connections, which the kernel does, and answers nothing.
func (c *Cluster) OrderAPIServer(ctx context.Context, order machine.Order) error {
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
