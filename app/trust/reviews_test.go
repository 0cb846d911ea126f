package trust

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/api"
)

// apiServer answers reviews.
type apiServer struct {
	kube   *fake.Clientset
	clock  *clocktesting.FakePassiveClock
	token  authenticationv1.TokenReviewStatus
	access authorizationv1.SubjectAccessReviewStatus
	err    error
	// asked are the specs of the reviews.
	asked []any
	// guessed is the number of tokens that guess has made up.
	guessed int
}

func newAPIServer() *apiServer {
	s := &apiServer{kube: fake.NewClientset(), clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	s.kube.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		s.asked = append(s.asked, review.Spec)
		return true, &authenticationv1.TokenReview{Status: s.token}, s.err
	})
	s.kube.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		s.asked = append(s.asked, review.Spec)
		return true, &authorizationv1.SubjectAccessReview{Status: s.access}, s.err
	})
	return s
}

func (s *apiServer) reviews(audience string) *Reviews {
	return NewReviews(s.kube, "longhorn-system", audience, s.clock)
}

func (s *apiServer) pass(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func good(audiences ...string) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: audiences,
		User: authenticationv1.UserInfo{Username: "ann", UID: "u1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
	}
}

// TestARevokedTokenStopsWorking: it stops working within PositiveTTL, but not before another review is needed.
func TestARevokedTokenStopsWorking(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	s.token = good("us", "others")
	identity, err := r.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	assert.Equal(t, api.Identity{User: "ann", UID: "u1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}, identity)

	s.token = authenticationv1.TokenReviewStatus{} // revoked
	s.pass(PositiveTTL - time.Nanosecond)
	_, err = r.Authenticate(t.Context(), "secret")
	require.NoError(t, err, "remembered")
	s.pass(time.Nanosecond)
	_, err = r.Authenticate(t.Context(), "secret")
	require.ErrorIs(t, err, api.ErrUnauthenticated)
	assert.Len(t, s.asked, 2)
	assert.Equal(t, authenticationv1.TokenReviewSpec{Token: "secret", Audiences: []string{"us"}}, s.asked[0])

	s.token = good("us")
	_, err = r.Authenticate(t.Context(), "secret")
	require.ErrorIs(t, err, api.ErrUnauthenticated, "a no is remembered too")
	s.pass(negativeTTL)
	_, err = r.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
}

func TestRequirementsOfATokenReview(t *testing.T) {
	for _, tc := range []struct {
		name     string
		audience string
		status   authenticationv1.TokenReviewStatus
		good     bool
	}{
		{"for this API → good", "us", good("us"), true},
		{"for another audience → not", "us", good("https://kubernetes.default.svc"), false},
		{"by an authenticator that knows no audiences → not", "us", good(), false},
		{"no audience wanted → good", "", good(), true},
		{"not authenticated → not", "us", authenticationv1.TokenReviewStatus{Audiences: []string{"us"}, User: authenticationv1.UserInfo{Username: "ann"}}, false},
		{"nobody's → not", "us", authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"us"}}, false},
		{"an error → not", "us", authenticationv1.TokenReviewStatus{Error: "token has expired"}, false},
	} {
		s := newAPIServer()
		s.token = tc.status
		_, err := s.reviews(tc.audience).Authenticate(t.Context(), "secret")
		if tc.good {
			assert.NoError(t, err, tc.name)
		} else {
			assert.ErrorIs(t, err, api.ErrUnauthenticated, tc.name)
		}
	}
}

// TestAFailedReviewGrantsNothing: if the API server does not answer, the result is an error, neither yes nor no, and
// the next request asks again at once.
func TestAFailedReviewGrantsNothing(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	s.token, s.access, s.err = good("us"), authorizationv1.SubjectAccessReviewStatus{Allowed: true}, errors.New("timeout")
	_, err := r.Authenticate(t.Context(), "secret")
	require.Error(t, err)
	require.NotErrorIs(t, err, api.ErrUnauthenticated)
	allowed, err := r.Allowed(t.Context(), api.Identity{User: "ann"}, api.Attributes{Verb: "get", Resource: "volumes"})
	require.Error(t, err)
	assert.False(t, allowed)
	s.err = nil
	_, err = r.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	// Stored answers are valid while the API server is away, but no longer than otherwise.
	s.err = errors.New("timeout")
	_, err = r.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	s.pass(PositiveTTL)
	_, err = r.Authenticate(t.Context(), "secret")
	require.Error(t, err)
}

func TestARemovedRightStopsWorking(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	ann := api.Identity{User: "ann", UID: "u1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
	remove := api.Attributes{Verb: "delete", Resource: "volumes", Name: "vol"}
	s.access.Allowed = true
	allowed, err := r.Allowed(t.Context(), ann, remove)
	require.NoError(t, err)
	assert.True(t, allowed)
	assert.Equal(t, authorizationv1.SubjectAccessReviewSpec{
		User: "ann", UID: "u1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "longhorn-system", Verb: "delete", Group: "longhorn.io", Version: "v1beta2", Resource: "volumes", Name: "vol",
		},
	}, s.asked[0])

	s.access.Allowed = false
	for _, other := range []struct {
		identity api.Identity
		what     api.Attributes
	}{
		{api.Identity{User: "ann", UID: "u1", Extra: ann.Extra}, remove},
		{api.Identity{User: "bob", UID: "u1", Groups: ann.Groups, Extra: ann.Extra}, remove},
		{ann, api.Attributes{Verb: "delete", Resource: "volumes", Name: "other"}},
		{ann, api.Attributes{Verb: "delete", Resource: "nodes", Name: "vol"}},
		{ann, api.Attributes{Verb: "get", Path: "/metrics"}},
	} {
		allowed, err = r.Allowed(t.Context(), other.identity, other.what)
		require.NoError(t, err)
		assert.False(t, allowed, "%v of %v is another right", other.what, other.identity)
	}
	assert.Equal(t, &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, s.asked[5].(authorizationv1.SubjectAccessReviewSpec).NonResourceAttributes)
	s.pass(PositiveTTL)
	allowed, err = r.Allowed(t.Context(), ann, remove)
	require.NoError(t, err)
	assert.False(t, allowed)

	s.pass(PositiveTTL)
	s.access = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}
	allowed, err = r.Allowed(t.Context(), ann, remove)
	require.NoError(t, err)
	assert.False(t, allowed, "denied is denied")
}

// TestARightIsReviewedWhereItIs: a review uses the namespace and the group of the request. The answer for one right
// is not used for another.
func TestARightIsReviewedWhereItIs(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	for _, tc := range []struct {
		what api.Attributes
		want authorizationv1.ResourceAttributes
	}{
		{
			api.Attributes{Verb: "create", Resource: "persistentvolumeclaims"},
			authorizationv1.ResourceAttributes{Namespace: "longhorn-system", Verb: "create", Group: "longhorn.io", Version: "v1beta2", Resource: "persistentvolumeclaims"},
		},
		{
			api.Attributes{Verb: "create", Group: api.GroupCore, Namespace: "shop", Resource: "persistentvolumeclaims"},
			authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "create", Version: "v1", Resource: "persistentvolumeclaims"},
		},
		{
			api.Attributes{Verb: "create", Group: api.GroupCore, Namespace: "bank", Resource: "persistentvolumeclaims"},
			authorizationv1.ResourceAttributes{Namespace: "bank", Verb: "create", Version: "v1", Resource: "persistentvolumeclaims"},
		},
		{
			api.Attributes{Verb: "create", Group: api.GroupCore, Namespace: api.NoNamespace, Resource: "persistentvolumes"},
			authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "persistentvolumes"},
		},
		{
			api.Attributes{Verb: "list", Group: api.GroupCore, Resource: "events"},
			authorizationv1.ResourceAttributes{Namespace: "longhorn-system", Verb: "list", Version: "v1", Resource: "events"},
		},
	} {
		before := len(s.asked)
		_, err := r.Allowed(t.Context(), api.Identity{User: "ann"}, tc.what)
		require.NoError(t, err)
		require.Len(t, s.asked, before+1, "%v is another right", tc.what)
		assert.Equal(t, &tc.want, s.asked[before].(authorizationv1.SubjectAccessReviewSpec).ResourceAttributes)
	}
}

// guess uses up the budget of guesses with unknown tokens. It also sends one more token, which is not reviewed.
func (s *apiServer) guess(t *testing.T, r *Reviews) {
	t.Helper()
	for {
		s.guessed++
		before := len(s.asked)
		_, err := r.Authenticate(t.Context(), fmt.Sprint("guess ", s.guessed))
		if errors.Is(err, api.ErrTooManyReviews) {
			assert.Len(t, s.asked, before)
			return
		}
		require.ErrorIs(t, err, api.ErrUnauthenticated)
	}
}

// TestUnknownTokensCostTheAPIServerLittle: after any number of guesses, known tokens and the rights of their owners
// still work, even if they must be reviewed again.
func TestUnknownTokensCostTheAPIServerLittle(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	s.access.Allowed = true
	use := func() (reviews int) {
		before := len(s.asked)
		s.token = good("us")
		identity, err := r.Authenticate(t.Context(), "secret")
		require.NoError(t, err)
		_, err = r.Allowed(t.Context(), identity, api.Attributes{Verb: "list", Resource: "volumes"})
		require.NoError(t, err)
		s.token = authenticationv1.TokenReviewStatus{}
		return len(s.asked) - before
	}
	assert.Equal(t, 2, use())
	before := len(s.asked)
	s.guess(t, r)
	assert.Len(t, s.asked, before+guessesBurst-1, "the first use of a token is a guess, too")
	assert.Equal(t, 0, use())
	for s.guessed < 2*maxCached {
		s.pass(PositiveTTL + time.Second)
		s.guess(t, r)
	}
	assert.Equal(t, 2, use())
	s.guess(t, r)
}

// TestARevokedTokenCountsAsAGuess: a client with a revoked token takes nothing from the token's former owner.
func TestARevokedTokenCountsAsAGuess(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	s.token = good("us")
	_, err := r.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	s.token = authenticationv1.TokenReviewStatus{}
	s.pass(PositiveTTL)
	_, err = r.Authenticate(t.Context(), "secret")
	require.ErrorIs(t, err, api.ErrUnauthenticated)
	s.pass(negativeTTL)
	s.guess(t, r)
	_, err = r.Authenticate(t.Context(), "secret")
	require.ErrorIs(t, err, api.ErrTooManyReviews)
}

// TestTheReviewsOfOneUserDoNotLimitOthers: a user who requests rights endlessly takes nothing from other
// users.
func TestTheReviewsOfOneUserDoNotLimitOthers(t *testing.T) {
	s := newAPIServer()
	r := s.reviews("us")
	ask := func(user string, i int) error {
		_, err := r.Allowed(t.Context(), api.Identity{User: user}, api.Attributes{Verb: "get", Resource: "volumes", Name: fmt.Sprint(i)})
		return err
	}
	for i := range userBurst {
		require.NoError(t, ask("ann", i))
	}
	require.ErrorIs(t, ask("ann", userBurst), api.ErrTooManyReviews)
	require.NoError(t, ask("bob", 0))
	s.pass(time.Second / userPerSecond)
	require.NoError(t, ask("ann", userBurst))
}
