package datastore

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptVersions is the number of objects of a kind that a Store keeps in the version that it last read or wrote. Then
// the next write of each object needs only one request. The number limits the memory. A caller writes soon after it has
// read; otherwise its write costs one more read.
const keptVersions = 64

// errModified is the answer of the API server to a stale resourceVersion.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// keep stores an object that the API server has just returned. The stored copy is separate from the caller's object,
// which the caller may change. Like the caches, it has no managed fields.
func (s *Store[T]) keep(obj T) {
	if s.kept == nil {
		return
	}
	own := obj.DeepCopyObject().(T)
	own.SetManagedFields(nil)
	s.kept.Add(own.GetName(), own)
}

// base returns the version from which the caller created obj. It must not be modified. base takes the cached version,
// or the version that this Store last read or wrote, or the version in the API server. If that differs from obj's
// version, the API server would refuse the write, and base returns the conflict.
func (s *Store[T]) base(ctx context.Context, obj T) (T, error) {
	var none T
	if obj.GetResourceVersion() == "" {
		return none, errors.New("the object has no resourceVersion: it was not read from the API server")
	}
	if cached, err := s.GetRO(obj.GetName()); err == nil && isVersionOf(cached, obj) {
		if any(cached) == any(obj) {
			return none, errors.New("BUG: the object is the cached one, which must not be modified")
		}
		return cached, nil
	}
	if s.kept != nil {
		if kept, ok := s.kept.Get(obj.GetName()); ok && isVersionOf(kept.(T), obj) {
			return kept.(T), nil
		}
	}
	live, err := s.verbs.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil {
		return none, err
	}
	if !isVersionOf(live, obj) {
		return none, s.errModified(obj)
	}
	return live, nil
}

// isVersionOf reports whether base is the version from which obj was created.
func isVersionOf[T Object](base, obj T) bool {
	return base.GetResourceVersion() == obj.GetResourceVersion() && (obj.GetUID() == "" || base.GetUID() == obj.GetUID())
}

func (s *Store[T]) errModified(obj T) error {
	return apierrors.NewConflict(s.resource, obj.GetName(), errModified)
}

// unlessModified returns nil if the API server has the version from which obj was created. Otherwise it returns the
// error with which a write of obj must fail. The check explains why a JSON patch is unprocessable: the API server
// applies its steps before it compares versions, and they may not fit a newer version.
func (s *Store[T]) unlessModified(ctx context.Context, obj T) error {
	live, err := s.verbs.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err == nil && !isVersionOf(live, obj) {
		return s.errModified(obj)
	}
	return err
}
