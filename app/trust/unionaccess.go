package trust

import (
	"context"
	"errors"

	"github.com/longhorn-lep/longhorn-manager/api"
)

// UnionAccess is an api.Access that accepts the tokens of First and of Second. Metrics are read with it: Prometheus has
// tokens for the API server, because its operator takes them from Secrets. Reading metrics needs less protection than
// changes.
type UnionAccess struct{ First, Second api.Access }

// Authenticate asks Second if First refuses a token, or if First does not review it because there are too many
// guesses: Second may know the token. Any other error of First ends the search, because it does not tell whose token
// it is.
func (e UnionAccess) Authenticate(ctx context.Context, token string) (api.Identity, error) {
	identity, err := e.First.Authenticate(ctx, token)
	isLeftOpen := errors.Is(err, api.ErrTooManyReviews)
	if !isLeftOpen && !errors.Is(err, api.ErrUnauthenticated) {
		return identity, err
	}
	identity, second := e.Second.Authenticate(ctx, token)
	if isLeftOpen && errors.Is(second, api.ErrUnauthenticated) {
		return api.Identity{}, err
	}
	return identity, second
}

// Allowed asks First: rights do not depend on the audience of the token.
func (e UnionAccess) Allowed(ctx context.Context, identity api.Identity, what api.Attributes) (bool, error) {
	return e.First.Allowed(ctx, identity, what)
}
