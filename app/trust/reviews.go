package trust

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/longhorn-lep/longhorn-manager/api"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

const (
	// YesLife is how long a review that says yes is believed: a token that is revoked, and a right that is taken away, may be used
	// so long. The API server's own delegated authentication has the same.
	YesLife = 10 * time.Second
	// noLife is how long a review that says no is believed.
	noLife = 5 * time.Second
	// reviewTimeout bounds a review.
	reviewTimeout = 10 * time.Second
	// maxRemembered is how many tokens, and how many rights, are remembered.
	maxRemembered = 4096
	// reviewsPerSecond and reviewsBurst bound what unknown tokens cost the API server.
	reviewsPerSecond = 50
	reviewsBurst     = 200
)

// Reviews asks the API server about tokens and rights, and remembers its answers for a short time. It implements api.Access.
type Reviews struct {
	kube      kubernetes.Interface
	namespace string
	audience  string // "": the API server's
	clock     clock.PassiveClock
	salt      [32]byte
	budget    *rate.Limiter

	tokens, rights *lru.Cache // sum → remembered[...]
	flights        singleflight.Group
}

// remembered is an answer, and until when it is believed.
type remembered[T any] struct {
	answer T
	until  time.Time
}

// sum stands for a token or a right in memory: whoever reads the memory of a daemon does not find tokens in this cache.
type sum [sha256.Size]byte

// NewReviews returns an Access that takes tokens for the audience alone, and rights in the namespace. An empty audience means the
// API server's own.
func NewReviews(kube kubernetes.Interface, namespace, audience string, c clock.PassiveClock) *Reviews {
	r := &Reviews{
		kube: kube, namespace: namespace, audience: audience, clock: c, budget: rate.NewLimiter(reviewsPerSecond, reviewsBurst),
		tokens: lru.New(maxRemembered), rights: lru.New(maxRemembered),
	}
	_, _ = rand.Read(r.salt[:]) // it never fails (crypto/rand)
	return r
}

// verdict is what a TokenReview said.
type verdict struct {
	who  api.Identity
	good bool
}

// Authenticate returns the owner of a token. api.ErrUnauthenticated: it is not good for this API.
func (r *Reviews) Authenticate(ctx context.Context, token string) (api.Identity, error) {
	v, err := recall(ctx, r, r.tokens, r.sumOf("token", token), func(ctx context.Context) (verdict, time.Duration, error) {
		v, err := r.reviewToken(ctx, token)
		return v, lifeOf(v.good), err
	})
	if err != nil {
		return api.Identity{}, fmt.Errorf("review a token: %w", err)
	}
	if !v.good {
		return api.Identity{}, api.ErrUnauthenticated
	}
	return v.who, nil
}

func (r *Reviews) reviewToken(ctx context.Context, token string) (verdict, error) {
	spec := authenticationv1.TokenReviewSpec{Token: token}
	if r.audience != "" {
		spec.Audiences = []string{r.audience}
	}
	review, err := r.kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, err
	}
	status := review.Status
	switch {
	// An authenticator that knows no audiences answers without any: the token is for the API server.
	case status.Authenticated && r.audience != "" && !slices.Contains(status.Audiences, r.audience):
		return verdict{}, nil
	case status.Authenticated && status.User.Username != "":
		who := api.Identity{User: status.User.Username, UID: status.User.UID, Groups: status.User.Groups, Extra: map[string][]string{}}
		for key, values := range status.User.Extra {
			who.Extra[key] = values
		}
		return verdict{who, true}, nil
	}
	// status.Error says why: of a token that has expired as of a webhook that does not answer. Both mean no.
	return verdict{}, nil
}

// Allowed tells whether the API server's authorizers give a right in the namespace.
func (r *Reviews) Allowed(ctx context.Context, who api.Identity, what api.Attributes) (bool, error) {
	key := r.sumOf("right", fmt.Sprintf("%q %q %q %q %q", who.User, who.UID, who.Groups, who.Extra,
		[]string{what.Verb, what.Group, what.Namespace, what.Resource, what.Name, what.Path}))
	allowed, err := recall(ctx, r, r.rights, key, func(ctx context.Context) (bool, time.Duration, error) {
		allowed, err := r.reviewRight(ctx, who, what)
		return allowed, lifeOf(allowed), err
	})
	if err != nil {
		return false, fmt.Errorf("review a right to %s: %w", what, err)
	}
	return allowed, nil
}

func (r *Reviews) reviewRight(ctx context.Context, who api.Identity, what api.Attributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: who.User, UID: who.UID, Groups: who.Groups, Extra: map[string]authorizationv1.ExtraValue{}}
	for key, values := range who.Extra {
		spec.Extra[key] = values
	}
	if what.Resource == "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: what.Path, Verb: what.Verb}
	} else {
		spec.ResourceAttributes = r.resourceOf(what)
	}
	review, err := r.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	// status.EvaluationError may be about a binding that has nothing to do with this right.
	return review.Status.Allowed && !review.Status.Denied, nil
}

// resourceOf is what is asked for, as authorizers know it.
func (r *Reviews) resourceOf(what api.Attributes) *authorizationv1.ResourceAttributes {
	a := &authorizationv1.ResourceAttributes{
		Namespace: cmp.Or(what.Namespace, r.namespace), Verb: what.Verb, Name: what.Name,
		Group: longhorn.SchemeGroupVersion.Group, Version: longhorn.SchemeGroupVersion.Version, Resource: what.Resource,
	}
	if what.Group == api.GroupCore {
		a.Group, a.Version = "", "v1"
	}
	if what.Namespace == api.NoNamespace {
		a.Namespace = ""
	}
	return a
}

func lifeOf(yes bool) time.Duration {
	if yes {
		return YesLife
	}
	return noLife
}

func (r *Reviews) sumOf(kind, text string) sum {
	return sha256.Sum256(append(r.salt[:], kind+" "+text...))
}

// recall returns what is remembered, or asks. Requests that want to know the same at a time ask once. An error is not remembered.
func recall[T any](ctx context.Context, r *Reviews, known *lru.Cache, key sum, ask func(context.Context) (T, time.Duration, error)) (T, error) {
	if found, ok := known.Get(key); ok {
		if m := found.(remembered[T]); r.clock.Now().Before(m.until) {
			return m.answer, nil
		}
	}
	flight := r.flights.DoChan(string(key[:]), func() (any, error) {
		if !r.budget.AllowN(r.clock.Now(), 1) {
			return nil, api.ErrTooManyReviews
		}
		// Others wait for it too, so it does not end with the first one's request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		asked := r.clock.Now()
		answer, life, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		known.Add(key, remembered[T]{answer, asked.Add(life)})
		return answer, nil
	})
	var none T
	select {
	case result := <-flight:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(T), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
