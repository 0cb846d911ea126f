package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

// admission waits until it is known that this cluster has no other Longhorn. Until then a daemon changes nothing in the
// cluster. The daemons of a first installation start before the CRDs, which are last in a manifest. A machine may also
// start while the API server is unavailable. Only another Longhorn ends the wait with an error. All other causes may
// disappear with time, and the kubelet would restart a process that exits after ever longer delays.
type admission struct {
	clock  clock.Clock
	log    *logrus.Entry
	reason atomic.Pointer[publicReason] // nil: the daemon is admitted
}

const (
	// admissionRetry is the time between two checks of the cluster, and admissionTimeout how long one check may take.
	// The first check has a shorter limit: in a network that drops packets, the log must soon contain the reason for
	// the wait.
	admissionRetry, admissionTimeout, admissionFirstTimeout = time.Second, 10 * time.Second, 2 * time.Second
	// admissionLogInterval is how often the log repeats the reason for the wait.
	admissionLogInterval = 30 * time.Second
)

// The reasons for which a daemon waits. Any client may read them; the log has the causes.
const (
	waitsForFirstAnswer publicReason = "it waits for the first answer of the Kubernetes API server"
	waitsForServer      publicReason = "it waits for the Kubernetes API server, which does not answer"
	waitsForPermission  publicReason = "it waits until the Kubernetes API server allows it to read the cluster's objects"
)

func newAdmission(c clock.Clock, log *logrus.Entry) *admission {
	a := &admission{clock: c, log: log}
	a.setReason(waitsForFirstAnswer)
	return a
}

func (a *admission) setReason(reason publicReason) { a.reason.Store(&reason) }

// waiting returns a publicReason; nil: the daemon is admitted.
func (a *admission) waiting() error {
	if reason := a.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// await returns nil when the cluster has no other Longhorn. It fails only if there is another Longhorn, or when ctx
// ends.
func (a *admission) await(ctx context.Context, client metadata.Interface, namespace string) error {
	var loggedAt time.Time
	for limit := admissionFirstTimeout; ; limit = admissionTimeout {
		err := a.check(ctx, client, namespace, limit)
		switch {
		case err == nil:
			if !loggedAt.IsZero() {
				a.log.Info("The cluster has no other Longhorn; the daemon starts its controllers")
			}
			a.reason.Store(nil)
			return nil
		case errors.Is(err, errForeign):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("check that the cluster has no other Longhorn: %w", context.Cause(ctx))
		}
		reason := waitsForServer
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			reason = waitsForPermission
		}
		a.setReason(reason)
		if now := a.clock.Now(); loggedAt.IsZero() || now.Sub(loggedAt) >= admissionLogInterval {
			loggedAt = now
			a.log.WithError(err).Warn("The daemon is not ready: " + reason.Error())
		}
		select {
		case <-ctx.Done():
		case <-a.clock.After(admissionRetry):
		}
	}
}

func (a *admission) check(ctx context.Context, client metadata.Interface, namespace string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return checkForeign(ctx, client, namespace)
}
