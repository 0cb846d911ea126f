package trust

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/longhorn-lep/longhorn-manager/api"
)

func TestUnionAccess(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second authenticationv1.TokenReviewStatus
		failed        error // error of the first review
		want          error
	}{
		{"good for the first → taken", good("us"), authenticationv1.TokenReviewStatus{}, nil, nil},
		{"good for the second → taken", authenticationv1.TokenReviewStatus{}, good("https://kubernetes.default.svc"), nil, nil},
		{"good for neither → refused", authenticationv1.TokenReviewStatus{}, authenticationv1.TokenReviewStatus{}, nil, api.ErrUnauthenticated},
		{"the first does not know → refused, the second is not asked", good("us"), good(""), errors.New("no answer"), errors.New("no answer")},
	} {
		first, second := newAPIServer(), newAPIServer()
		first.token, first.err, second.token = tc.first, tc.failed, tc.second
		_, err := UnionAccess{first.reviews("us"), second.reviews("")}.Authenticate(t.Context(), "secret")
		if tc.want == nil {
			assert.NoError(t, err, tc.name)
			continue
		}
		assert.ErrorContains(t, err, tc.want.Error(), tc.name)
		if tc.failed != nil {
			assert.Empty(t, second.asked, tc.name)
		}
	}
}

func TestUnionAccessAsksForRightsOnce(t *testing.T) {
	first, second := newAPIServer(), newAPIServer()
	second.access.Allowed = true
	allowed, err := UnionAccess{first.reviews("us"), second.reviews("")}.Allowed(t.Context(), api.Identity{User: "ann"}, api.Attributes{Verb: "get", Path: "/metrics"})
	assert.NoError(t, err)
	assert.False(t, allowed, "the first says no")
	assert.Empty(t, second.asked)
}

// TestAKnownScraperIsNotBlockedByGuesses: a known scraper is served while another client guesses tokens. First does not
// know its token.
func TestAKnownScraperIsNotBlockedByGuesses(t *testing.T) {
	first, second := newAPIServer(), newAPIServer()
	second.token = good("https://kubernetes.default.svc")
	reviews := first.reviews("us")
	e := UnionAccess{reviews, second.reviews("")}
	_, err := e.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	first.pass(PositiveTTL + time.Second)
	second.pass(PositiveTTL + time.Second)
	first.guess(t, reviews)
	_, err = e.Authenticate(t.Context(), "secret")
	require.NoError(t, err)
	second.token = authenticationv1.TokenReviewStatus{}
	_, err = e.Authenticate(t.Context(), "guess for both")
	require.ErrorIs(t, err, api.ErrTooManyReviews, "the first might have said yes")
}
