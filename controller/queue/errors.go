package queue

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrStale is returned by a Sync that found its cache behind its own writes.
var ErrStale = errors.New("the cache is older than what was written")

// Permanent marks err as one that no repetition can cure: it is logged once, and
// the key rests until its next event. The Sync must have told the user, by a
// condition or an Event. Permanent(nil) is nil.
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

// class is what an error of a Sync means for its key.
type class string

const (
	classDone      class = "done"      // the work is done, or its object is gone
	classStale     class = "stale"     // somebody else was faster, or the cache slower
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
	case apierrors.IsNotFound(err):
		return classDone
	case errors.Is(err, ErrStale), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return classStale
	case ctx.Err() != nil:
		return classStopped
	default:
		return classFailed
	}
}
