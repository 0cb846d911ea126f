package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/apigate"
)

// account returns an API server that grants tokens of the leader's account, if allowed.
func account(t *testing.T, allowed bool, asked *int) *fake.Clientset {
	t.Helper()
	kube := fake.NewClientset()
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		assert.Equal(t, &authorizationv1.ResourceAttributes{
			Namespace: "storage", Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "longhorn-manager-leader",
		}, review.Spec.ResourceAttributes)
		review.Status.Allowed = allowed
		return true, review, nil
	})
	kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, "token", a.GetSubresource())
		*asked++
		request := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		assert.Equal(t, int64(600), *request.Spec.ExpirationSeconds)
		request.Status.Token = fmt.Sprintf("token-%d", *asked)
		return true, request, nil
	})
	return kube
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// TestTheLeaderHasItsOwnAccount: its requests have the account's token, never the daemon's. They have a new token after
// half of the token's lifetime, or after the API server has refused the token.
func TestTheLeaderHasItsOwnAccount(t *testing.T) {
	var seen []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	t.Cleanup(server.Close)
	asked := 0
	clock := testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	own := &clients{config: &rest.Config{Host: server.URL, BearerToken: "the daemon's"}, kube: account(t, true, &asked)}
	leader, _, _, err := leaderClients(t.Context(), own, "storage", clock, quiet())
	require.NoError(t, err)
	list := func() {
		// The test checks only what was sent.
		_, _ = leader.kube.CoreV1().Pods("x").List(t.Context(), metav1.ListOptions{})
	}
	list()
	clock.Step(tokenLife/2 - time.Second)
	list()
	clock.Step(time.Second)
	list()
	status = http.StatusUnauthorized
	list()
	status = http.StatusOK
	list()
	assert.Equal(t, []string{"Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2", "Bearer token-3"}, seen)
}

// Its requests to daemons have a token that is valid only for the REST API.
func TestATokenIsForItsAudience(t *testing.T) {
	for _, audience := range []string{"", "longhorn-backend"} {
		kube := fake.NewClientset()
		kube.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			request := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
			if audience == "" {
				assert.Empty(t, request.Spec.Audiences)
			} else {
				assert.Equal(t, []string{audience}, request.Spec.Audiences)
			}
			request.Status.Token = "token"
			return true, request, nil
		})
		tokens := accountTokens{kube: kube, namespace: "storage", account: types.LeaderAccount, audience: audience, clock: testclock.NewFakeClock(time.Now())}
		token, err := tokens.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "token", token)
	}
}

// A request with the previous token is refused long after that token was replaced: the new token stays.
func TestALateRefusalOfAnOldTokenKeepsTheNewOne(t *testing.T) {
	arrived, refuse := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") == "Bearer token-1" {
			close(arrived)
			<-refuse
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		assert.Equal(t, "Bearer token-2", r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	t.Cleanup(server.Close)
	asked := 0
	clock := testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	own := &clients{config: &rest.Config{Host: server.URL}, kube: account(t, true, &asked)}
	leader, _, _, err := leaderClients(t.Context(), own, "storage", clock, quiet())
	require.NoError(t, err)
	list := func() error {
		_, err := leader.kube.CoreV1().Pods("x").List(t.Context(), metav1.ListOptions{})
		return err
	}
	late := make(chan error, 1)
	go func() { late <- list() }()
	<-arrived
	clock.Step(tokenLife / 2)
	require.NoError(t, list())
	close(refuse)
	require.Error(t, <-late)
	require.NoError(t, list())
	assert.Equal(t, 2, asked, "the good token was thrown away")
}

// TestTheLeadersAccountIsNotUsedAfterTheTerm: another daemon may lead by then.
func TestTheLeadersAccountIsNotUsedAfterTheTerm(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[]}`)
	}))
	t.Cleanup(server.Close)
	asked := 0
	d := &daemon{namespace: "storage", clients: &clients{config: &rest.Config{Host: server.URL}, kube: account(t, true, &asked)}}
	d.env.Clock, d.env.Log = testclock.NewFakeClock(time.Now()), quiet()
	leader, end, err := d.asLeader(t.Context())
	require.NoError(t, err)
	assert.False(t, leader.oldManifests)
	_, err = leader.clients.kube.CoreV1().Pods("x").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	end()
	_, err = leader.clients.kube.CoreV1().Pods("x").List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, apigate.ErrClientEnded)
	assert.Equal(t, int64(1), sent.Load())
	assert.Equal(t, 1, asked, "another token was asked for")
}

// TestAnEarlierVersionsManifestsStillLead: they have no such account, and the daemon's account has all rights.
func TestAnEarlierVersionsManifestsStillLead(t *testing.T) {
	asked := 0
	own := &clients{config: &rest.Config{}, kube: account(t, false, &asked)}
	_, isOwn, end, err := leaderClients(t.Context(), own, "storage", testclock.NewFakeClock(time.Now()), quiet())
	require.NoError(t, err)
	end()
	assert.True(t, isOwn)
	assert.Zero(t, asked)
	assert.NotContains(t, (&daemon{oldManifests: true}).clusterKinds(), datastore.Budgets, "they give no right to watch them")
	assert.Empty(t, (&daemon{}).clusterKinds(), "all")
}

// TestADaemonWithoutATokenDoesNotLead: it does not use the daemon's own account instead.
func TestADaemonWithoutATokenDoesNotLead(t *testing.T) {
	asked := 0
	kube := account(t, true, &asked)
	broken := errors.New("no token")
	kube.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
	_, _, _, err := leaderClients(t.Context(), &clients{config: &rest.Config{}, kube: kube}, "storage", testclock.NewFakeClock(time.Now()), quiet())
	require.ErrorIs(t, err, broken)
	assert.True(t, strings.Contains(err.Error(), types.LeaderAccount))
}

// The leader's requests have the same deadlines as the daemon's own. Otherwise a worker that waits forever would do
// nothing, while the leader still renews the Lease.
func TestTheLeadersRequestsHaveDeadlines(t *testing.T) {
	asked := 0
	own, err := clientsOf(&rest.Config{Host: "https://nowhere.invalid"})
	require.NoError(t, err)
	own.kube = account(t, true, &asked)
	leader, _, _, err := leaderClients(t.Context(), own, "storage", testclock.NewFakeClock(time.Now()), quiet())
	require.NoError(t, err)
	var seen time.Duration
	network := roundTripper(func(r *http.Request) (*http.Response, error) {
		if at, ok := r.Context().Deadline(); ok {
			seen = time.Until(at)
		}
		return nil, errors.New("no network")
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", nil)
	_, err = leader.config.WrapTransport(network).RoundTrip(request) //nolint:bodyclose // there is no body
	require.ErrorContains(t, err, "no network")
	assert.Positive(t, seen)
	assert.LessOrEqual(t, seen, requestDeadline)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
