package queue

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Events is the part of a store that reports changes. It must call h for each change, from its own goroutine. The
// interfaces of package datastore whose name begins with Watched include it, as datastore.Notifier.
type Events interface {
	AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// Watch connects Handler to Events. Neither may be nil. Several Watches may have the same Events, each with its own
// Handler.
type Watch struct {
	Events  Events
	Handler cache.ResourceEventHandler
}

// Watch registers the watches in their order, up to the first that fails; its error names the controller. Handlers
// registered before it stay. A controller that cannot watch everything that it needs must not be run.
func (q *Queue[K]) Watch(watches ...Watch) error {
	for _, w := range watches {
		if _, err := w.Events.AddHandler(w.Handler); err != nil {
			return fmt.Errorf("watch for controller %s: %w", q.options.Name, err)
		}
	}
	return nil
}
