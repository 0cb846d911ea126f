package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// A leader that died is replaced within leaseDuration + retryPeriod.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 2 * time.Second
	// shutdownGrace is how long what was led may take to end after the Lease is gone.
	shutdownGrace = 3 * time.Second
)

// leadership is who runs the cluster-scoped part. The identity in the Lease is
// <node>/<pod IP>, so that every daemon knows where to forward to.
type leadership struct {
	identity string
	leader   atomic.Value // string: the identity of the leader, "" while there is none
}

func newLeadership(node, podIP string) *leadership {
	l := &leadership{identity: node + "/" + podIP}
	l.leader.Store("")
	return l
}

func (l *leadership) isLeader() bool { return l.leader.Load() == l.identity }

// url is where the leader serves the REST API, and whether a leader is known.
func (l *leadership) url() (string, bool) {
	_, ip, ok := strings.Cut(l.leader.Load().(string), "/")
	if !ok || ip == "" {
		return "", false
	}
	return "http://" + net.JoinHostPort(ip, fmt.Sprint(types.APIPort)), true
}

// run stands for election until ctx ends, and runs lead while elected. It returns when
// ctx ends, when lead returns, or when the Lease is lost: the process must then end, for
// nothing else stops what lead had begun.
func (l *leadership) run(ctx context.Context, kube kubernetes.Interface, namespace string, log *logrus.Entry, lead func(context.Context) error) error {
	electing, cancel := context.WithCancel(ctx)
	defer cancel()
	led := make(chan error, 1)
	var leads atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: types.LeaderLease},
			Client:     kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				leads.Store(true)
				log.Info("elected leader")
				led <- lead(leading)
				cancel()
			},
			OnStoppedLeading: func() { l.leader.Store("") },
			OnNewLeader: func(identity string) {
				l.leader.Store(identity)
				log.WithField("leader", identity).Info("leader is known")
			},
		},
	})
	if err != nil {
		return fmt.Errorf("configure the leader election: %w", err)
	}
	elector.Run(electing)
	if leads.Load() {
		select {
		case err := <-led:
			if err != nil {
				return fmt.Errorf("lead: %w", err)
			}
		case <-time.After(shutdownGrace):
		}
	}
	if ctx.Err() == nil {
		return fmt.Errorf("lost the lease %s", types.LeaderLease)
	}
	return nil
}
