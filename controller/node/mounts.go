package node

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// mountPause is the least time between two scans that changed mounts trigger. On a busy node, mounts of pods change all
// the time.
const mountPause = time.Second

// Run works until ctx is done. The caches must be filled.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.queue.Run(ctx) })
	if c.deps.WatchMounts != nil {
		changed := make(chan struct{}, 1)
		group.Go(func() error { c.watchMounts(ctx, changed); return nil })
		group.Go(func() error { c.scanForMounts(ctx, changed); return nil })
	}
	return group.Wait()
}

func (c *Controller) watchMounts(ctx context.Context, changed chan<- struct{}) {
	err := c.deps.WatchMounts(ctx, func() {
		select {
		case changed <- struct{}{}:
		default: // a change is already waiting
		}
	})
	if err != nil {
		c.deps.Log.WithError(err).WithField(logfields.Node, c.deps.Node).Warn("Cannot watch mounts; disks are scanned only periodically")
	}
}

// scanForMounts syncs the node at once after a change, and then not before mountPause has passed.
func (c *Controller) scanForMounts(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		c.queue.Add(c.deps.Node)
		pause := c.deps.Clock.NewTimer(mountPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
	}
}
