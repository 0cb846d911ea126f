package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// TokenCookie holds the bearer token of a person who logged in with the page. Scripts cannot read it, no page of
// another site can send it, and it never goes over plain HTTP. Browsers accept a cookie with this prefix of the name
// only from this host and over TLS. So neither the server of a sibling domain nor a request over plain HTTP can replace
// it.
const TokenCookie = "__Host-longhorn-token"

// earlierTokenCookie is the name that daemons of releases before TokenCookie know. While daemons of both releases run,
// a login with one daemon must be valid at the others. So this cookie is set in addition to TokenCookie, and it counts
// if TokenCookie was not sent.
const earlierTokenCookie = "longhorn-token"

// The paths that a BrowserGateway answers itself, in addition to the paths of the page.
const (
	pathLogin   = "/v1/login"
	pathLogout  = "/v1/logout"
	pathSession = "/v1/session"
	pathAssets  = "/assets/"
)

// maxLogin is the longest body of a login, in bytes: a token and a little JSON.
const maxLogin = maxToken + 1<<10

var errOtherOrigin = &refusal{http.StatusForbidden, "requests from web pages of other origins are refused"}

// BrowserGateway serves on every daemon what browsers of people need, before requests are passed on to the leader. It
// serves the page and the login, and translates the login's cookie into the Authorization header that a Guard requires.
// So a Guard, a Forwarder and a leader of another release see requests of the page as they see requests of programs.
//
//	browser ──► BrowserGateway ──► Forwarder ──► Guard ──► Server
//	              ├── /, /volumes/..., /assets/...: the page
//	              └── /v1/login, /v1/logout, /v1/session
type BrowserGateway struct {
	access  Access
	trusted func() bool
	page    http.Handler
	next    http.Handler
	log     *logrus.Entry
	logins  chan struct{} // has an element for each login under way
}

// NewBrowserGateway returns a BrowserGateway. page serves the page's files, and is called for requests without a
// credential; nil: there is no page.
func NewBrowserGateway(access Access, trusted func() bool, page, next http.Handler, log *logrus.Entry) *BrowserGateway {
	return &BrowserGateway{access: access, trusted: trusted, page: page, next: next, log: log, logins: make(chan struct{}, maxLogins)}
}

// ServeHTTP answers a request or passes it on.
func (f *BrowserGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.page != nil && isForPage(r) {
		f.page.ServeHTTP(w, r)
		return
	}
	if err := f.replaceCookie(r); err != nil {
		f.refuse(w, r, err)
		return
	}
	answer := map[string]func(http.ResponseWriter, *http.Request) error{pathLogin: f.login, pathLogout: f.logout, pathSession: f.session}[r.URL.Path]
	if answer == nil {
		f.next.ServeHTTP(w, r)
		return
	}
	if err := answer(w, r); err != nil {
		f.refuse(w, r, err)
	}
}

// isForPage reports whether a request is for a file of the page, or for one of its views: a person opens it with a
// browser, which requests HTML. The API's own paths are never for the page, and "/" is not if a program requests it.
func isForPage(r *http.Request) bool {
	path := r.URL.Path
	if strings.HasPrefix(path, pathAssets) {
		return true
	}
	if path == pathMetrics || path == pathHealthz || path == "/v1" || strings.HasPrefix(path, "/v1/") {
		return false
	}
	return wantsHTML(r)
}

// replaceCookie replaces a request's cookie by the Authorization header that the cookie stands for. It only removes the
// cookie if the request has an Authorization header of its own.
//
// A browser sends the cookie for a request of any page. So a request that changes something must come from this
// server's own page. A request that opens a stream must too, because the browser lets every page read a stream.
// replaceCookie checks this by the header Origin, which pages cannot write.
func (f *BrowserGateway) replaceCookie(r *http.Request) error {
	token, given := cookieToken(r)
	counts := given && r.Header.Get("Authorization") == ""
	switch {
	case counts && (isUpgrade(r) || !isSafe(r.Method)) && !isSameOrigin(r, true),
		isUpgrade(r) && r.Header.Get("Origin") != "" && !isSameOrigin(r, false):
		return errOtherOrigin
	case counts:
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// cookieToken removes the cookie from a request; other cookies stay. If there are two cookies with one name, the token
// cannot be used.
func cookieToken(r *http.Request) (token string, given bool) {
	values := map[string][]string{TokenCookie: nil, earlierTokenCookie: nil}
	var rest []*http.Cookie
	for _, c := range r.Cookies() {
		if _, isOurs := values[c.Name]; isOurs {
			values[c.Name] = append(values[c.Name], c.Value)
		} else {
			rest = append(rest, c)
		}
	}
	found := values[TokenCookie]
	if len(found) == 0 {
		found = values[earlierTokenCookie]
	}
	if len(found) == 0 {
		return "", false
	}
	r.Header.Del("Cookie")
	for _, c := range rest {
		r.AddCookie(c)
	}
	if len(found) > 1 {
		return "", true
	}
	return found[0], true
}

func isUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Upgrade"), func(v string) bool { return strings.Contains(strings.ToLower(v), "websocket") })
}

// isSameOrigin reports whether the page that sent a request came from the host that the request names. If byScheme, the
// scheme must match too. A request that another daemon passed on may have reached that daemon by another scheme.
func isSameOrigin(r *http.Request, byScheme bool) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || len(r.Header.Values("Origin")) != 1 || origin.Host == "" {
		return false
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if byScheme && origin.Scheme != scheme {
		return false
	}
	return strings.EqualFold(withoutDefaultPort(origin.Scheme, origin.Host), withoutDefaultPort(origin.Scheme, r.Host))
}

// Nothing is known about the sender of a login before its body was read. So only a few bodies are read at a time, each
// for a short time: each occupies one of the slots for requests, which other clients need.
const (
	maxLogins        = 16
	loginReadTimeout = 5 * time.Second
)

// login checks a token and answers with the cookie that stands for it.
func (f *BrowserGateway) login(w http.ResponseWriter, r *http.Request) error {
	if err := f.checkSessionChange(r); err != nil {
		return err
	}
	if r.TLS == nil {
		return &refusal{http.StatusForbidden, "a token is accepted only over TLS: use https://"}
	}
	select {
	case f.logins <- struct{}{}:
		defer func() { <-f.logins }()
	default:
		return &refusal{http.StatusTooManyRequests, "too many logins at the same time; try again"}
	}
	// if w has no deadline, the server's own applies
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(loginReadTimeout))
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return &refusal{http.StatusRequestEntityTooLarge, "the body must be JSON with a token of at most 16 KiB"}
	}
	var in v1.Login
	if json.Unmarshal(body, &in) != nil {
		return &refusal{http.StatusBadRequest, `the body must be JSON: {"token": "..."}`}
	}
	token := strings.TrimSpace(in.Token)
	switch {
	case token == "":
		return &refusal{http.StatusUnprocessableEntity, "token: is required"}
	case len(token) > maxToken || strings.ContainsFunc(token, isInvalidTokenRune):
		return ErrUnauthenticated
	}
	identity, err := f.access.Authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	setCookies(w, token, 0)
	f.log.WithField("user", identity.User).Info("a user logged in to the web page")
	return f.writeSession(w, r, identity)
}

// logout makes the browser delete the cookie.
func (f *BrowserGateway) logout(w http.ResponseWriter, r *http.Request) error {
	if err := f.checkSessionChange(r); err != nil {
		return err
	}
	setCookies(w, "", -1)
	return write(w, r, reply{status: http.StatusNoContent})
}

// checkSessionChange refuses a request that is not a POST, and a request of another site's page.
func (f *BrowserGateway) checkSessionChange(r *http.Request) error {
	if r.Method != http.MethodPost {
		return &methodError{method: r.Method, allowed: []string{http.MethodPost}}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return errOtherOrigin
	}
	return nil
}

// session answers who is logged in. It also answers without a credential: the page uses it to find out whether a login
// is needed.
func (f *BrowserGateway) session(w http.ResponseWriter, r *http.Request) error {
	if !isSafe(r.Method) {
		return &methodError{method: r.Method, allowed: []string{http.MethodGet}}
	}
	token, given := bearerToken(r)
	if !given {
		return f.writeSession(w, r, Identity{})
	}
	identity, err := Identity{}, ErrUnauthenticated
	if token != "" && len(token) <= maxToken {
		identity, err = f.access.Authenticate(r.Context(), token)
	}
	if errors.Is(err, ErrUnauthenticated) {
		setCookies(w, "", -1)
		return f.writeSession(w, r, Identity{})
	}
	if err != nil {
		return err
	}
	return f.writeSession(w, r, identity)
}

func (f *BrowserGateway) writeSession(w http.ResponseWriter, r *http.Request, identity Identity) error {
	return write(w, r, reply{http.StatusOK, &v1.Session{
		Resource: v1.Resource{Type: v1.TypeSession, Links: map[string]string{"self": strings.TrimSuffix(baseURL(r), "/v1") + pathSession}, Actions: map[string]string{}},
		User:     identity.User, TrustedNetwork: isTrustedBy(r, f.trusted),
	}})
}

// setCookies sets cookies. If maxAge is 0, they end with the browser; if it is negative, they are deleted immediately.
// The token itself contains its expiry.
func setCookies(w http.ResponseWriter, value string, maxAge int) {
	for _, name := range []string{TokenCookie, earlierTokenCookie} {
		http.SetCookie(w, &http.Cookie{
			Name: name, Value: value, Path: "/", MaxAge: maxAge,
			HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
		})
	}
}

// isInvalidTokenRune reports whether c cannot be in a bearer token. Tokens have letters, digits and -._~+/= (RFC 6750
// section 2.1), none of which a cookie would change.
func isInvalidTokenRune(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-._~+/=", c))
}

func (f *BrowserGateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if methodErr, ok := errors.AsType[*methodError](err); ok {
		w.Header().Set("Allow", methodErr.allow())
		err = &refusal{http.StatusMethodNotAllowed, methodErr.Error()}
	}
	respond(w, r, refusalOf(err, f.log))
}
