package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
)

// Event is a Kubernetes Event about an object of Longhorn.
type Event = corev1.Event

// EventStore has the Events.
type EventStore interface {
	// List returns the newest Events, sorted by name.
	List(ctx context.Context) ([]*Event, error)
	// OnChange calls changed after each change, until stop is called.
	OnChange(changed func()) (stop func(), err error)
}

// ListEvents returns the newest Events of Longhorn's objects, sorted by name. Callers must not modify them. The Events
// are watched only while clients read them, so the first call waits until they are known.
func (m *Manager) ListEvents(ctx context.Context) ([]*Event, error) {
	events, err := m.deps.Events.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return events, nil
}

// EventTime returns when an Event happened last.
func EventTime(e *Event) time.Time { return datastore.EventTime(e) }

// Event returns one of the Events that ListEvents returns.
func (m *Manager) Event(ctx context.Context, name string) (*Event, error) {
	events, err := m.ListEvents(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(events, func(e *Event) bool { return e.Name == name })
	if i < 0 {
		return nil, notFound("event", name)
	}
	return events[i], nil
}
