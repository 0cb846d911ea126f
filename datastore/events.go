package datastore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

const (
	// eventLinger is how long Events are watched after the last reader has left: people who look at them often come
	// back.
	eventLinger = 2 * time.Minute
	// eventSyncTimeout limits the first list. The role of an earlier release does not grant it.
	eventSyncTimeout = 10 * time.Second
	// maxEvents is the number of Events that are shown.
	maxEvents = 1000
)

// Events are the Kubernetes Events of the namespace about objects of ours. They are watched only while a client reads
// them: there are many, and nothing here depends on them. The cache contains only the fields that readers see.
type Events struct {
	client adapter[*corev1.Event, *corev1.EventList]
	kube   kubernetes.Interface
	linger time.Duration

	mu      sync.Mutex
	ctx     context.Context // guarded by mu; the context of Datastore.Start, nil before
	watch   *eventWatch     // guarded by mu; nil if nothing is watched
	running sync.WaitGroup
}

// eventWatch is one period of watching.
type eventWatch struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	users    int                // guarded by Events.mu
	stay     context.CancelFunc // guarded by Events.mu; cancels the planned end of a watch without users
}

func newEvents(kube kubernetes.Interface, namespace string) *Events {
	return &Events{
		client: adapter[*corev1.Event, *corev1.EventList]{typedClient: kube.CoreV1().Events(namespace)}, kube: kube, linger: eventLinger,
	}
}

// List returns the newest Events, sorted by name. They must not be modified, and have only the fields that slimEvent
// keeps.
func (e *Events) List(ctx context.Context) ([]*corev1.Event, error) {
	w := e.acquire() //nolint:contextcheck // others may use the watch when this request has ended
	if w == nil {    // tests that start nothing
		return e.live(ctx)
	}
	defer e.release(w) //nolint:contextcheck // as above
	limited, cancel := context.WithTimeout(ctx, eventSyncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), w.informer.HasSynced) {
		return nil, fmt.Errorf("wait for the cache of events: %w", context.Cause(limited))
	}
	return newest(sorted[*corev1.Event](w.informer.GetIndexer().List(), labels.Everything())), nil
}

// OnChange calls changed after each change of an Event, and once for each existing Event, until stop is called. Until
// that, Events are watched.
func (e *Events) OnChange(changed func()) (stop func(), err error) {
	w := e.acquire()
	if w == nil {
		return func() {}, nil
	}
	unregister, err := onChange(w.informer, changed)
	if err != nil {
		e.release(w)
		return nil, fmt.Errorf("watch events for changes: %w", err)
	}
	return func() { unregister(); e.release(w) }, nil
}

// start allows Events to be watched until ctx is done.
func (e *Events) start(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx = ctx
}

// wait returns when nothing is watched any longer. The context of start must be done.
func (e *Events) wait() {
	e.mu.Lock()
	e.ctx = nil // nothing starts from here on
	e.mu.Unlock()
	e.running.Wait()
}

// acquire returns the watch, and starts one if there is none. It returns nil while Events must not be watched. release
// must be called once for each watch.
func (e *Events) acquire() *eventWatch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil || e.ctx.Err() != nil {
		return nil
	}
	if e.watch == nil {
		ctx, cancel := context.WithCancel(e.ctx)
		w := &eventWatch{informer: e.newInformer(), cancel: cancel, stay: func() {}}
		e.running.Go(func() { w.informer.RunWithContext(ctx) })
		e.watch = w
	}
	e.watch.users++
	e.watch.stay()
	return e.watch
}

func (e *Events) release(w *eventWatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.users--; w.users > 0 || e.ctx == nil {
		return
	}
	idle, stay := context.WithTimeout(e.ctx, e.linger)
	w.stay = stay
	context.AfterFunc(idle, func() {
		if errors.Is(idle.Err(), context.DeadlineExceeded) {
			e.endIdle(w)
		}
	})
}

// endIdle ends a watch, unless a reader has come in the meantime.
func (e *Events) endIdle(w *eventWatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.users == 0 && e.watch == w {
		e.watch = nil
		w.cancel()
	}
}

// aboutOurs selects the Events about objects of ours. The API server can do that by the version alone.
func aboutOurs(options *metav1.ListOptions) {
	options.FieldSelector = fields.OneTermEqualSelector("involvedObject.apiVersion", longhorn.SchemeGroupVersion.String()).String()
}

func (e *Events) newInformer() cache.SharedIndexInformer {
	informer := newInformer[*corev1.Event](e.client, e.kube, &corev1.Event{}, nil, aboutOurs)
	if err := informer.SetTransform(slimEvent); err != nil {
		panic("BUG: transform of an informer that was never started: " + err.Error())
	}
	return informer
}

func (e *Events) live(ctx context.Context) ([]*corev1.Event, error) {
	var options metav1.ListOptions
	aboutOurs(&options)
	list, err := e.client.List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	events, err := items[*corev1.Event](list)
	if err != nil {
		return nil, err
	}
	return newest(events), nil
}

// newest returns the maxEvents newest Events, sorted by name.
func newest(events []*corev1.Event) []*corev1.Event {
	events = slices.DeleteFunc(events, func(e *corev1.Event) bool { return e.InvolvedObject.APIVersion != longhorn.SchemeGroupVersion.String() })
	slices.SortFunc(events, func(a, b *corev1.Event) int {
		return cmp.Or(EventTime(b).Compare(EventTime(a)), strings.Compare(a.Name, b.Name))
	})
	events = events[:min(len(events), maxEvents)]
	slices.SortFunc(events, func(a, b *corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return events
}

// EventTime returns the time when an Event last happened. Recorders write it to one of several fields.
func EventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// slimEvent keeps the fields that readers see.
func slimEvent(obj any) (any, error) {
	e, ok := obj.(*corev1.Event)
	if !ok {
		return obj, nil
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: e.Name, Namespace: e.Namespace, UID: e.UID, ResourceVersion: e.ResourceVersion, CreationTimestamp: e.CreationTimestamp,
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name, UID: e.InvolvedObject.UID,
			APIVersion: e.InvolvedObject.APIVersion,
		},
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: e.Count, Source: e.Source, ReportingController: e.ReportingController,
		FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime, Series: e.Series,
	}, nil
}
