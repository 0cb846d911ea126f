package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/election"
)

// leaseDuration is what a leader that died costs.
const leaseDuration = 8 * time.Second

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

// node is this daemon's.
func (l *leadership) node() string {
	node, _, _ := strings.Cut(l.identity, "/")
	return node
}

func (l *leadership) isLeader() bool { return l.leader.Load() == l.identity }

// url is where the leader serves the REST API, and whether a leader is known.
func (l *leadership) url() (string, bool) {
	_, ip, ok := strings.Cut(l.leader.Load().(string), "/")
	if !ok || ip == "" {
		return "", false
	}
	return "https://" + net.JoinHostPort(ip, fmt.Sprint(types.APIPort)), true
}

// run stands for election until ctx ends, and runs lead while elected. An error means
// that the Lease was lost or lead has failed: the process must then end, for nothing
// else makes a new attempt.
func (l *leadership) run(ctx context.Context, kube kubernetes.Interface, namespace string, log *logrus.Entry, lead func(context.Context) error) error {
	defer l.leader.Store("")
	return election.Run(ctx, election.Options{
		Kube: kube, Namespace: namespace, Name: types.LeaderLease, Identity: l.identity, Duration: leaseDuration, Log: log,
		OnNewLeader: func(identity string) {
			l.leader.Store(identity)
			log.WithField("leader", identity).Info("leader is known")
		},
	}, lead)
}
