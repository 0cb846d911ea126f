package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Identity is the sender of a request, as the API server reports it for the request's token.
type Identity struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string
}

// Access decides which user sent a request and which rights the user has. Both functions must return an error if they
// cannot know.
type Access interface {
	// Authenticate returns the owner of a token. ErrUnauthenticated: the token is not valid, or no longer valid.
	Authenticate(ctx context.Context, token string) (Identity, error)
	// Allowed reports whether the identity has a right.
	Allowed(ctx context.Context, identity Identity, what Attributes) (bool, error)
}

// The errors of Access. Any other error means that it could not decide.
var (
	ErrUnauthenticated = errors.New("the token is not valid: it must be of this cluster, not expired, and for the audience " + types.APIAudience)
	// ErrTooManyReviews: there are more unknown tokens or rights than may be reviewed at a time.
	ErrTooManyReviews = errors.New("too many tokens and rights are being checked at the same time")
)

// maxToken is the longest bearer token that is accepted, in bytes. Tokens of service accounts have about 1,200.
const maxToken = 16 << 10

// Guard passes a request to the next handler after its sender has proved an identity that has the right to it.
type Guard struct {
	access  Access
	trusted func() bool
	next    http.Handler
	log     *logrus.Entry
}

// NewGuard returns a Guard. While trusted returns true (trusted-network mode), the Guard also passes on requests
// without a bearer token, except those that isTrustedBy refuses. It always checks a bearer token. trusted must be
// quick: each request calls it.
func NewGuard(access Access, trusted func() bool, next http.Handler, log *logrus.Entry) *Guard {
	return &Guard{access: access, trusted: trusted, next: next, log: log}
}

// ServeHTTP answers /healthz to any client. It refuses all other requests, unless the sender's identity and right are
// proved:
//
//	401  no token, or a token that is not valid
//	403  no right
//	429  too many tokens are being checked
//	503  the API server does not decide on the token or on the right
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathHealthz {
		g.next.ServeHTTP(w, r)
		return
	}
	identity, err := g.authorize(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	ctx := context.WithValue(r.Context(), identityKey{}, identity)
	ctx = context.WithValue(ctx, reviewKey{}, func(ctx context.Context) error {
		_, err := g.authorize(r.WithContext(ctx))
		return err
	})
	if credential := r.Header.Get("Authorization"); credential != "" {
		ctx = context.WithValue(ctx, credentialKey{}, credential)
	}
	if identity.User != "" {
		ctx = context.WithValue(ctx, allowKey{}, func(ctx context.Context, what Attributes) error { return g.checkRight(ctx, identity, what) })
	}
	g.next.ServeHTTP(w, r.WithContext(ctx))
}

// identityKey is the key of the sender's user name in a request's context.
type identityKey struct{}

// reviewKey is the key of a request's review in its context.
type reviewKey struct{}

// reviewOf returns a function that repeats the review by which the Guard let the request through. It is for answers
// that take a long time. Without a Guard the function does nothing.
func reviewOf(ctx context.Context) func(context.Context) error {
	if review, ok := ctx.Value(reviewKey{}).(func(context.Context) error); ok {
		return review
	}
	return func(context.Context) error { return nil }
}

// isRefused reports whether authorize refused the request. Otherwise authorize could not decide.
func isRefused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok || errors.Is(err, ErrUnauthenticated)
}

// userOf returns the name of a request's sender; "" if none was proved.
func userOf(r *http.Request) string {
	identity, _ := r.Context().Value(identityKey{}).(Identity)
	return identity.User
}

// authorize returns the sender of a request that may be answered. It reads only the token, the method and the path. In
// trusted-network mode it also reads the headers by which a browser can be recognized. It ignores headers that name a
// user or a sender, because any client can write them.
func (g *Guard) authorize(r *http.Request) (Identity, error) {
	token, given := bearerToken(r)
	switch {
	case !given && isTrustedBy(r, g.trusted):
		return Identity{}, nil
	case !given:
		return Identity{}, missingCredential(r, g.trusted)
	case token == "" || len(token) > maxToken:
		return Identity{}, ErrUnauthenticated
	}
	identity, err := g.access.Authenticate(r.Context(), token)
	if err != nil {
		return Identity{}, err
	}
	return identity, g.checkRight(r.Context(), identity, attributesOf(r))
}

// checkRight refuses a request to which the identity has no right.
func (g *Guard) checkRight(ctx context.Context, identity Identity, what Attributes) error {
	allowed, err := g.access.Allowed(ctx, identity, what)
	if err != nil {
		return err
	}
	if !allowed {
		return &refusal{http.StatusForbidden, fmt.Sprintf("user %q has no right to %s", identity.User, what)}
	}
	return nil
}

// allowKey is the key of a function in a request's context. The function decides whether the request's sender has a
// further right.
type allowKey struct{}

// requireRight refuses a request whose sender lacks a right that the request needs in addition to the right to its
// route. It must be called before anything is changed. If no sender was proved (trusted-network mode), no right is
// required, as for the route.
func requireRight(ctx context.Context, what Attributes) error {
	allow, ok := ctx.Value(allowKey{}).(func(context.Context, Attributes) error)
	if !ok {
		return nil
	}
	err := allow(ctx, what)
	if err == nil {
		return nil
	}
	if refused := refusalFor(err); refused != nil {
		return refused
	}
	return &undecided{err}
}

// undecided is a right that could not be reviewed.
type undecided struct{ cause error }

func (u *undecided) Error() string { return "check a right of the user: " + u.cause.Error() }

func (u *undecided) Unwrap() error { return u.cause }

// textUndecided is the message to clients in that case.
const textUndecided = "the Kubernetes API server could not check the token or the rights of its user; try again"

// OnlyTLS returns a handler that refuses requests over plain HTTP, except while trusted returns true, and except
// /healthz. It must be in front of a Forwarder: the Forwarder sends requests to the leader over TLS, however it
// received them.
func OnlyTLS(trusted func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && r.URL.Path != pathHealthz && !trusted() {
			respond(w, r, &refusal{http.StatusForbidden, "plain HTTP is refused: use https:// with a bearer token; setting rest-trusted-network can allow plain HTTP"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearerToken returns a request's token, and whether the request has one, even an empty one. If there are two
// Authorization headers, the token cannot be used.
func bearerToken(r *http.Request) (token string, given bool) {
	headers := r.Header.Values("Authorization")
	for _, h := range headers {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(h), " ")
		if strings.EqualFold(scheme, "Bearer") {
			token, given = strings.TrimSpace(rest), true
		}
	}
	if len(headers) > 1 || strings.ContainsAny(token, " \t,") {
		token = ""
	}
	return token, given
}

func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	respond(w, r, refusalOf(err, g.log))
}

// refusalOf returns the answer to a request whose credentials were refused or could not be checked.
func refusalOf(err error, log *logrus.Entry) *refusal {
	refused := refusalFor(err)
	if refused == nil {
		refused = &refusal{http.StatusServiceUnavailable, textUndecided}
		log.WithError(err).Warn("credentials could not be checked")
	}
	return refused
}

// refusalFor returns the refusal that an error means; nil: it could not be decided whether to refuse.
func refusalFor(err error) *refusal {
	refused, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
		return refused
	case errors.Is(err, ErrUnauthenticated):
		return &refusal{http.StatusUnauthorized, ErrUnauthenticated.Error()}
	case errors.Is(err, ErrTooManyReviews):
		return &refusal{http.StatusTooManyRequests, ErrTooManyReviews.Error() + "; try again"}
	}
	return nil
}

// respond refuses a request without reading its body, so that the connection serves no other request.
func respond(w http.ResponseWriter, r *http.Request, refused *refusal) {
	header := w.Header()
	switch refused.status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		header.Set("Retry-After", "1")
	}
	if r.ContentLength != 0 {
		header.Set("Connection", "close")
	}
	_ = write(w, r, reply{refused.status, errorOf(refused)})
}
