package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/longhorn-lep/longhorn-manager/controller/handover"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/election"
)

// leaseDuration is how long the cluster has no leader after a leader died.
const leaseDuration = 8 * time.Second

// leadership knows which daemon runs the cluster-scoped part. The identity in the Lease is <node>/<pod IP>, so that
// every daemon knows where to forward requests.
type leadership struct {
	identity         string
	leader           atomic.Value  // string: the identity of the leader, "" while no daemon leads
	successorTimeout time.Duration // for a successor, when this daemon hands over
}

func newLeadership(node, podIP string) *leadership {
	l := &leadership{identity: node + "/" + podIP, successorTimeout: defaultSuccessorTimeout}
	l.leader.Store("")
	return l
}

// node returns this daemon's node.
func (l *leadership) node() string {
	node, _, _ := strings.Cut(l.identity, "/")
	return node
}

func (l *leadership) isLeader() bool { return l.leader.Load() == l.identity }

// url returns the address where the leader serves the REST API, and whether a leader is known.
func (l *leadership) url() (string, bool) {
	_, ip, ok := strings.Cut(l.leader.Load().(string), "/")
	if !ok || ip == "" {
		return "", false
	}
	return "https://" + net.JoinHostPort(ip, fmt.Sprint(types.APIPort)), true
}

// run stands for election until ctx ends, and runs lead in each term. An error of lead ends only the term: the API
// server may be unavailable, and this daemon continues to work for its node. If lead returns handover.ErrHandOver,
// another daemon gets the time to be elected first.
func (l *leadership) run(ctx context.Context, kube kubernetes.Interface, namespace string, log *logrus.Entry, lead func(context.Context) error) error {
	defer l.leader.Store("")
	return election.Run(ctx, election.Options{
		Kube: kube, Namespace: namespace, Name: types.LeaderLease, Identity: l.identity, Duration: leaseDuration, Log: log,
		OnNewLeader: func(identity string) {
			l.leader.Store(identity)
			log.WithField("leader", identity).Info("A leader was elected")
		},
		OnTermEnd: func(ctx context.Context, err error) {
			l.leader.Store("")
			if errors.Is(err, handover.ErrHandOver) {
				l.awaitSuccessor(ctx, kube, namespace)
			}
		},
	}, lead)
}

// Each other daemon checks about every two seconds whether there is a leader. If no other daemon becomes the leader,
// this daemon stands for election again.
const (
	defaultSuccessorTimeout = 10 * time.Second
	successorInterval       = 500 * time.Millisecond
)

// awaitSuccessor returns when another daemon leads, or if none has been elected for a while.
func (l *leadership) awaitSuccessor(ctx context.Context, kube kubernetes.Interface, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, l.successorTimeout)
	defer cancel()
	// An error does not matter: the next election shows which daemon leads.
	_ = wait.PollUntilContextCancel(ctx, successorInterval, true, func(ctx context.Context) (bool, error) {
		lease, err := kube.CoordinationV1().Leases(namespace).Get(ctx, types.LeaderLease, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false, nil
		}
		return *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != l.identity, nil
	})
}
