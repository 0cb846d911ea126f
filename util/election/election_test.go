package election

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func optionsFor(kube kubernetes.Interface) Options {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return Options{
		Kube: kube, Namespace: "longhorn-system", Name: "the-lease", Identity: "pod-1",
		Duration: 15 * time.Second, Log: logrus.NewEntry(quiet),
	}
}

func TestRunGivesTheLeaseBackOnlyAfterTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		holder := func() string {
			lease, err := kube.CoordinationV1().Leases("longhorn-system").Get(t.Context(), "the-lease", metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil {
				return ""
			}
			return *lease.Spec.HolderIdentity
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := Run(ctx, optionsFor(kube), func(work context.Context) error {
			assert.Equal(t, "pod-1", holder())
			cancel()
			<-work.Done()
			time.Sleep(time.Minute) // the bubble's time: longer than any lease
			assert.Equal(t, "pod-1", holder())
			return nil
		})
		assert.NoError(t, err)
		assert.Empty(t, holder())
	})
}

func TestRunEndsTheWorkWhenTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := fake.NewClientset()
		var away atomic.Bool
		kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is away")
		})
		ended := false
		err := Run(t.Context(), optionsFor(kube), func(work context.Context) error {
			away.Store(true)
			<-work.Done()
			ended = true
			return nil
		})
		assert.ErrorIs(t, err, ErrLeadershipLost)
		assert.True(t, ended)
	})
}

func TestRunWaitsForAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, seconds, now := "pod-2", int32(15), metav1.NowMicro()
		kube := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "the-lease"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := Run(ctx, optionsFor(kube), func(context.Context) error {
			t.Error("working while another leads")
			return nil
		})
		assert.NoError(t, err, "giving up at the end of the context")
	})
}
