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

// admission is the wait for the answer that this cluster is ours. A daemon does nothing to the cluster before it. A first installation's daemons
// start before the definitions, which a manifest has last; a machine may start while the API server is away. Only another Longhorn ends the wait
// with an error: all else may heal with time, and the kubelet would start a process that ended later and later.
type admission struct {
	clock clock.Clock
	log   *logrus.Entry
	why   atomic.Pointer[publicReason] // nil: the daemon is admitted
}

const (
	// admissionRetry is how soon the cluster is looked at again, and admissionLook how long one look may take. The first is shorter: a network that
	// drops packets must not keep the log from saying what is waited for.
	admissionRetry, admissionLook, admissionFirstLook = time.Second, 10 * time.Second, 2 * time.Second
	// admissionReminder is how often the log says what is waited for.
	admissionReminder = 30 * time.Second
)

// What a daemon waits for, as anyone may know. The log has the cause.
const (
	waitsForLook   publicReason = "it waits for the first answer of the Kubernetes API server"
	waitsForServer publicReason = "it waits for the Kubernetes API server, which does not answer"
	waitsForLeave  publicReason = "it waits until the Kubernetes API server lets it look at the cluster"
)

func newAdmission(c clock.Clock, log *logrus.Entry) *admission {
	a := &admission{clock: c, log: log}
	a.isFor(waitsForLook)
	return a
}

func (a *admission) isFor(why publicReason) { a.why.Store(&why) }

// waiting is a publicReason; nil: the daemon is admitted.
func (a *admission) waiting() error {
	if why := a.why.Load(); why != nil {
		return *why
	}
	return nil
}

// await returns nil when the cluster is ours. Its errors are those of another Longhorn, and the end of ctx.
func (a *admission) await(ctx context.Context, client metadata.Interface, namespace string) error {
	var told time.Time
	for limit := admissionFirstLook; ; limit = admissionLook {
		err := a.look(ctx, client, namespace, limit)
		switch {
		case err == nil:
			if !told.IsZero() {
				a.log.Info("The cluster can be used now")
			}
			a.why.Store(nil)
			return nil
		case errors.Is(err, errForeign):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("wait until the cluster can be used: %w", context.Cause(ctx))
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
