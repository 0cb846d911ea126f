package datastore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
)

// Store reads and writes the objects of one kind, all in one namespace (or all objects of a kind without namespaces).
// Its methods may be called from many goroutines.
//
// Errors are those of the API server, wrapped; check them with apierrors.IsNotFound and similar functions. Reading the
// cache of a kind that is not watched is an error.
type Store[T Object] struct {
	resource  schema.GroupResource
	namespace string
	verbs     verbs[T]
	informer  cache.SharedIndexInformer // nil if the kind is not watched
	selects   func(T) bool              // reports whether the watch shows such an object
	observed  observed[T]
	kept      *lru.Cache // name to T, as last read live or written; nil if nothing is kept
}

// Preconditions make a Delete fail with a conflict if the object is not the one that the caller has seen. Empty fields
// require nothing.
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

// ByIndex returns the cached objects with a value in one of the indexes of this kind (index.go), sorted by name; they
// must not be modified.
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

// Live returns the current object from the API server.
func (s *Store[T]) Live(ctx context.Context, name string) (T, error) {
	obj, err := s.verbs.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		s.keep(obj)
	}
	return s.result(obj, err, "get", name)
}

// ListLive returns the current objects that match from the API server.
func (s *Store[T]) ListLive(ctx context.Context, opts metav1.ListOptions) ([]T, error) {
	list, err := s.verbs.ListAny(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.resource, err)
	}
	return items[T](list)
}

// Create creates the object and returns it in its stored form.
func (s *Store[T]) Create(ctx context.Context, obj T) (T, error) {
	stored, err := s.verbs.Create(ctx, obj, metav1.CreateOptions{})
	if err == nil {
		s.keep(stored)
	}
	if err == nil && s.informer != nil && s.selects(stored) {
		s.observed.wrote(stored)
	}
	return s.result(stored, err, "create", obj.GetName())
}

// CreateDryRun asks the API server whether it would create the object, and stores nothing. The API server validates the
// object before it checks whether an object of that name exists.
func (s *Store[T]) CreateDryRun(ctx context.Context, obj T) error {
	_, err := s.verbs.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create %s %s as a dry run: %w", s.resource, obj.GetName(), err)
	}
	return nil
}

// Update writes the caller's changes, except in the status. The object must have the resourceVersion of the version
// from which it was created. A newer version in the API server is a conflict, even if nothing changes. Members that
// this release's types do not know stay unchanged (patch.go).
func (s *Store[T]) Update(ctx context.Context, obj T) (T, error) {
	return s.write(ctx, obj, notStatus, "update")
}

// UpdateStatus writes the caller's changes in the status, under the same condition as Update.
func (s *Store[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return s.write(ctx, obj, status, "update status of")
}

// Delete requests the deletion of an object. An object with finalizers stays, with a deletion timestamp. If the object
// is already gone, the error is "not found".
func (s *Store[T]) Delete(ctx context.Context, name string, p Preconditions) error {
	return s.delete(ctx, name, p, metav1.DeleteOptions{})
}

// DeleteNow removes an object without its grace period. For a pod this means that no node confirms the exit of its
// processes: it is for pods of nodes that are down.
func (s *Store[T]) DeleteNow(ctx context.Context, name string, p Preconditions) error {
	return s.delete(ctx, name, p, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// DeleteWithin requests the deletion of a pod with this grace period, in whole seconds. After that, the pod's node
// kills the processes that have not exited.
func (s *Store[T]) DeleteWithin(ctx context.Context, name string, grace time.Duration, p Preconditions) error {
	return s.delete(ctx, name, p, metav1.DeleteOptions{GracePeriodSeconds: new(int64(grace / time.Second))})
}

func (s *Store[T]) delete(ctx context.Context, name string, p Preconditions, opts metav1.DeleteOptions) error {
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

// AddHandler makes the cache call h for every change, from a separate goroutine. It fails for a kind that is not
// watched.
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

// HasSynced reports whether the cache was filled once. It is true for a kind that is not watched.
func (s *Store[T]) HasSynced() bool { return s.informer == nil || s.informer.HasSynced() }

// Replace sets the content of the cache, like a list at that resourceVersion. It is for tests: a started Store fills
// its cache by watching.
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

func (s *Store[T]) write(ctx context.Context, obj T, part half, verb string) (T, error) {
	stored, err := s.patch(ctx, obj, part)
	if err == nil {
		s.keep(stored)
		if s.informer != nil {
			s.observed.wrote(stored)
		}
	}
	return s.result(stored, err, verb, obj.GetName())
}

// patch sends the one request of a write. It sends further requests only after a refusal, or if the version from which
// obj was created is not available here.
func (s *Store[T]) patch(ctx context.Context, obj T, part half) (T, error) {
	var none T
	base, err := s.base(ctx, obj)
	if err != nil {
		return none, err
	}
	p, err := newPatch(base, obj, part)
	if err != nil {
		return none, err
	}
	stored, err := s.verbs.Patch(ctx, obj.GetName(), p, part)
	if p.whole == nil || !apierrors.IsInvalid(err) {
		return stored, err
	}
	// The steps in a list do not fit, or their result is refused: the answer of the API server is the same for both.
	if err := s.unlessModified(ctx, obj); err != nil {
		return none, err
	}
	return s.verbs.Patch(ctx, obj.GetName(), p.withWholeLists(), part)
}

// result wraps an error. With an error it returns no object, although clients return an empty one.
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

// withoutManagedFields is the transform of every cache. No reader here needs to know which client wrote which field,
// and the list is often longer than the object. No patch names it, so the API server's own list stays unchanged.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// IsWatched reports whether the kind has a cache.
func (s *Store[T]) IsWatched() bool { return s.informer != nil }
