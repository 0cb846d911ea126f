package datastore

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// observed remembers, per object, the last write that the cache may not show yet.
//
//	Update ─► API server ── resourceVersion 12 ──► remembered
//	                └────── watch ── 12 ─────────► cache ──► forgotten
//
// In between, a reader of the cache sees version 11, and would decide on data that it has changed itself: IsStale
// reports this. Versions are compared as the numbers that the API server guarantees for objects of one resource. If
// they are not numbers (a fake), nothing is called stale.
type observed[T Object] struct {
	mu     sync.Mutex // guards writes
	writes map[types.NamespacedName]write[T]
}

// write is a stored version, or a deletion that was accepted.
type write[T Object] struct {
	object  T // as stored; for a deletion, as it was cached
	deleted bool
}

func nameOf[T Object](obj T) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func (o *observed[T]) wrote(stored T) { o.remember(write[T]{object: stored}) }

func (o *observed[T]) deleted(cached T) { o.remember(write[T]{object: cached, deleted: true}) }

func (o *observed[T]) remember(w write[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writes == nil {
		o.writes = map[types.NamespacedName]write[T]{}
	}
	name := nameOf(w.object)
	// Two writes of one object may return in the other order.
	if old, ok := o.writes[name]; ok && !w.deleted && !old.deleted && isOlder(w.object, old.object) {
		return
	}
	o.writes[name] = w
}

// lookup returns the write of an object that is still remembered.
func (o *observed[T]) lookup(name types.NamespacedName) (write[T], bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.writes[name]
	return w, ok
}

// all returns every write that is still remembered.
func (o *observed[T]) all() []write[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := make([]write[T], 0, len(o.writes))
	for _, w := range o.writes {
		writes = append(writes, w)
	}
	return writes
}

// seen forgets the write that the cache now shows. gone says that obj has left the cache.
func (o *observed[T]) seen(obj T, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := nameOf(obj)
	if w, ok := o.writes[name]; ok && (w.isShownBy(obj) || gone && w.object.GetUID() == obj.GetUID()) {
		delete(o.writes, name)
	}
}

// forget drops a write that the cache has passed without showing it.
func (o *observed[T]) forget(w write[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := nameOf(w.object)
	if current, ok := o.writes[name]; ok && current.deleted == w.deleted &&
		current.object.GetResourceVersion() == w.object.GetResourceVersion() {
		delete(o.writes, name)
	}
}

// isShownBy reports whether obj is the result of the write, or a later version.
func (w write[T]) isShownBy(obj T) bool {
	if w.deleted {
		return obj.GetUID() != w.object.GetUID() || obj.GetDeletionTimestamp() != nil
	}
	return !isOlder(obj, w.object)
}

func isOlder[T Object](a, b T) bool {
	return olderVersion(a.GetResourceVersion(), b.GetResourceVersion())
}

func olderVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// IsStale reports whether obj, read from the cache, is older than this Store's last write of it, or still exists
// although this Store has deleted it. Then the caller should decide nothing on it, and requeue.
func (s *Store[T]) IsStale(obj T) bool {
	w, ok := s.observed.lookup(nameOf(obj))
	return ok && !w.isShownBy(obj)
}

// IsStaleIn reports whether the cache lacks a write of this Store among the objects with a value in an index. The write
// is a created object that is not there yet, a deleted object that is still there, or a newer version. A caller that
// counts such objects, or creates them under random names, must call this first: otherwise it would create them twice.
// An unknown index counts as not stale.
func (s *Store[T]) IsStaleIn(index, value string) bool {
	if s.informer == nil {
		return false
	}
	indexFunc := s.informer.GetIndexer().GetIndexers()[index]
	for _, w := range s.observed.all() {
		if indexFunc == nil || !hasValue(indexFunc, w.object, value) {
			continue
		}
		if !s.isShown(w) {
			return true
		}
	}
	return false
}

// isShown reports whether the cache has reached a write. If another client deleted the object before the cache saw it,
// the object never appears there, but the version of the whole cache passes the write.
func (s *Store[T]) isShown(w write[T]) bool {
	cached, err := s.GetRO(w.object.GetName())
	switch {
	case err == nil:
		return w.isShownBy(cached)
	case w.deleted:
		return true
	}
	version := s.informer.GetIndexer().LastStoreSyncResourceVersion()
	if _, err := resourceversion.CompareResourceVersion(version, w.object.GetResourceVersion()); err != nil {
		return true
	}
	if olderVersion(version, w.object.GetResourceVersion()) {
		return false
	}
	s.observed.forget(w)
	return true
}

func hasValue(index cache.IndexFunc, obj any, value string) bool {
	values, err := index(obj)
	return err == nil && slices.Contains(values, value)
}

// forgetSeen returns the Store's own handler of its cache's events.
func (s *Store[T]) forgetSeen() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.observed.seen(obj.(T), false) },
		UpdateFunc: func(_, obj any) { s.observed.seen(obj.(T), false) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			s.observed.seen(obj.(T), true)
		},
	}
}
