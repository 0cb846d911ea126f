package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sirupsen/logrus"
)

// Identity is who sent a request, as the API server says of the request's token.
type Identity struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string
}

// Access decides who sent a request and what they may do. Both functions must answer with an error where they cannot know.
type Access interface {
	// Authenticate returns the owner of a token. ErrUnauthenticated: the token is not, or no longer, good.
	Authenticate(ctx context.Context, token string) (Identity, error)
	// Allowed tells whether the identity has a right.
	Allowed(ctx context.Context, who Identity, what Attributes) (bool, error)
}

// What Access may fail with. Any other error means that it could not decide.
var (
	ErrUnauthenticated = errors.New("the token is not valid")
	// ErrTooManyReviews: more unknown tokens or rights came than may be asked about.
	ErrTooManyReviews = errors.New("too many credentials are being checked")
)

// maxToken is the longest bearer token that is looked at, in bytes. Those of service accounts have about 1,200.
const maxToken = 16 << 10

// Guard lets a request through to the next handler when its sender has proved who they are and has the right to it.
type Guard struct {
	access  Access
	trusted func() bool
	next    http.Handler
	log     *logrus.Entry
}

// NewGuard returns a Guard. While trusted answers true (trusted-network mode) requests without a bearer token are let through as well, but
// for those of isTrustedBy. A
// bearer token is always checked. trusted must be quick: each request calls it.
func NewGuard(access Access, trusted func() bool, next http.Handler, log *logrus.Entry) *Guard {
	return &Guard{access: access, trusted: trusted, next: next, log: log}
}

// ServeHTTP answers /healthz without asking who wants to know, and refuses all other requests that it cannot justify:
//
//	401  no token, or one that is not good
//	403  no right
//	429  too many tokens are being checked
//	503  the API server does not say whose token it is, or what they may do
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathHealthz {
		g.next.ServeHTTP(w, r)
		return
	}
	who, err := g.judge(r)
	if err != nil {
		g.refuse(w, r, err)
		return
	}
	ctx := context.WithValue(r.Context(), identityKey{}, who)
	ctx = context.WithValue(ctx, reviewKey{}, func(ctx context.Context) error {
		_, err := g.judge(r.WithContext(ctx))
		return err
	})
	if credential := r.Header.Get("Authorization"); credential != "" {
		ctx = context.WithValue(ctx, credentialKey{}, credential)
	}
	if who.User != "" {
		ctx = context.WithValue(ctx, allowKey{}, func(ctx context.Context, what Attributes) error { return g.allow(ctx, who, what) })
	}
	g.next.ServeHTTP(w, r.WithContext(ctx))
}

// identityKey is the key of the sender's user name in a request's context.
type identityKey struct{}

// reviewKey is the key of a request's review in its context.
type reviewKey struct{}

// reviewOf asks once more what the Guard asked before it let the request through: for what is answered over a long time. Without a Guard
// there is nothing to ask.
func reviewOf(ctx context.Context) func(context.Context) error {
	if review, ok := ctx.Value(reviewKey{}).(func(context.Context) error); ok {
		return review
	}
	return func(context.Context) error { return nil }
}

// isRefused tells whether judge has decided; otherwise it could not.
func isRefused(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok || errors.Is(err, ErrUnauthenticated)
}

// userOf is the name of a request's sender; "" where none was proved.
func userOf(r *http.Request) string {
	who, _ := r.Context().Value(identityKey{}).(Identity)
	return who.User
}

// judge says who sent a request that may be answered. It looks at nothing but the token, the method and the path, and in trusted-network
// mode at what gives a browser away: headers that name a user or a sender are anybody's to write.
func (g *Guard) judge(r *http.Request) (Identity, error) {
	token, given := bearerToken(r)
	switch {
	case !given && isTrustedBy(r, g.trusted):
		return Identity{}, nil
	case !given:
		return Identity{}, missingCredential(r, g.trusted)
	case token == "" || len(token) > maxToken:
		return Identity{}, ErrUnauthenticated
	}
	who, err := g.access.Authenticate(r.Context(), token)
	if err != nil {
		return Identity{}, err
	}
	return who, g.allow(r.Context(), who, attributesOf(r))
}

// allow refuses what somebody has no right to.
func (g *Guard) allow(ctx context.Context, who Identity, what Attributes) error {
	allowed, err := g.access.Allowed(ctx, who, what)
	if err != nil {
		return err
	}
	if !allowed {
		return &refusal{http.StatusForbidden, fmt.Sprintf("user %q has no right to %s", who.User, what)}
	}
	return nil
}

// allowKey is the key of what says whether a request's sender has a further right, in its context.
type allowKey struct{}

// needs refuses a request whose sender lacks a right that it needs beside that to its route. It must be called before anything is
// changed. Where no sender was proved (trusted-network mode) nothing is required, as for the route.
func needs(ctx context.Context, what Attributes) error {
	allow, ok := ctx.Value(allowKey{}).(func(context.Context, Attributes) error)
	if !ok {
		return nil
	}
	err := allow(ctx, what)
	if err == nil {
		return nil
	}
	if refused := decided(err); refused != nil {
		return refused
	}
	return &undecided{err}
}

// undecided is a right that could not be reviewed.
type undecided struct{ cause error }

func (u *undecided) Error() string { return "review a right: " + u.cause.Error() }

func (u *undecided) Unwrap() error { return u.cause }

// textUndecided is what clients are told then.
const textUndecided = "the API server does not say whose token this is, or what they may do; try again"

// OnlyTLS returns a handler that refuses requests over plain HTTP, except while trusted answers true, and /healthz. It must stand before a
// Forwarder: what comes from there to the leader comes over TLS, however it was sent.
func OnlyTLS(trusted func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && r.URL.Path != pathHealthz && !trusted() {
			respond(w, r, &refusal{http.StatusForbidden, "plain HTTP is not answered: use https:// with a bearer token, or see setting rest-trusted-network"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearerToken is a request's token, and whether it gives one, were it an empty one. Two Authorization headers give none that
// can be used.
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

// refusalOf is what the sender of a request is told whose credentials were refused or could not be checked.
func refusalOf(err error, log *logrus.Entry) *refusal {
	refused := decided(err)
	if refused == nil {
		refused = &refusal{http.StatusServiceUnavailable, textUndecided}
		log.WithError(err).Warn("credentials could not be checked")
	}
	return refused
}

// decided is the refusal that an error means; nil: nobody could tell whether to refuse.
func decided(err error) *refusal {
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

// respond refuses a request without reading its body, so that the connection serves no other one.
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
