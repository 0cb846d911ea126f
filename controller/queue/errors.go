package queue

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrStale is returned by a Sync that found its cache behind its own writes.
var ErrStale = errors.New("the cache is older than what was written")

// Permanent marks err as an error that no retry can cure: the queue logs it once, and the
// key rests until its next event. The Sync must have told the user, by a condition or an
// Event. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent tells whether err is, or wraps, one made by Permanent.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Gone marks a "not found" error of the API as the end of the work: there is nothing to do
// without the object, and its event brings the key back. Gone returns any other error as
// it is; Gone(nil) is nil.
//
// Without this mark a missing object is no reason to rest: it may be another than the one
// that the key names, or the cache may be behind.
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

// class is what an error of a Sync means for its key.
type class string

const (
	classDone      class = "done"      // the work is done, or the Sync says that its object is gone
	classMissing   class = "missing"   // an object does not exist, and the Sync does not say that this is the end
	classStale     class = "stale"     // another writer was faster, or the cache slower
	classPermanent class = "permanent" // waits for an event
	classStopped   class = "stopped"   // the queue shuts down
	classFailed    class = "failed"    // everything else
)

// classify sorts an error; ctx is the context that the Sync ran with. An object
// that exists already is stale: it was made by a write that the cache lacks.
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
