package app

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// eventServer is an API server that may be unavailable, and counts the Events that it gets.
type eventServer struct {
	away, hasAccount atomic.Bool
	events           atomic.Int32
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.away.Load() { // the connection is reset
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	var answer any = map[string]string{}
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		answer = &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
			Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: s.hasAccount.Load()},
		}
	case strings.HasSuffix(r.URL.Path, "/token"):
		answer = &authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"}, Status: authenticationv1.TokenRequestStatus{Token: "leaders"},
		}
	case strings.HasSuffix(r.URL.Path, "/events"):
		s.events.Add(1)
		answer = &corev1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestNoRequestIsSentAfterTheTerm: requests that wait for the API server when the lease is lost must not be sent when
// another daemon leads. An Event has a context of its own, and so has a user's request.
func TestNoRequestIsSentAfterTheTerm(t *testing.T) {
	for name, tc := range map[string]struct{ hasAccount, ownAccount bool }{
		"the leader's account":                  {hasAccount: true},
		"manifests of an earlier version":       {},
		"a person's account, with a kubeconfig": {ownAccount: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &eventServer{}
			s.hasAccount.Store(tc.hasAccount)
			server := httptest.NewServer(s)
			defer server.Close()
			own, err := newClients(t.Context(), writeKubeconfig(t, server.URL, nil), quiet())
			require.NoError(t, err)
			d := &daemon{namespace: "storage", clients: own, own: own, ownAccount: tc.ownAccount}
			d.env.Clock, d.env.Log = clock.RealClock{}, quiet()
			leader, end, err := d.asLeader(t.Context())
			require.NoError(t, err)
			create := func() error {
				_, err := leader.clients.kube.CoreV1().Events("storage").Create(context.WithoutCancel(t.Context()), &corev1.Event{}, metav1.CreateOptions{})
				return err
			}
			require.NoError(t, create())
			s.away.Store(true)
			require.Error(t, create())
			require.Eventually(t, func() bool { return own.gate.Unavailable() != nil }, 10*time.Second, 10*time.Millisecond)
			waiting := make(chan error, 1)
			go func() { waiting <- create() }()
			select {
			case err := <-waiting:
				t.Fatalf("it does not wait for the API server: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			end()
			require.Error(t, <-waiting, "while the API server is still away")
			s.away.Store(false)
			require.Eventually(t, func() bool { return own.gate.Unavailable() == nil }, 10*time.Second, 10*time.Millisecond)
			require.Error(t, create())
			assert.Equal(t, int32(1), s.events.Load(), "Events that were sent")
		})
	}
}
