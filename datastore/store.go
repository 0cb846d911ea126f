package datastore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Store reads and writes the objects of one kind, all in one namespace (or all of
// a kind that has none). Its methods may be called from many goroutines.
//
// Errors are those of the API server, wrapped; ask with apierrors.IsNotFound and
// its like. Reading the cache of a kind that is not watched is an error.
type Store[T Object] struct {
	resource  schema.GroupResource
	namespace string
	verbs     verbs[T]
	informer  cache.SharedIndexInformer // nil: not watched
	selects   func(T) bool              // whether the watch shows such an object
	observed  observed[T]
}

// Preconditions make a Delete fail with a conflict where the object is another
// than the one that was looked at. Empty fields demand nothing.
type Preconditions struct {
	UID             types.UID
	ResourceVersion string
}

// Get returns a copy of the cached object; it may be modified.
func (s *Store[T]) Get(name string) (T, error) {
	obj, err := s.GetRO(name)
	if err != nil {
		return obj, err
	}
	return obj.DeepCopyObject().(T), nil
}

// GetRO returns the cached object itself; it must not be modified.
func (s *Store[T]) GetRO(name string) (T, error) {
	var none T
	if s.informer == nil {
		return none, s.errNotWatched()
	}
	obj, exists, err := s.informer.GetIndexer().GetByKey(s.key(name))
	if err != nil {
		return none, fmt.Errorf("look up %s %s in the cache: %w", s.resource, name, err)
	}
	if !exists {
		return none, apierrors.NewNotFound(s.resource, name)
	}
	return obj.(T), nil
}

// List returns the cached objects that match, sorted by name; they must not be modified.
func (s *Store[T]) List(selector labels.Selector) ([]T, error) {
	if s.informer == nil {
		return nil, s.errNotWatched()
	}
	return sorted[T](s.informer.GetIndexer().List(), selector), nil
}

// ByIndex returns the cached objects with a value in one of the indexes of this
// kind (index.go), sorted by name; they must not be modified.
func (s *Store[T]) ByIndex(index, value string) ([]T, error) {
	if s.informer == nil {
		return nil, s.errNotWatched()
	}
	objs, err := s.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("look up %s by %s %q: %w", s.resource, index, value, err)
	}
	return sorted[T](objs, labels.Everything()), nil
}

// Live returns the object as the API server has it now.
func (s *Store[T]) Live(ctx context.Context, name string) (T, error) {
	obj, err := s.verbs.Get(ctx, name, metav1.GetOptions{})
	return s.result(obj, err, "get", name)
}

// ListLive returns the objects that match as the API server has them now.
func (s *Store[T]) ListLive(ctx context.Context, opts metav1.ListOptions) ([]T, error) {
	list, err := s.verbs.ListAny(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.resource, err)
	}
	return items[T](list)
}

// Create makes the object and returns it as it was stored.
func (s *Store[T]) Create(ctx context.Context, obj T) (T, error) {
	stored, err := s.verbs.Create(ctx, obj, metav1.CreateOptions{})
	if err == nil && s.informer != nil && s.selects(stored) {
		s.observed.wrote(stored)
	}
	return s.result(stored, err, "create", obj.GetName())
}

// Update writes everything but the status. The object's resourceVersion must be
// that of the version it was made from: a newer one in the API server is a conflict.
func (s *Store[T]) Update(ctx context.Context, obj T) (T, error) {
	stored, err := s.verbs.Update(ctx, obj, metav1.UpdateOptions{})
	return s.updated(stored, err, "update", obj.GetName())
}

// UpdateStatus writes the status alone, under the same condition as Update.
func (s *Store[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	stored, err := s.verbs.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
	return s.updated(stored, err, "update status of", obj.GetName())
}

// Delete asks for the deletion of an object. One with finalizers stays, with a
// deletion timestamp; one that is gone already is not found.
func (s *Store[T]) Delete(ctx context.Context, name string, p Preconditions) error {
	var opts metav1.DeleteOptions
	if p != (Preconditions{}) {
		opts.Preconditions = &metav1.Preconditions{}
		if p.UID != "" {
			opts.Preconditions.UID = &p.UID
		}
		if p.ResourceVersion != "" {
			opts.Preconditions.ResourceVersion = &p.ResourceVersion
		}
	}
	if err := s.verbs.Delete(ctx, name, opts); err != nil {
		return fmt.Errorf("delete %s %s: %w", s.resource, name, err)
	}
	if cached, err := s.GetRO(name); err == nil && (p.UID == "" || p.UID == cached.GetUID()) {
		s.observed.deleted(cached)
	}
	return nil
}

// AddHandler has h called for every change of the cache, from a goroutine of the
// cache's own; it fails for a kind that is not watched.
func (s *Store[T]) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	if s.informer == nil {
		return nil, s.errNotWatched()
	}
	registration, err := s.informer.AddEventHandler(h)
	if err != nil {
		return nil, fmt.Errorf("handle events of %s: %w", s.resource, err)
	}
	return registration, nil
}

// HasSynced tells whether the cache was filled once; a kind that is not watched
// has nothing to wait for.
func (s *Store[T]) HasSynced() bool { return s.informer == nil || s.informer.HasSynced() }

// Replace sets the content of the cache, as a list at that resourceVersion would.
// It is for tests: a started Store fills its cache by watching.
func (s *Store[T]) Replace(objects []T, resourceVersion string) error {
	if s.informer == nil {
		return s.errNotWatched()
	}
	list := make([]any, 0, len(objects))
	for _, obj := range objects {
		if s.selects(obj) {
			list = append(list, obj)
		}
	}
	return s.informer.GetIndexer().Replace(list, resourceVersion)
}

func (s *Store[T]) updated(stored T, err error, verb, name string) (T, error) {
	if err == nil && s.informer != nil {
		s.observed.wrote(stored)
	}
	return s.result(stored, err, verb, name)
}

// result wraps an error and then hands out no object, where clients hand out an empty one.
func (s *Store[T]) result(obj T, err error, verb, name string) (T, error) {
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s %s: %w", verb, s.resource, name, err)
	}
	return obj, nil
}

func (s *Store[T]) key(name string) string {
	if s.namespace == "" {
		return name
	}
	return s.namespace + "/" + name
}

func (s *Store[T]) errNotWatched() error {
	return fmt.Errorf("read %s from the cache: this datastore does not watch them", s.resource)
}

func sorted[T Object](objs []any, selector labels.Selector) []T {
	typed := make([]T, 0, len(objs))
	for _, obj := range objs {
		if t := obj.(T); selector.Matches(labels.Set(t.GetLabels())) {
			typed = append(typed, t)
		}
	}
	slices.SortFunc(typed, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return typed
}

// withoutManagedFields is the transform of every cache: nobody here reads who
// wrote which field, and the list is often longer than the object. An update
// without it leaves the API server's own as it is.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// IsWatched tells whether the kind has a cache.
func (s *Store[T]) IsWatched() bool { return s.informer != nil }
