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
	// eventLinger is how long Events are watched after the last reader has left: people who look at them come back.
	eventLinger = 2 * time.Minute
	// eventSyncTimeout bounds the first list. The role of an earlier release does not grant it.
	eventSyncTimeout = 10 * time.Second
	// maxEvents is how many are shown.
	maxEvents = 1000
)

// Events are the Kubernetes Events of the namespace about objects of ours. They are watched only while somebody reads them: there are many,
// and nothing here depends on them. The cache has what readers are shown, and no more.
type Events struct {
	client adapter[*corev1.Event, *corev1.EventList]
	kube   kubernetes.Interface
	linger time.Duration

	mu      sync.Mutex
	ctx     context.Context // guarded by mu; Datastore.Start's, nil before
	watch   *eventWatch     // guarded by mu; nil: nothing is watched
	running sync.WaitGroup
}

// eventWatch is one time of watching.
type eventWatch struct {
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	users    int                // guarded by Events.mu
	stay     context.CancelFunc // guarded by Events.mu; takes back that the watch, which has no users, ends soon
}

func newEvents(kube kubernetes.Interface, namespace string) *Events {
	return &Events{
		client: adapter[*corev1.Event, *corev1.EventList]{typedClient: kube.CoreV1().Events(namespace)}, kube: kube, linger: eventLinger,
	}
}

// List returns the newest Events, sorted by name. They must not be modified, and have what slimEvent keeps.
func (e *Events) List(ctx context.Context) ([]*corev1.Event, error) {
	w := e.acquire() //nolint:contextcheck // others may use the watch when this request has ended
	if w == nil {    // tests that start nothing
		return e.live(ctx)
	}
	defer e.release(w) //nolint:contextcheck // as above
	limited, cancel := context.WithTimeout(ctx, eventSyncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), w.informer.HasSynced) {
		return nil, fmt.Errorf("fill the cache of events: %w", context.Cause(limited))
	}
	return newest(sorted[*corev1.Event](w.informer.GetIndexer().List(), labels.Everything())), nil
}

// OnChange calls changed after each change of an Event, and once for each there is, until stop is called. Events are watched until then.
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

// start lets Events be watched until ctx ends.
func (e *Events) start(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx = ctx
}

// wait returns when nothing is watched any more; the context of start must have ended.
func (e *Events) wait() {
	e.mu.Lock()
	e.ctx = nil // nothing is begun from here on
	e.mu.Unlock()
	e.running.Wait()
}

// acquire returns the watch, and begins one if there is none; nil while Events must not be watched. release must be called once.
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

// endIdle ends a watch, unless somebody has come meanwhile.
func (e *Events) endIdle(w *eventWatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.users == 0 && e.watch == w {
		e.watch = nil
		w.cancel()
	}
}

// aboutOurs selects the Events about objects of ours; the API server can do that by the version alone.
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

// newest are the maxEvents newest, sorted by name.
func newest(events []*corev1.Event) []*corev1.Event {
	events = slices.DeleteFunc(events, func(e *corev1.Event) bool { return e.InvolvedObject.APIVersion != longhorn.SchemeGroupVersion.String() })
	slices.SortFunc(events, func(a, b *corev1.Event) int {
		return cmp.Or(EventTime(b).Compare(EventTime(a)), strings.Compare(a.Name, b.Name))
	})
	events = events[:min(len(events), maxEvents)]
	slices.SortFunc(events, func(a, b *corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return events
}

// EventTime is when an Event happened last: recorders write that into one of several fields.
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

// slimEvent keeps what readers are shown.
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
