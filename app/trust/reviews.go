package trust

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

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
	// PositiveTTL is how long a positive review is valid. A revoked token or a removed right can be used for this time.
	// The API server's own delegated authentication uses the same value.
	PositiveTTL = 10 * time.Second
	// negativeTTL is how long a negative review is valid.
	negativeTTL = 5 * time.Second
	// reviewTimeout limits the time of a review.
	reviewTimeout = 10 * time.Second
	// maxCached is the maximum number of stored answers of each kind: valid and other tokens, granted and other
	// rights.
	maxCached = 4096
	// guessesPerSecond and guessesBurst limit the reviews of all tokens that are not known to be valid, together.
	guessesPerSecond = 50
	guessesBurst     = 200
	// userPerSecond and userBurst limit the reviews of one user: of rights, and of tokens that were valid before. CSI
	// is one user, and requests rights to each volume.
	userPerSecond = 200
	userBurst     = 400
)

// Reviews asks the API server about tokens and rights, and stores its answers for a short time. It implements
// api.Access.
type Reviews struct {
	kube      kubernetes.Interface
	namespace string
	audience  string // "": the API server's audience
	clock     clock.PassiveClock
	salt      [32]byte

	tokens reviewCache[tokenReview]
	rights reviewCache[bool]
	// Each review needs a place in a budget: guesses, or the budget of its user. So a client that guesses tokens, or
	// requests rights endlessly, takes nothing from known users.
	guesses *rate.Limiter
	users   *lru.Cache // name → *rate.Limiter
}

// NewReviews returns an Access that accepts only tokens for the audience, and checks rights in the namespace. An
// empty audience means the audience of the API server.
func NewReviews(kube kubernetes.Interface, namespace, audience string, c clock.PassiveClock) *Reviews {
	r := &Reviews{
		kube: kube, namespace: namespace, audience: audience, clock: c,
		tokens: newReviewCache[tokenReview](c), rights: newReviewCache[bool](c),
		guesses: rate.NewLimiter(guessesPerSecond, guessesBurst), users: lru.New(maxCached),
	}
	_, _ = rand.Read(r.salt[:]) // never fails (crypto/rand)
	return r
}

// tokenReview is the result of a TokenReview.
type tokenReview struct {
	identity api.Identity
	isValid  bool
}

// Authenticate returns the owner of a token. api.ErrUnauthenticated means that the token is not valid for this API.
func (r *Reviews) Authenticate(ctx context.Context, token string) (api.Identity, error) {
	key, budget := r.keyOf(token), r.guesses
	if before, ok := r.tokens.lastPositive(key); ok {
		budget = r.budgetOf(before.identity)
	}
	v, err := r.tokens.get(ctx, key, budget, func(ctx context.Context) (tokenReview, bool, error) {
		v, err := r.reviewToken(ctx, token)
		return v, v.isValid, err
	})
	if err != nil {
		return api.Identity{}, fmt.Errorf("review a token: %w", err)
	}
	if !v.isValid {
		return api.Identity{}, api.ErrUnauthenticated
	}
	return v.identity, nil
}

func (r *Reviews) reviewToken(ctx context.Context, token string) (tokenReview, error) {
	spec := authenticationv1.TokenReviewSpec{Token: token}
	if r.audience != "" {
		spec.Audiences = []string{r.audience}
	}
	review, err := r.kube.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return tokenReview{}, err
	}
	status := review.Status
	switch {
	// An authenticator that does not support audiences returns none: the token is for the API server.
	case status.Authenticated && r.audience != "" && !slices.Contains(status.Audiences, r.audience):
		return tokenReview{}, nil
	case status.Authenticated && status.User.Username != "":
		identity := api.Identity{User: status.User.Username, UID: status.User.UID, Groups: status.User.Groups, Extra: map[string][]string{}}
		for key, values := range status.User.Extra {
			identity.Extra[key] = values
		}
		return tokenReview{identity, true}, nil
	}
	// status.Error has the reason: for example an expired token, or a webhook that does not answer. Both mean no.
	return tokenReview{}, nil
}

// Allowed reports whether the API server's authorizers grant a right in the namespace.
func (r *Reviews) Allowed(ctx context.Context, identity api.Identity, what api.Attributes) (bool, error) {
	key := r.keyOf(fmt.Sprintf("%q %q %q %q %q", identity.User, identity.UID, identity.Groups, identity.Extra,
		[]string{what.Verb, what.Group, what.Namespace, what.Resource, what.Name, what.Path}))
	allowed, err := r.rights.get(ctx, key, r.budgetOf(identity), func(ctx context.Context) (bool, bool, error) {
		allowed, err := r.reviewRight(ctx, identity, what)
		return allowed, allowed, err
	})
	if err != nil {
		return false, fmt.Errorf("review a right to %s: %w", what, err)
	}
	return allowed, nil
}

func (r *Reviews) reviewRight(ctx context.Context, identity api.Identity, what api.Attributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: identity.User, UID: identity.UID, Groups: identity.Groups, Extra: map[string]authorizationv1.ExtraValue{}}
	for key, values := range identity.Extra {
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
	// status.EvaluationError may be about a binding that does not concern this right.
	return review.Status.Allowed && !review.Status.Denied, nil
}

// resourceOf returns the requested right in the form of the authorizers.
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

// budgetOf returns the budget for a user's reviews.
func (r *Reviews) budgetOf(identity api.Identity) *rate.Limiter {
	if known, ok := r.users.Get(identity.User); ok {
		return known.(*rate.Limiter)
	}
	// Two concurrent first reviews may create two budgets; the later one stays.
	fresh := rate.NewLimiter(userPerSecond, userBurst)
	r.users.Add(identity.User, fresh)
	return fresh
}

func (r *Reviews) keyOf(text string) cacheKey {
	return sha256.Sum256(append(r.salt[:], text...))
}
