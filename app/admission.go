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
	clock clock.Clock
	log   *logrus.Entry
	why   atomic.Pointer[publicReason] // nil: the daemon is admitted
}

const (
	// admissionRetry is the time between two checks of the cluster, and admissionLook how long one check may take. The
	// first check has a shorter limit: in a network that drops packets, the log must soon contain the reason for the
	// wait.
	admissionRetry, admissionLook, admissionFirstLook = time.Second, 10 * time.Second, 2 * time.Second
	// admissionReminder is how often the log repeats the reason for the wait.
	admissionReminder = 30 * time.Second
)

// The reasons for which a daemon waits. Any client may read them; the log has the causes.
const (
	waitsForLook   publicReason = "it waits for the first answer of the Kubernetes API server"
	waitsForServer publicReason = "it waits for the Kubernetes API server, which does not answer"
	waitsForLeave  publicReason = "it waits until the Kubernetes API server allows it to read the cluster's objects"
)

func newAdmission(c clock.Clock, log *logrus.Entry) *admission {
	a := &admission{clock: c, log: log}
	a.isFor(waitsForLook)
	return a
}

func (a *admission) isFor(why publicReason) { a.why.Store(&why) }

// waiting returns a publicReason; nil: the daemon is admitted.
func (a *admission) waiting() error {
	if why := a.why.Load(); why != nil {
		return *why
	}
	return nil
}

// await returns nil when the cluster has no other Longhorn. It fails only if there is another Longhorn, or when ctx
// ends.
func (a *admission) await(ctx context.Context, client metadata.Interface, namespace string) error {
	var told time.Time
	for limit := admissionFirstLook; ; limit = admissionLook {
		err := a.look(ctx, client, namespace, limit)
		switch {
		case err == nil:
			if !told.IsZero() {
				a.log.Info("The cluster has no other Longhorn; the daemon starts its controllers")
			}
			a.why.Store(nil)
			return nil
		case errors.Is(err, errForeign):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("check that the cluster has no other Longhorn: %w", context.Cause(ctx))
		}
		why := waitsForServer
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			why = waitsForLeave
		}
		a.isFor(why)
		if now := a.clock.Now(); told.IsZero() || now.Sub(told) >= admissionReminder {
			told = now
			a.log.WithError(err).Warn("The daemon is not ready: " + why.Error())
		}
		select {
		case <-ctx.Done():
		case <-a.clock.After(admissionRetry):
		}
	}
}

func (a *admission) look(ctx context.Context, client metadata.Interface, namespace string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return checkForeign(ctx, client, namespace)
}
