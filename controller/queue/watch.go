package queue

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Events is the side of a store that reports changes: it must call h for each, from a
// goroutine of its own. The stores of controllers embed it.
type Events interface {
	AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// Watch connects Handler to Events. Neither may be nil; the same Events may be in
// several, each with a Handler of its own.
type Watch struct {
	Events  Events
	Handler cache.ResourceEventHandler
}

// Watch registers the watches in their order, up to the first that fails; its error
// names the controller. Handlers registered before it stay: a controller that cannot
// watch all that it needs must not be run.
func (q *Queue[K]) Watch(watches ...Watch) error {
	for _, w := range watches {
		if _, err := w.Events.AddHandler(w.Handler); err != nil {
			return fmt.Errorf("watch for controller %s: %w", q.options.Name, err)
		}
	}
	return nil
}
