package trust

import (
	"context"
	"errors"

	"github.com/longhorn-lep/longhorn-manager/api"
)

// Either is an api.Access that takes the tokens of both. Metrics are read with it: Prometheus has tokens for the API server, as
// its operator takes them from Secrets, and what it reads is worth less than what a token could change.
type Either struct{ First, Second api.Access }

// Authenticate asks Second about a token that is not good for First, or that First does not ask about among too many guesses: Second may
// know it. Another error that leaves it open whose the token is ends the search.
func (e Either) Authenticate(ctx context.Context, token string) (api.Identity, error) {
	who, err := e.First.Authenticate(ctx, token)
	isLeftOpen := errors.Is(err, api.ErrTooManyReviews)
	if !isLeftOpen && !errors.Is(err, api.ErrUnauthenticated) {
		return who, err
	}
	who, second := e.Second.Authenticate(ctx, token)
	if isLeftOpen && errors.Is(second, api.ErrUnauthenticated) {
		return api.Identity{}, err
	}
	return who, second
}

// Allowed asks First: rights do not depend on what the token is for.
func (e Either) Allowed(ctx context.Context, who api.Identity, what api.Attributes) (bool, error) {
	return e.First.Allowed(ctx, who, what)
}
