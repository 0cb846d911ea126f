package app

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/datastore"
)

// runner is a controller.
type runner interface{ Run(context.Context) error }

// scope is a datastore and the controllers that use it.
type scope struct {
	store *datastore.Datastore
	// workloads is nil if no controller needs them.
	workloads *datastore.Workloads
	runners   []runner
}

// run fills the caches, calls ready, and runs the controllers until ctx ends, or until ready or a controller fails. It
// returns when all of them have stopped, including the caches.
func (s *scope) run(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait()
	defer cancel() // before the wait: the caches stop only with ctx
	err := s.fill(ctx)
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		cancel()
		return errors.Join(err, s.control(ctx)) // each controller returns immediately and stops its queue
	}
	return s.control(ctx)
}

// control runs the controllers until ctx ends or one of them fails.
func (s *scope) control(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range s.runners {
		group.Go(func() error { return r.Run(ctx) })
	}
	return group.Wait()
}

// fill returns after the caches have been filled.
func (s *scope) fill(ctx context.Context) error {
	s.store.Start(ctx)
	if s.workloads != nil {
		s.workloads.Start(ctx)
	}
	if err := s.store.WaitForSync(ctx); err != nil || s.workloads == nil {
		return err
	}
	return s.workloads.WaitForSync(ctx)
}

// wait returns after the caches have stopped; their context must have ended.
func (s *scope) wait() {
	s.store.Wait()
	if s.workloads != nil {
		s.workloads.Wait()
	}
}
