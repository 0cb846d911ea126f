package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestTheModeIsOnAfterAnUpgradeAlone(t *testing.T) {
	setting := func(name settings.Name, value string, conditions ...longhorn.Condition) *longhorn.Setting {
		return &longhorn.Setting{
			ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: string(name)}, Value: value, Status: longhorn.SettingStatus{Conditions: conditions},
		}
	}
	valid := longhorn.Condition{Type: types.ConditionValid, Status: longhorn.ConditionTrue}
	for _, tc := range []struct {
		name string
		objs []runtime.Object
		want string
	}{
		{"nothing → off", nil, "false"},
		{"people made a setting, and daemons their nodes, before the first leader → off", []runtime.Object{
			setting(settings.DefaultReplicaCount, "2"), build.ReadyNode("node-1", "uuid-1"),
		}, "false"},
		{"a leader of an earlier release kept the settings → on", []runtime.Object{setting(settings.DefaultReplicaCount, "2", valid)}, "true"},
		{"there are volumes → on", []runtime.Object{build.Volume("vol")}, "true"},
		{"it was decided before → as it is", []runtime.Object{setting(settings.RESTTrustedNetwork, "false"), build.Volume("vol")}, "false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testutil.New(t, tc.objs...)
			require.NoError(t, decideTrustedNetwork(t.Context(), h.Datastore(datastore.Options{}), types.Namespace, h.Log))
			made, err := h.Longhorn.LonghornV1beta2().Settings(types.Namespace).Get(t.Context(), string(settings.RESTTrustedNetwork), metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, tc.want, made.Value)
		})
	}
}

// onlyReader accepts one token, with the rights get and list.
type onlyReader struct{ token string } // "": reader

func (o onlyReader) Authenticate(_ context.Context, token string) (api.Identity, error) {
	if token != cmp.Or(o.token, "reader") {
		return api.Identity{}, api.ErrUnauthenticated
	}
	return api.Identity{User: token}, nil
}

func (onlyReader) Allowed(_ context.Context, _ api.Identity, what api.Attributes) (bool, error) {
	return what.Verb == "get" || what.Verb == "list", nil
}

// TestADaemonAnswersNoOneWithoutACredential tests the handlers in the order in which a daemon has them, with and
// without a leader.
func TestADaemonAnswersNoOneWithoutACredential(t *testing.T) {
	h := testutil.New(t)
	for _, leads := range []bool{true, false} {
		trusted := false
		leadership := newLeadership("node-1", "192.0.2.1")
		if leads {
			leadership.leader.Store(leadership.identity)
		}
		isTrusted := func() bool { return trusted }
		rest := newRESTAPI(leadership, prometheus.NewRegistry(), func() error { return errors.New("secret: why") }, restAccess{
			reviews: onlyReader{}, scrapers: onlyReader{"prometheus"}, trusted: isTrusted, clock: h.Clock,
			identity: trust.NewIdentity(h.Kube, types.Namespace, isTrusted, h.Clock),
		}, nil, nil, h.Log)
		handler, forwarder := rest.handler()
		ask := func(method, url, token string) (int, string) {
			r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			text, err := io.ReadAll(w.Body)
			require.NoError(t, err)
			return w.Code, string(text)
		}
		status := func(method, url, token string) int {
			code, _ := ask(method, url, token)
			return code
		}
		code, text := ask("GET", "http://h/healthz", "")
		assert.Equal(t, http.StatusServiceUnavailable, code)
		assert.Equal(t, "not ready\n", text, "the cause is not for everyone")
		assert.Equal(t, 403, status("GET", "http://h/metrics", "reader"), "plain HTTP")
		assert.Equal(t, 401, status("GET", "https://h/metrics", ""))
		assert.Equal(t, 200, status("GET", "https://h/metrics", "prometheus"))
		assert.Equal(t, 403, status("DELETE", "http://h/v1/volumes/vol", "reader"), "plain HTTP")
		if leads {
			assert.Equal(t, 401, status("DELETE", "https://h/v1/volumes/vol", ""))
			assert.Equal(t, 401, status("GET", "https://h/v1/volumes", "prometheus"), "a token that is good for metrics alone")
			assert.Equal(t, 403, status("DELETE", "https://h/v1/volumes/vol", "reader"))
		}
		assert.Equal(t, 503, status("GET", "https://h/v1/volumes", "reader"), "there is no server yet, or no leader")
		r := httptest.NewRequestWithContext(t.Context(), "POST", "https://h/v1/nodes/silent?action=reach", nil)
		r.Header.Set("X-Longhorn-Node", "node-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		assert.Equal(t, 401, w.Code)
		assert.Equal(t, "node-1", w.Header().Get("X-Longhorn-Node"), "a refusal is not an earlier release's answer")
		trusted = true
		assert.Equal(t, 200, status("GET", "http://h/metrics", ""))
		forwarder.Close()
	}
}

// TestADaemonServesNoTLSBeforeTheLeaderCreatedACertificate: a daemon creates no certificate of its own.
func TestADaemonServesNoTLSBeforeTheLeaderCreatedACertificate(t *testing.T) {
	h := testutil.New(t)
	identity := trust.NewIdentity(h.Kube, types.Namespace, func() bool { return false }, h.Clock)
	near, far := net.Pipe()
	asked := make(chan error, 1)
	go func() {
		asked <- tls.Client(far, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) //nolint:gosec // there is no server identity to verify
	}()
	err := tls.Server(near, api.ServerTLS(identity.Certificate)).HandshakeContext(t.Context())
	assert.EqualError(t, err, "the leader has not created a certificate yet")
	assert.NoError(t, near.Close())
	assert.Error(t, <-asked)
}

// TestTheModeWaitsForTheDefinitions: the definition of settings refuses unknown names. It is updated a moment after
// the daemons of this release start, or never.
func TestTheModeWaitsForTheDefinitions(t *testing.T) {
	invalid := apierrors.NewInvalid(longhorn.SchemeGroupVersion.WithKind("Setting").GroupKind(), "rest-trusted-network", nil)
	denied := apierrors.NewForbidden(longhorn.Resource("settings"), "rest-trusted-network", errors.New("denied by a policy"))
	for _, tc := range []struct {
		name    string
		refusal error
		refused int
		made    bool
	}{
		{"of this release soon → made", invalid, 2, true},
		{"of an earlier release for good → led without it", invalid, 1000, false},
		{"of this release, and a policy denies the setting for good → led without it", denied, 1000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := testutil.New(t)
			h.Fail("create", "settings", slices.Repeat([]error{tc.refusal}, tc.refused)...)
			store := h.Datastore(datastore.Options{})
			d := &daemon{namespace: types.Namespace, env: h.Env()}
			done := make(chan error, 1)
			go func() { done <- d.decideTrustedNetwork(t.Context(), store) }()
			var err error
			for waits := true; waits; {
				select {
				case err = <-done:
					waits = false
				default:
					if h.Clock.HasWaiters() {
						h.Clock.Step(definitionsInterval)
					}
					goruntime.Gosched()
				}
			}
			require.NoError(t, err)
			_, err = h.Longhorn.LonghornV1beta2().Settings(types.Namespace).Get(t.Context(), "rest-trusted-network", metav1.GetOptions{})
			assert.Equal(t, !tc.made, apierrors.IsNotFound(err), "%v", err)
		})
	}
}

// TestAScopeThatCannotStartReturns: the leader must not keep its Lease without doing anything.
func TestAScopeThatCannotStartReturns(t *testing.T) {
	h := testutil.New(t)
	s := &scope{
		store:     datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace}),
		workloads: datastore.NewWorkloads(h.Kube),
	}
	broken := errors.New("broken")
	done := make(chan error, 1)
	go func() { done <- s.run(t.Context(), func(context.Context) error { return broken }) }()
	select {
	case err := <-done:
		assert.ErrorIs(t, err, broken)
	case <-time.After(time.Minute):
		t.Fatal("it waits for caches that nothing ends")
	}
}
