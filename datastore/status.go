package datastore

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
)

// WriteStatus writes next as the status of an object if it differs from obj's status. isWritten says whether the API
// server has accepted a write. The result is the stored object, or obj if nothing differs. statusOf returns the
// status, or the part of it that the caller owns.
//
// WriteStatus does not modify obj. So a caller can compare obj with next to find the Events of a change, and must
// record them only if isWritten.
func WriteStatus[T Object, S any](
	ctx context.Context, store StatusUpdater[T], obj T, statusOf func(T) *S, next S,
) (stored T, isWritten bool, err error) {
	if equality.Semantic.DeepEqual(*statusOf(obj), next) {
		return obj, false, nil
	}
	u := obj.DeepCopyObject().(T)
	*statusOf(u) = next
	if stored, err = store.UpdateStatus(ctx, u); err != nil {
		var none T
		return none, false, err
	}
	return stored, true, nil
}
