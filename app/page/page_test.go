package page

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var expires = time.Date(2026, 1, 2, 11, 0, 0, 0, time.UTC)

// daemon is the pod of a daemon that is ready.
func daemon(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := build.Pod(name, "n1", changes...)
	pod.Labels[types.LabelApp], pod.Labels[types.InstallationLabel] = types.AppManager, types.InstallationValue
	return pod
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions = nil }

// cluster has pods, and creates tokens for ServiceAccount operator. requests are the requests for tokens.
func cluster(pods ...runtime.Object) (kube *kubefake.Clientset, requests *[]authenticationv1.TokenRequestSpec) {
	kube = kubefake.NewClientset(pods...)
	requests = &[]authenticationv1.TokenRequestSpec{}
	kube.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if create.Subresource != "token" || create.Name != DefaultAccount {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, create.Name)
		}
		request := create.Object.(*authenticationv1.TokenRequest).DeepCopy()
		*requests = append(*requests, request.Spec)
		request.Status = authenticationv1.TokenRequestStatus{Token: "secret-token", ExpirationTimestamp: metav1.NewTime(expires)}
		return true, request, nil
	})
	return kube, requests
}

// output is a writer that a test reads while the command runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func options(kube *kubefake.Clientset, tunnel Tunnel) (Options, *output) {
	out := &output{}
	return Options{
		Kube: kube, Namespace: types.Namespace, Account: DefaultAccount, Duration: DefaultDuration, Tunnel: tunnel, Clock: clock.RealClock{}, Out: out,
	}, out
}

func TestTheAddressAndTheTokenArePrinted(t *testing.T) {
	kube, requests := cluster(daemon("longhorn-manager-b"), daemon("longhorn-manager-a"))
	ctx, cancel := context.WithCancel(t.Context())
	o, out := options(kube, func(ctx context.Context, pod string, _ int, ready func(int)) error {
		assert.Equal(t, "longhorn-manager-a", pod)
		ready(12345)
		cancel()
		return ctx.Err()
	})
	require.NoError(t, Run(ctx, o))
	assert.Equal(t, `Page:   https://127.0.0.1:12345
Token:  secret-token

Log in with the token. It is valid until `+expires.Local().Format("2006-01-02 15:04 MST")+`.
It has the rights of ServiceAccount operator in namespace longhorn-system.
The browser warns about the certificate, because the installation's own CA signed it.
The page is reachable from this machine only, and as long as this command runs. Ctrl-C stops it.
`, out.String())
	hour := int64(3600)
	assert.Equal(t, []authenticationv1.TokenRequestSpec{{Audiences: []string{types.APIAudience}, ExpirationSeconds: &hour}}, *requests)
}

func TestTheBrowserGetsTheAddressWithoutTheToken(t *testing.T) {
	for _, refusal := range []error{nil, errors.New("no such program")} {
		kube, _ := cluster(daemon("longhorn-manager-a"))
		ctx, cancel := context.WithCancel(t.Context())
		o, out := options(kube, func(_ context.Context, _ string, _ int, ready func(int)) error {
			ready(12345)
			cancel()
			return nil
		})
		var opened string
		o.Browse = func(_ context.Context, address string) error {
			opened = address
			return refusal
		}
		require.NoError(t, Run(ctx, o))
		assert.Equal(t, "https://127.0.0.1:12345", opened)
		assert.Equal(t, refusal != nil, strings.Contains(out.String(), "The browser could not be opened (no such program). Open the address yourself.\n"))
	}
}

func TestWithoutAnAccountNoTokenIsCreated(t *testing.T) {
	kube, requests := cluster(daemon("longhorn-manager-a"))
	ctx, cancel := context.WithCancel(t.Context())
	o, out := options(kube, func(_ context.Context, _ string, _ int, ready func(int)) error {
		ready(1)
		cancel()
		return nil
	})
	o.Account = ""
	require.NoError(t, Run(ctx, o))
	assert.NotContains(t, out.String(), "Token")
	assert.Empty(t, *requests)
}

func TestALostConnectionIsReplaced(t *testing.T) {
	kube, requests := cluster(daemon("longhorn-manager-a"), daemon("longhorn-manager-b"))
	ctx, cancel := context.WithCancel(t.Context())
	fake := testclock.NewFakeClock(expires)
	type call struct {
		pod  string
		port int
	}
	var calls []call
	o, out := options(kube, func(_ context.Context, pod string, port int, ready func(int)) error {
		calls = append(calls, call{pod, port})
		switch len(calls) {
		case 1:
			ready(12345)
			_ = kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), types.Namespace, "longhorn-manager-a")
			return errors.New("lost connection to pod")
		case 2:
			return errors.New("the node does not answer") // before it was ready
		}
		ready(12345)
		cancel()
		return nil
	})
	o.Port, o.Clock = 0, fake
	ended := make(chan error)
	go func() { ended <- Run(ctx, o) }()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err)
			assert.Equal(t, []call{{"longhorn-manager-a", calls[0].port}, {"longhorn-manager-b", 12345}, {"longhorn-manager-b", 12345}}, calls)
			assert.Contains(t, out.String(), "The connection to pod longhorn-manager-a was lost: lost connection to pod. Connecting again.\n")
			assert.Contains(t, out.String(), "Connected again, to pod longhorn-manager-b.\n")
			assert.Equal(t, 1, strings.Count(out.String(), "secret-token"), "the token is printed once")
			assert.Len(t, *requests, 1)
			return
		case <-time.After(time.Millisecond):
			if fake.HasWaiters() {
				fake.Step(longestWait)
			}
		}
	}
}

// A connection that ends at once is not tried every second: the waits grow.
func TestShortConnectionsAreRetriedWithBackoff(t *testing.T) {
	kube, _ := cluster(daemon("longhorn-manager-a"))
	ctx, cancel := context.WithCancel(t.Context())
	fake := testclock.NewFakeClock(expires)
	var at []time.Duration
	o, _ := options(kube, func(_ context.Context, _ string, _ int, ready func(int)) error {
		at = append(at, fake.Since(expires))
		ready(12346)
		if len(at) == 5 {
			cancel()
		}
		return errors.New("closed")
	})
	o.Clock = fake
	ended := make(chan error)
	go func() { ended <- Run(ctx, o) }()
	for {
		select {
		case err := <-ended:
			require.NoError(t, err)
			require.Len(t, at, 5)
			assert.GreaterOrEqual(t, at[4]-at[3], 8*time.Second)
			return
		case <-time.After(time.Millisecond):
			if fake.HasWaiters() {
				fake.Step(time.Second)
			}
		}
	}
}

// Another program that has taken the port in the meantime must not get the requests of the user's browser unnoticed.
func TestAPortThatWasTakenEndsTheCommand(t *testing.T) {
	kube, _ := cluster(daemon("longhorn-manager-a"))
	fake := testclock.NewFakeClock(expires)
	thief, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = thief.Close() }()
	taken := thief.Addr().(*net.TCPAddr).Port
	o, _ := options(kube, func(_ context.Context, _ string, _ int, ready func(int)) error {
		ready(taken)
		return errors.New("closed")
	})
	o.Clock = fake
	ended := make(chan error)
	go func() { ended <- Run(t.Context(), o) }()
	for {
		select {
		case err := <-ended:
			require.ErrorContains(t, err, "port "+strconv.Itoa(taken)+" of this machine cannot be used")
			return
		case <-time.After(time.Millisecond):
			if fake.HasWaiters() {
				fake.Step(longestWait)
			}
		}
	}
}

// A daemon whose node has just failed is still ready by its conditions.
func TestAnotherDaemonIsTriedIfTheFirstCannotBeReached(t *testing.T) {
	kube, _ := cluster(daemon("longhorn-manager-a"), daemon("longhorn-manager-b"))
	var pods []string
	ctx, cancel := context.WithCancel(t.Context())
	o, _ := options(kube, func(_ context.Context, pod string, _ int, ready func(int)) error {
		pods = append(pods, pod)
		if pod == "longhorn-manager-a" {
			return errors.New("no route to host")
		}
		ready(12347)
		cancel()
		return nil
	})
	require.NoError(t, Run(ctx, o))
	assert.Equal(t, []string{"longhorn-manager-a", "longhorn-manager-b"}, pods)
}

func TestErrorsThatPreventThePage(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	refuse := func(err error) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
	}
	for _, tc := range []struct {
		name   string
		pods   []runtime.Object
		change func(o *Options, kube *kubefake.Clientset)
		want   string
	}{
		{"no daemon", nil, func(*Options, *kubefake.Clientset) {}, "no daemon is ready to serve the page: see why with kubectl -n longhorn-system get pods -l app=longhorn-manager"},
		{"no daemon is ready", []runtime.Object{daemon("a", notReady), build.Pod("b", "n1")}, func(*Options, *kubefake.Clientset) {}, "no daemon is ready to serve the page: "},
		{"pods may not be listed", nil, func(_ *Options, kube *kubefake.Clientset) {
			kube.PrependReactor("list", "pods", refuse(forbidden))
		}, "your account may not list pods in namespace longhorn-system: request the rights list on pods and create on pods/portforward there"},
		{"the account does not exist", []runtime.Object{daemon("a")}, func(o *Options, _ *kubefake.Clientset) {
			o.Account = "nobody"
		}, "ServiceAccount nobody does not exist in namespace longhorn-system: create it with kubectl apply -f deploy/examples/operator.yaml, or name another one with --account"},
		{"no right to tokens", []runtime.Object{daemon("a")}, func(_ *Options, kube *kubefake.Clientset) {
			kube.PrependReactor("create", "serviceaccounts", refuse(forbidden))
		}, "your account may not create a token of ServiceAccount operator: "},
		{"the first connection fails", []runtime.Object{daemon("a")}, func(o *Options, _ *kubefake.Clientset) {
			o.Tunnel = func(context.Context, string, int, func(int)) error { return errors.New("pods \"a\" is forbidden") }
		}, `forward a port to pod a: pods "a" is forbidden; your account needs the right create on pods/portforward in namespace longhorn-system`},
	} {
		kube, _ := cluster(tc.pods...)
		o, out := options(kube, nil)
		tc.change(&o, kube)
		err := Run(t.Context(), o)
		assert.ErrorContains(t, err, tc.want, tc.name)
		assert.Empty(t, out.String(), tc.name)
	}
}

func TestAPortThatIsInUse(t *testing.T) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(loopback, "0"))
	require.NoError(t, err)
	defer listener.Close()
	_, text, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	used, err := strconv.Atoi(text)
	require.NoError(t, err)
	_, err = freePort(t.Context(), used)
	assert.ErrorContains(t, err, "port "+text+" of this machine cannot be used: ")
	assert.ErrorContains(t, err, "name another one with --port")
	require.NoError(t, listener.Close())
	port, err := freePort(t.Context(), used)
	require.NoError(t, err)
	assert.Equal(t, used, port)
}
