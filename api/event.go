package api

import (
	"context"
	"time"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// eventKind can only be read. Any client that may list the Events of the namespace may read it (authroute.go).
func eventKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeEvent, plural: "events", wire: v1.Event{}, view: manager.ViewEvents,
		list: func(ctx context.Context) ([]v1.Object, error) {
			events, err := m.ListEvents(ctx)
			return objectsOf(events, eventOf), err
		},
		get: func(ctx context.Context, id string) (v1.Object, error) {
			return objectOf(eventOf)(m.Event(ctx, id))
		},
	}
}

func eventOf(e *manager.Event) *v1.Event {
	last, first := manager.EventTime(e), e.FirstTimestamp.Time
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	count := int(e.Count)
	if e.Series != nil {
		count = int(e.Series.Count)
	}
	component := e.Source.Component
	if component == "" {
		component = e.ReportingController
	}
	return &v1.Event{
		Resource:  v1.Resource{ID: e.Name},
		EventType: e.Type,
		Event: v1.KubernetesEvent{
			Metadata: v1.EventMetadata{Name: e.Name, Namespace: e.Namespace, UID: string(e.UID), CreationTimestamp: timeText(e.CreationTimestamp.Time)},
			InvolvedObject: v1.InvolvedObject{
				Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name,
				UID: string(e.InvolvedObject.UID), APIVersion: e.InvolvedObject.APIVersion,
			},
			Type: e.Type, Reason: e.Reason, Message: e.Message, Count: max(count, 1),
			Source:         v1.EventSource{Component: component, Host: e.Source.Host},
			FirstTimestamp: timeText(first), LastTimestamp: timeText(last),
		},
	}
}

// timeText returns a time as Kubernetes writes it; empty for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
