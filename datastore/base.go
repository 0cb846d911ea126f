package datastore

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptVersions is how many objects of a kind a Store keeps as it last read or wrote them, so that
// the next write of each needs no request but its own. It bounds the memory: a caller writes soon
// after it has read, and one that does not costs a read.
const keptVersions = 64

// errModified is what the API server says of a stale resourceVersion.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// keep remembers an object as the API server has just returned it, apart from the caller's, which
// the caller may change, and without its managed fields, as the caches have it.
func (s *Store[T]) keep(obj T) {
	if s.kept == nil {
		return
	}
	own := obj.DeepCopyObject().(T)
	own.SetManagedFields(nil)
	s.kept.Add(own.GetName(), own)
}

// base returns the version that the caller made obj from, which is not to be modified: the cached
// one, or the one that this Store last read or wrote, or else the one in the API server. If that is
// another than obj says, the write would be refused, and this is the conflict.
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

// isVersionOf tells whether base is the version that obj was made from.
func isVersionOf[T Object](base, obj T) bool {
	return base.GetResourceVersion() == obj.GetResourceVersion() && (obj.GetUID() == "" || base.GetUID() == obj.GetUID())
}

func (s *Store[T]) errModified(obj T) error {
	return apierrors.NewConflict(s.resource, obj.GetName(), errModified)
}

// unlessModified returns nil if the API server has the version that obj was made from, and otherwise what a write of it
// must fail with. It tells why a JSON patch is unprocessable: the API server applies its steps, which may
// not fit a newer version, before it compares versions.
func (s *Store[T]) unlessModified(ctx context.Context, obj T) error {
	live, err := s.verbs.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err == nil && !isVersionOf(live, obj) {
		return s.errModified(obj)
	}
	return err
}
