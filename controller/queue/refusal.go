package queue

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// OfChild marks err as a refusal, if it is one. err comes from a write that creates or changes a child of an object. In
// a refusal, the API server, or an admission webhook that it calls, does not accept the child in this form. A
// LimitRange, a quota, a policy and a rule of a definition cause such refusals. Any other error is returned unchanged;
// OfChild(nil) is nil.
//
// A refusal lasts until an administrator changes something, so the administrator must see its text. The Sync shows the
// text in a condition of the parent and in an Event. If the condition has another meaning too, its reason is
// types.ReasonChildRefused. Refusals says when to show the text. The Sync also returns the error, because there is no
// event when the obstacle disappears.
func OfChild(err error) error {
	if !isRefusal(err) {
		return err
	}
	return &childRefused{err}
}

// Obstructed marks any err in the same way as OfChild: the child cannot be created because an object of another owner
// has its name.
func Obstructed(err error) error { return &childRefused{err} }

// ChildRefusal returns the text of a refusal that OfChild or Obstructed marked; "": err is not marked.
func ChildRefusal(err error) string {
	if refused := (*childRefused)(nil); !errors.As(err, &refused) {
		return ""
	}
	return err.Error()
}

type childRefused struct{ error }

func (e *childRefused) Unwrap() error { return e.error }

// isRefusal reports whether the same write is refused again until something else changes. A webhook chooses the code of
// its refusal, usually 400. If the webhook does not answer, the API server returns an internal error.
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

// refusalStands is how long the shown text of a refusal stays although later texts differ. The figures of a quota and
// the port of a broken connection differ at each attempt, and a write of a status triggers the next attempt.
const refusalStands = 30 * time.Second

// Refusals stores which children the API server refuses, by a key that names the parent, and decides when to show the
// text. The zero value is ready to use. Several workers may use it.
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

// Tried records how the last attempt ended. It returns true if err is a refusal and its text must be shown now. An
// error that is not a refusal does not change what is known. nil says that nothing is refused.
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

// Words is the text to show; "": nothing was refused at the last attempt, or there was no attempt.
func (r *Refusals[K]) Words(key K) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown[key].words
}

// Forget drops the stored text about a parent that no longer exists.
func (r *Refusals[K]) Forget(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shown, key)
}
