package election

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
)

func optionsFor(kube kubernetes.Interface) Options {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	return Options{
		Kube: kube, Namespace: "longhorn-system", Name: "the-lease", Identity: "pod-1",
		Duration: 15 * time.Second, Log: logrus.NewEntry(quiet),
	}
}

// holder is the holder of the Lease.
func holder(t *testing.T, kube kubernetes.Interface) string {
	lease, err := kube.CoordinationV1().Leases("longhorn-system").Get(t.Context(), "the-lease", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// outage creates an API server that does not answer while it is on: requests wait as long as the library lets them.
func outage(kube *fake.Clientset) *atomic.Bool {
	var away atomic.Bool
	kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away.Load(), nil, errors.New("the API server is away")
	})
	return &away
}

func TestRunReleasesTheLeaseOnlyAfterTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		ctx, cancel := context.WithCancel(t.Context())
		err := Run(ctx, optionsFor(kube), func(work context.Context) error {
			assert.Equal(t, "pod-1", holder(t, kube))
			cancel()
			<-work.Done()
			time.Sleep(time.Minute) // the bubble's time: longer than any lease
			assert.Equal(t, "pod-1", holder(t, kube))
			return nil
		})
		assert.NoError(t, err)
		assert.Empty(t, holder(t, kube))
	})
}

// If the Lease is lost, the work is stopped and waited for, and the process campaigns again.
func TestRunCampaignsAgainWhenTheLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		away := outage(kube)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		terms, working := 0, false
		o := optionsFor(kube)
		var told []error
		o.OnTermEnd = func(_ context.Context, err error) {
			assert.False(t, working, "the work has ended")
			told = append(told, err)
		}
		err := Run(ctx, o, func(work context.Context) error {
			assert.False(t, working)
			working = true
			defer func() { working = false }()
			if terms++; terms == 3 {
				cancel()
			} else {
				began := time.Now()
				away.Store(true)
				<-work.Done()
				assert.Less(t, time.Since(began), o.Duration*3/4+time.Millisecond, "in time for the next leader")
				time.Sleep(time.Minute) // the work stops slowly
				away.Store(false)
			}
			<-work.Done()
			return work.Err()
		})
		assert.NoError(t, err)
		assert.Equal(t, 3, terms)
		assert.Equal(t, []error{ErrLeadershipLost, ErrLeadershipLost}, told)
	})
}

// The answer to the last renewal comes late: the time counts from when the renewal was sent.
func TestTheTimeCountsFromWhenARenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		var updates atomic.Int32
		var sent time.Time
		kube.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			switch updates.Add(1) {
			case 1: // it is written at once, and answered late
				sent = time.Now()
				time.Sleep(5 * time.Second)
				return false, nil, nil
			default:
				return true, nil, errors.New("the API server is away")
			}
		})
		o := optionsFor(kube)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_ = Run(ctx, o, func(work context.Context) error {
			<-work.Done()
			assert.Equal(t, o.Duration*3/4, time.Since(sent))
			cancel()
			return nil
		})
	})
}

// Failed work is started again, by the process that is elected then. Pauses grow, so that a permanent failure uses no
// CPU.
func TestRunCampaignsAgainWhenTheWorkFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := errors.New("the account has no right")
		var began []time.Time
		o := optionsFor(kube)
		o.OnTermEnd = func(_ context.Context, err error) {
			assert.ErrorIs(t, err, failed)
			assert.Empty(t, holder(t, kube), "another process can lead")
		}
		err := Run(ctx, o, func(work context.Context) error {
			if began = append(began, time.Now()); len(began) < 8 {
				return fmt.Errorf("cluster: %w", failed)
			}
			cancel()
			<-work.Done()
			return nil
		})
		assert.NoError(t, err)
		for i := 2; i < len(began); i++ {
			assert.GreaterOrEqual(t, began[i].Sub(began[i-1]), min(began[i-1].Sub(began[i-2]), maxPause))
		}
		assert.LessOrEqual(t, began[7].Sub(began[6]), maxPause+2*retryPeriod)
	})
}

// A process that lost the Lease to another one does not remove the other's Lease when it tries to release its own.
func TestALeaseOfAnotherProcessIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := optionsFor(kube)
		o.OnTermEnd = func(context.Context, error) {
			assert.Equal(t, "pod-2", holder(t, kube))
			cancel()
		}
		assert.NoError(t, Run(ctx, o, func(work context.Context) error {
			lease, err := kube.CoordinationV1().Leases("longhorn-system").Get(ctx, "the-lease", metav1.GetOptions{})
			assert.NoError(t, err)
			other, now := "pod-2", metav1.NowMicro()
			lease.Spec.HolderIdentity, lease.Spec.RenewTime = &other, &now
			_, err = kube.CoordinationV1().Leases("longhorn-system").Update(ctx, lease, metav1.UpdateOptions{})
			assert.NoError(t, err)
			<-work.Done()
			return nil
		}))
		assert.Equal(t, "pod-2", holder(t, kube))
	})
}

func TestRunWaitsForAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holder, seconds, now := "pod-2", int32(15), metav1.NowMicro()
		kube := testutil.NewLeases(&coordinationv1.Lease{
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

// Options with which no election can be held are an error.
func TestRunRefusesWrongOptions(t *testing.T) {
	o := optionsFor(testutil.NewLeases())
	o.Duration = 0
	assert.ErrorContains(t, Run(t.Context(), o, func(context.Context) error { return nil }), "longhorn-system/the-lease")
}

// Two processes lead in turn while the API server goes away for one or both of them, at every moment: never both at
// once. One process has a clock that is ahead.
func TestTwoProcessesNeverLeadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := testutil.NewLeases()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var leading, terms atomic.Int32
		done := make(chan error, 2)
		for i, name := range []string{"pod-1", "pod-2"} {
			kube := &cutKube{Clientset: shared}
			o := optionsFor(kube)
			o.Identity, o.Duration = name, 8*time.Second
			o.OnTermEnd = func(context.Context, error) { kube.away.Store(false) }
			go func() {
				done <- Run(ctx, o, func(work context.Context) error {
					assert.Equal(t, int32(1), leading.Add(1), "two lead")
					defer leading.Add(-1)
					if terms.Add(1) == 200 {
						cancel()
					}
					select {
					case <-work.Done():
					case <-time.After(time.Duration(terms.Load()%7)*970*time.Millisecond + time.Duration(i)*331*time.Millisecond):
						kube.away.Store(true)
						<-work.Done()
					}
					time.Sleep(1900 * time.Millisecond) // the work stops
					return nil
				})
			}()
		}
		assert.NoError(t, <-done)
		assert.NoError(t, <-done)
		assert.GreaterOrEqual(t, terms.Load(), int32(200))
	})
}

// A process that must stop in the moment in which it is elected releases the Lease, although its work has not started.
func TestALeaseThatWasJustWonIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := testutil.NewLeases()
		ctx, cancel := context.WithCancel(t.Context())
		kube.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			cancel()
			time.Sleep(time.Second) // it is noticed
			return false, nil, nil
		})
		assert.NoError(t, Run(ctx, optionsFor(kube), func(context.Context) error {
			t.Error("working after the end")
			return nil
		}))
		assert.Empty(t, holder(t, kube))
	})
}
