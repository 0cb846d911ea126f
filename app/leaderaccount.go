package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// tokenLife is the lifetime of a token of the leader's account: the shortest that the API server grants. After half of
// it, the daemon requests a new token.
const tokenLife = 10 * time.Minute

// errTermEnded is the error of a request with the leader's account after this daemon has stopped leading.
var errTermEnded = errors.New("this daemon is no longer the leader")

// accountTokens requests tokens of an account, and stores the last token while it is valid.
type accountTokens struct {
	kube               kubernetes.Interface
	namespace, account string
	audience           string // for which the tokens are valid; "": the API server
	clock              clock.Clock

	mu    sync.Mutex
	token string    // guarded by mu
	until time.Time // guarded by mu; when the next token is requested
	ended bool      // guarded by mu; no token is returned any longer
}

// get returns a token that is valid for some minutes.
func (a *accountTokens) get(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return "", fmt.Errorf("use account %s: %w", a.account, errTermEnded)
	}
	if now := a.clock.Now(); a.token != "" && now.Before(a.until) {
		return a.token, nil
	}
	seconds := int64(tokenLife / time.Second)
	r, err := a.kube.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: a.audiences()},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of account %s: %w", a.account, err)
	}
	a.token = r.Status.Token
	// By the local clock: the API server's clock may differ, and the API server may grant a longer lifetime than
	// requested.
	a.until = a.clock.Now().Add(tokenLife / 2)
	return a.token, nil
}

func (a *accountTokens) audiences() []string {
	if a.audience == "" {
		return nil
	}
	return []string{a.audience}
}

// forget makes the next call of get request a new token, if the refused token is the current one.
func (a *accountTokens) forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token == token {
		a.token = ""
	}
}

// drop ends the use of the account. Requests that are still made with it, such as queued Events, must not reach the API
// server when another daemon leads.
func (a *accountTokens) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token, a.ended = "", true
}

// accountTransport sends requests with the account's token.
type accountTransport struct {
	tokens *accountTokens
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t accountTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.tokens.get(r.Context())
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := t.next.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.tokens.forget(token)
	}
	return response, err
}

// leaderClients returns clients of the leader's account for one term. The leader calls end when the term is over,
// because another daemon may lead then. After end, these clients send no request: neither requests of users of the REST
// API, nor Events that wait in a queue or for the API server. Manifests of an earlier version gave all rights to the
// daemon's own account (isOwn). With such manifests, the clients use that account.
func leaderClients(ctx context.Context, own *clients, namespace string, c clock.Clock, log *logrus.Entry) (leader *clients, isOwn bool, end func(), err error) {
	if !mayBeLeader(ctx, own.kube, namespace, log) {
		log.Warnf("The manifests are of an earlier version, without account %s: the leader uses the daemon's own account; apply the manifest of this version", types.LeaderAccount)
		leader, end, err = ownClients(own)
		return leader, true, end, err
	}
	tokens := &accountTokens{kube: own.kube, namespace: namespace, account: types.LeaderAccount, clock: c}
	if _, err := tokens.get(ctx); err != nil {
		return nil, false, nil, err
	}
	config := rest.AnonymousClientConfig(own.config) // without wrappers
	config.Wrap(own.gate.Wrap)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return accountTransport{tokens: tokens, next: next} })
	config.Wrap(withDeadlines)
	life, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	leader, err = clientsUntil(life, config)
	return leader, false, func() {
		endRequests() // first: a request may hold the lock of the tokens while it waits for the API server
		tokens.drop()
	}, err
}

// ownClients returns clients of the daemon's own account for one term.
func ownClients(own *clients) (leader *clients, end func(), err error) {
	life, end := context.WithCancel(context.Background())
	leader, err = own.until(life)
	return leader, end, err
}

// mayBeLeader reports whether this daemon may have tokens of the leader's account. Without an answer of the API server
// it assumes so: the next steps then fail and are retried.
func mayBeLeader(ctx context.Context, kube kubernetes.Interface, namespace string, log *logrus.Entry) bool {
	review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: types.LeaderAccount,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		log.WithError(err).Warn("The API server did not say whether this daemon may use the leader's account; the daemon tries to use it")
		return true
	}
	return review.Status.Allowed
}
