package queue

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// OfChild marks err, of a write that creates or changes a child of an object, if it is a refusal: the API
// server, or an admission webhook that it asks, does not take the child as it is. A LimitRange, a quota, a policy
// and a rule of a definition refuse so. Any other error is returned as it is; OfChild(nil) is nil.
//
// A refusal lasts until a person changes something, so the person must see its words: the Sync shows them in a
// condition of the parent, with reason types.ReasonChildRefused where the condition has another meaning too, and
// in an Event. Refusals says when. The Sync also returns the error, because no event tells when the obstacle goes.
func OfChild(err error) error {
	if !isRefusal(err) {
		return err
	}
	return &childRefused{err}
}

// Obstructed marks err as OfChild does, whatever it is: the child cannot be created because an object of another owner has its name.
func Obstructed(err error) error { return &childRefused{err} }

// ChildRefusal returns the words of a refusal that OfChild or Obstructed marked; "": err has none.
func ChildRefusal(err error) string {
	if refused := (*childRefused)(nil); !errors.As(err, &refused) {
		return ""
	}
	return err.Error()
}

type childRefused struct{ error }

func (e *childRefused) Unwrap() error { return e.error }

// isRefusal tells whether the same write is refused again until something else changes. A webhook chooses the
// code with which it refuses, 400 as a rule; where it does not answer, the API server has an internal error.
func isRefusal(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500 || code == http.StatusInternalServerError
	}
}

// refusalStands is how long the shown words of a refusal stay although later ones differ. The figures of a quota and
// the port of a broken connection differ at each attempt, and a write of a status brings on the next attempt.
const refusalStands = 30 * time.Second

// Refusals remembers which children the API server refuses, by a key that names the parent, and decides when
// the words are shown. The zero value is ready; it may be used by several workers.
//
//	err := queue.OfChild(c.deps.Pods.Create(ctx, pod))
//	if c.refusals.Tried(name, err, now) { /* Event with queue.ChildRefusal(err) */ }
//	// the next plan gets c.refusals.Words(name) and writes the condition
type Refusals[K comparable] struct {
	mu    sync.Mutex
	shown map[K]refusal
}

type refusal struct {
	words string
	at    time.Time
}

// Tried takes in how the last attempt ended. It returns true if err is a refusal whose words are to be shown now.
// An error that is no refusal says nothing about what was refused before; nil says that nothing is.
func (r *Refusals[K]) Tried(key K, err error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.shown, key)
		return false
	}
	words := ChildRefusal(err)
	last, known := r.shown[key]
	if words == "" || known && (words == last.words || now.Sub(last.at) < refusalStands) {
		return false
	}
	if r.shown == nil {
		r.shown = map[K]refusal{}
	}
	r.shown[key] = refusal{words, now}
	return true
}

// Words are those to be shown; "": nothing was refused at the last attempt, or nobody tried.
func (r *Refusals[K]) Words(key K) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown[key].words
}

// Forget drops what is remembered of a parent that is gone.
func (r *Refusals[K]) Forget(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shown, key)
}
