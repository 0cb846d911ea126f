package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// A machine starts while the API server is unavailable: its daemon waits, reports the reason, and continues
// automatically.
func TestAStartWaitsForTheAPIServer(t *testing.T) {
	resource := longhorn.SchemeGroupVersion.WithResource("settings").GroupResource()
	for name, tc := range map[string]struct {
		err  error
		says publicReason
	}{
		"no answer":             {errors.New("dial tcp 10.96.0.1:443: i/o timeout"), waitsForServer},
		"a certificate":         {errors.New("tls: failed to verify certificate: x509: certificate has expired or is not yet valid"), waitsForServer},
		"the role comes later":  {apierrors.NewForbidden(resource, "", errors.New("no rights")), waitsForPermission},
		"it is overloaded":      {apierrors.NewTooManyRequests("later", 1), waitsForPermission},
		"the token is too old":  {apierrors.NewUnauthorized("expired"), waitsForPermission},
		"it has just started":   {apierrors.NewServiceUnavailable("starting"), waitsForPermission},
		"no definitions so far": {apierrors.NewNotFound(resource, ""), waitsForPermission},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := metadataClient(t, crdObject("settings.longhorn.io", ours))
				var away atomic.Bool
				away.Store(true)
				client.PrependReactor("list", "settings", func(clienttesting.Action) (bool, runtime.Object, error) { return away.Load(), nil, tc.err })
				log, hook := logtest.NewNullLogger()
				a := newAdmission(clock.RealClock{}, logrus.NewEntry(log))
				require.Equal(t, waitsForFirstAnswer, a.waiting())
				done := make(chan error, 1)
				go func() { done <- a.await(t.Context(), client, "ns") }()
				time.Sleep(5*time.Minute + time.Millisecond)
				require.Equal(t, tc.says, a.waiting())
				assert.Len(t, hook.AllEntries(), 1+10, "at once, and each 30 s")
				assert.ErrorIs(t, hook.LastEntry().Data[logrus.ErrorKey].(error), tc.err)
				away.Store(false)
				back := time.Now()
				require.NoError(t, <-done)
				assert.LessOrEqual(t, time.Since(back), admissionRetry)
				assert.NoError(t, a.waiting())
			})
		})
	}
}

// A check that hangs does not delay the next check.
func TestTheAdmissionCheckTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(clock.RealClock{}, quiet())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, a.await(ctx, hangingMetadata{}, "ns"), context.DeadlineExceeded)
	})
}

// hangingMetadata answers only after its caller has left.
type hangingMetadata struct{ metadata.Interface }

func (h hangingMetadata) Resource(schema.GroupVersionResource) metadata.Getter {
	return hangingGetter{}
}

type hangingGetter struct{ metadata.Getter }

func (g hangingGetter) Namespace(string) metadata.ResourceInterface { return g }

func (hangingGetter) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
