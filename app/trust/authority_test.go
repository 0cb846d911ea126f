package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// bench has a leader's Authority, and the views of a daemon and a client.
type bench struct {
	*Authority
	kube    *fake.Clientset
	clock   *clocktesting.FakeClock
	events  chan string
	trusted bool
}

func newBench() *bench {
	log := logrus.New()
	log.SetOutput(io.Discard)
	recorder := record.NewFakeRecorder(10)
	b := &bench{kube: fake.NewClientset(), clock: clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), events: recorder.Events}
	b.Authority = &Authority{
		Kube: b.kube, Namespace: "ns", Trusted: func() bool { return b.trusted }, Clock: b.clock, Recorder: recorder, Log: logrus.NewEntry(log),
	}
	return b
}

// served returns the certificate that a daemon serves now, after a check by the leader.
func (b *bench) served(t *testing.T) *x509.Certificate {
	t.Helper()
	require.NoError(t, b.Publish(t.Context()))
	pair, err := NewIdentity(b.kube, "ns", never, b.clock).Certificate(t.Context())
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	return leaf
}

// clientTrusts reports whether a client that reads the ConfigMap now accepts a certificate.
func (b *bench) clientTrusts(t *testing.T, leaf *x509.Certificate) bool {
	t.Helper()
	way, err := NewPublished(b.kube, "ns", b.clock).Trust(t.Context(), false)
	require.NoError(t, err)
	return trusts(t, way.CA, leaf, b.clock.Now())
}

func trusts(t *testing.T, ca []byte, leaf *x509.Certificate, now time.Time) bool {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: types.APIService, CurrentTime: now})
	return err == nil
}

func never() bool { return false }

// TestCertificatesAreReplacedInTime: in 200 days no client that read the ConfigMap within announceFor meets a
// certificate that it does not trust, and no certificate is served that is about to expire.
func TestCertificatesAreReplacedInTime(t *testing.T) {
	b := newBench()
	seen := map[string]bool{}
	var read []byte // the bundle that a client has read
	for range 200 * 2 {
		leaf := b.served(t)
		require.True(t, b.clientTrusts(t, leaf), b.clock.Now())
		if read != nil {
			require.True(t, trusts(t, read, leaf, b.clock.Now()), "a client that read 12 h ago at %s", b.clock.Now())
		}
		require.Greater(t, leaf.NotAfter.Sub(b.clock.Now()), renewBefore-announceFor-24*time.Hour, b.clock.Now())
		seen[leaf.SerialNumber.String()] = true
		way, err := NewPublished(b.kube, "ns", b.clock).Trust(t.Context(), false)
		require.NoError(t, err)
		read = way.CA
		all, err := parse(read)
		require.NoError(t, err)
		require.LessOrEqual(t, len(all), 3, "what has ended is not trusted any more")
		b.clock.Step(12 * time.Hour)
	}
	assert.Len(t, seen, 4, "one each 61 days")
}

// TestADeletedCertificateIsCreatedAgain also covers a certificate that cannot be used.
func TestADeletedCertificateIsCreatedAgain(t *testing.T) {
	b := newBench()
	first := b.served(t)
	assert.Equal(t, first.SerialNumber, b.served(t).SerialNumber, "what is good stays")
	secrets := b.kube.CoreV1().Secrets("ns")
	require.NoError(t, secrets.Delete(t.Context(), types.APITLSSecret, metav1.DeleteOptions{}))
	second := b.served(t)
	assert.NotEqual(t, first.SerialNumber, second.SerialNumber)
	assert.True(t, b.clientTrusts(t, second))

	secret, err := secrets.Get(t.Context(), types.APITLSSecret, metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data[certificateKey], secret.Data[types.APICAKey] = []byte("nonsense"), []byte("nonsense")
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.True(t, b.clientTrusts(t, b.served(t)))

	b.clock.Step(certificateLife + time.Hour) // there was no leader for long
	assert.True(t, b.clientTrusts(t, b.served(t)))
}

// TestTheCAsKeyIsNotKept: a reader of the Secret cannot create another certificate.
func TestTheCAsKeyIsNotKept(t *testing.T) {
	b := newBench()
	b.served(t)
	secret, err := b.kube.CoreV1().Secrets("ns").Get(t.Context(), types.APITLSSecret, metav1.GetOptions{})
	require.NoError(t, err)
	_, err = tls.X509KeyPair(secret.Data[types.APICAKey], secret.Data[privateKey])
	require.Error(t, err, "the key is the daemons'")
	assert.Len(t, secret.Data, 3)
}

func TestTheModeIsPublishedAndReported(t *testing.T) {
	b := newBench()
	published := NewPublished(b.kube, "ns", b.clock)
	way, err := published.Trust(t.Context(), false)
	require.NoError(t, err)
	assert.Empty(t, way.CA, "nothing is published yet")

	b.trusted = true
	require.NoError(t, b.Publish(t.Context()))
	b.reportMode()
	b.clock.Step(retryEvery)
	way, err = published.Trust(t.Context(), false)
	require.NoError(t, err)
	assert.True(t, way.Trusted)
	require.Len(t, b.events, 1)
	assert.Contains(t, <-b.events, "Warning TrustedNetwork the REST API answers requests without a credential")
	b.reportMode()
	assert.Empty(t, b.events)
	b.clock.Step(warnEvery)
	b.reportMode()
	assert.Contains(t, <-b.events, "Warning TrustedNetwork")

	b.trusted = false
	require.NoError(t, b.Publish(t.Context()))
	b.reportMode()
	assert.Contains(t, <-b.events, "Normal TrustedNetwork the REST API requires a credential again")
	way, err = published.Trust(t.Context(), true)
	require.NoError(t, err)
	assert.False(t, way.Trusted)
}

func TestATokenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := TokenFile(path)
	_, err := token()
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, want := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(path, []byte(want+"\n"), 0o600))
		got, err := token()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = token()
	require.ErrorIs(t, err, errEmptyToken)
}

// TestARefusedCertificateIsAnEventOnce: without the Secret no client can use the REST API, so its refusal must not be
// only in a log.
func TestARefusedCertificateIsAnEventOnce(t *testing.T) {
	for _, resource := range []string{"secrets", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			b := newBench()
			tries := make(chan struct{}, 10)
			b.kube.PrependReactor("create", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				tries <- struct{}{}
				return true, nil, apierrors.NewForbidden(corev1.Resource(resource), "x", errors.New("exceeded quota"))
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			<-tries
			e := <-b.events
			assert.Contains(t, e, "Warning ChildRefused REST clients cannot trust the daemons: ")
			assert.Contains(t, e, "exceeded quota")
			for len(tries) == 0 {
				b.clock.Step(publishEvery)
				time.Sleep(time.Millisecond) // the fake clock's ticker drops ticks without a receiver
			}
			cancel()
			require.NoError(t, <-ended)
			assert.Empty(t, b.events, "the same refusal gives one Event")
		})
	}
}
