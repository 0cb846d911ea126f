package queue

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrStale is returned by a Sync that found that its cache lacks its own writes.
var ErrStale = errors.New("the cache does not show the last change yet")

// Permanent marks err as an error that no retry can fix. The queue logs it once, and the key rests until its next
// event. The Sync must have informed the user, by a condition or an Event. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether err is, or wraps, an error that Permanent returned.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Gone marks a "not found" error of the API as the end of the work. Without the object there is nothing to do, and its
// event brings the key back. Gone returns any other error unchanged; Gone(nil) is nil.
//
// Without this mark, a missing object does not let the key rest. It may be another object than the one that the key
// names, or the cache may be late.
func Gone(err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	return &goneError{err}
}

type goneError struct{ error }

func (e *goneError) Unwrap() error { return e.error }

func isGone(err error) bool {
	var g *goneError
	return errors.As(err, &g)
}

// class is the meaning of a Sync's error for its key.
type class string

const (
	classDone      class = "done"      // the work is done, or the Sync says that its object does not exist
	classMissing   class = "missing"   // an object does not exist, and the Sync does not say that the work is done
	classStale     class = "stale"     // another writer was faster, or the cache is late
	classPermanent class = "permanent" // waits for an event
	classStopped   class = "stopped"   // the queue shuts down
	classFailed    class = "failed"    // everything else
)

// classify returns the class of an error; ctx is the context with which the Sync ran. An object that already exists
// means a stale cache: the cache lacks the write that created it.
func classify(ctx context.Context, err error) class {
	switch {
	case err == nil:
		return classDone
	case IsPermanent(err):
		return classPermanent
	case isGone(err):
		return classDone
	case errors.Is(err, ErrStale), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return classStale
	case ctx.Err() != nil:
		return classStopped
	case apierrors.IsNotFound(err):
		return classMissing
	default:
		return classFailed
	}
}
