package app

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/datastore"
)

// runner is a controller.
type runner interface{ Run(context.Context) error }

// scope is a datastore and the controllers over it.
type scope struct {
	store *datastore.Datastore
	// workloads is nil if no controller looks at them.
	workloads *datastore.Workloads
	runners   []runner
}

// run fills the caches, calls ready, and runs the controllers until ctx ends, or until ready or one of them fails. It returns when all
// have come to rest, the caches too.
func (s *scope) run(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.wait()
	defer cancel() // before the wait: the caches end with ctx alone
	err := s.fill(ctx)
	if err == nil {
		err = ready(ctx)
	}
	if err != nil {
		cancel()
		return errors.Join(err, s.control(ctx)) // each controller returns at once and stops its queue
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

// fill returns when the caches were filled once.
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

// wait returns when the caches, whose context must have ended, have come to rest.
func (s *scope) wait() {
	s.store.Wait()
	if s.workloads != nil {
		s.workloads.Wait()
	}
}
