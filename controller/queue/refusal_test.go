package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var pods = schema.GroupResource{Resource: "pods"}

func forbidden(why string) error { return apierrors.NewForbidden(pods, "p", errors.New(why)) }

func TestOfChildMarksWhatTheAPIServerRefuses(t *testing.T) {
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 400, Reason: metav1.StatusReasonBadRequest, Message: `admission webhook "x" denied the request: no`}}
	for name, tc := range map[string]struct {
		err     error
		refused bool
	}{
		"none":                               {nil, false},
		"a LimitRange or a quota: Forbidden": {forbidden("exceeded quota"), true},
		"a rule of the definition or a policy: Invalid": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		"a webhook that denies with 400":                {webhook, true},
		"a webhook that does not answer":                {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"wrapped":                                       {fmt.Errorf("create the pod: %w", forbidden("no")), true},
		"it exists: the cache is late":                  {apierrors.NewAlreadyExists(pods, "p"), false},
		"another writer was faster":                     {apierrors.NewConflict(pods, "p", errors.New("no")), false},
		"no such namespace or parent":                   {apierrors.NewNotFound(pods, "p"), false},
		"the API server is busy":                        {apierrors.NewTooManyRequests("busy", 1), false},
		"the API server does not answer in time":        {apierrors.NewTimeoutError("late", 1), false},
		"the API server is away":                        {apierrors.NewServiceUnavailable("away"), false},
		"the token is no longer valid":                  {apierrors.NewUnauthorized("expired"), false},
		"an error of the connection":                    {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			marked := OfChild(tc.err)
			assert.ErrorIs(t, marked, tc.err)
			if !tc.refused {
				assert.Equal(t, tc.err, marked)
				assert.Empty(t, ChildRefusal(marked))
				return
			}
			assert.Equal(t, "sync: "+tc.err.Error(), ChildRefusal(fmt.Errorf("sync: %w", marked)))
			assert.Empty(t, ChildRefusal(tc.err), "what is not marked is not of a child")
		})
	}
}

func TestARefusalIsShownOnceAndUntilTheChildIsCreated(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type step struct {
		after time.Duration // since the start
		err   error
		shown bool
		words string
	}
	first, second := OfChild(forbidden("used 1")), OfChild(forbidden("used 2"))
	for name, steps := range map[string][]step{
		"nothing refused → nothing shown":                {{0, nil, false, ""}},
		"the same words again → not shown again":         {{0, first, true, first.Error()}, {time.Hour, first, false, first.Error()}},
		"other words at once → the first ones stand":     {{0, first, true, first.Error()}, {29 * time.Second, second, false, first.Error()}},
		"other words after a while → shown":              {{0, first, true, first.Error()}, {30 * time.Second, second, true, second.Error()}},
		"created → gone":                                 {{0, first, true, first.Error()}, {1, nil, false, ""}},
		"refused again after it was created → shown":     {{0, first, true, first.Error()}, {1, nil, false, ""}, {2, first, true, first.Error()}},
		"the API server is away → the last words stand":  {{0, first, true, first.Error()}, {time.Hour, errors.New("away"), false, first.Error()}},
		"an error that is no refusal → nothing is shown": {{0, errors.New("away"), false, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var r Refusals[string]
			for i, s := range steps {
				assert.Equal(t, s.shown, r.Tried("a", s.err, start.Add(s.after)), "step %d", i)
				assert.Equal(t, s.words, r.Words("a"), "step %d", i)
				assert.Empty(t, r.Words("b"))
			}
			r.Forget("a")
			assert.Empty(t, r.Words("a"))
		})
	}
}
