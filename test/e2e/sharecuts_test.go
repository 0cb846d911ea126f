package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// apiServer is the address of a development cluster's control plane in the packets that the nodes forward.
	apiServer = "172.30.0.1"
	// podNetworks contains the addresses of all pods of a development cluster.
	podNetworks = "10.244.0.0/16"

	// outage is how long pods have no network. leaderCut is how long a leader has only a part of its network. leaderCut
	// is longer than everything that a leader waits for: leases, verdicts, and the exit of a former server.
	outage    = 3 * time.Second
	leaderCut = 45 * time.Second
)

// drops are rules of iptables on a node. Each consists of a chain and the packets that it drops there.
type drops []string

func (d drops) script(verb string) string {
	var b strings.Builder
	for _, rule := range d {
		chain, what, _ := strings.Cut(rule, " ")
		fmt.Fprintf(&b, "iptables -w 5 %s %s %s -j DROP\n", verb, chain, what)
	}
	return b.String()
}

// on lets a node drop packets until the returned function is called, or until the test ends.
func (d drops) on(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) (heal func()) {
	t.Helper()
	heal = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := c.OnNode(ctx, node, "bash", "-c", d.script("-D"))
		assert.NoError(t, err)
	})
	t.Cleanup(heal)
	c.MustOnNode(ctx, t, node, "bash", "-ec", d.script("-I"))
	return heal
}

// staysWhile does something that must not move the share. It checks that the same pod serves on the same node before
// and after.
func (s *shareSeries) staysWhile(ctx context.Context, t *testing.T, do func()) {
	t.Helper()
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	node := s.status(ctx, t).CurrentNode
	do()
	s.waitAcked(ctx, t, time.Minute)
	now, err := s.podUID(ctx)
	require.NoError(t, err)
	assert.Equal(t, uid, now, "the share's pod was replaced")
	assert.Equal(t, node, s.status(ctx, t).CurrentNode, "the share was moved")
}

// loseNetwork lets the network between nodes drop all packets from and to pods for 3 s. It does that for all nodes at
// the same moment: a single node that is cut off for so long is rightly considered down. 3 s are too short to move
// anything.
func (s *shareSeries) loseNetwork(ctx context.Context, t *testing.T) {
	rules := drops{"FORWARD -s " + podNetworks, "FORWARD -d " + podNetworks}
	s.staysWhile(ctx, t, func() {
		s.failsNow()
		script := fmt.Sprintf("%sread -r -t %.0f <> <(:) || true\n%s", rules.script("-I"), outage.Seconds(), rules.script("-D"))
		assert.NoError(t, s.c.InRouter(ctx, "bash", "-c", script))
		t.Logf("pods had no network for %v", time.Since(s.failed).Round(time.Millisecond))
	})
}

// cutLeader lets the leader's node drop some packets from and to the leader. In rules, %[1]s is the leader's address.
// The share is on another node. cutLeader calls during after leaderCut, before it heals the leader.
func (s *shareSeries) cutLeader(ctx context.Context, t *testing.T, rules []string, during func(node string)) {
	t.Helper()
	node := s.leaderElsewhere(ctx, t)
	ip := s.c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", "app=longhorn-manager",
		"--field-selector=spec.nodeName="+node, "-o", "jsonpath={.items[0].status.podIP}")
	var d drops
	for _, rule := range rules {
		d = append(d, fmt.Sprintf(rule, ip))
	}
	s.staysWhile(ctx, t, func() {
		s.failsNow()
		heal := d.on(ctx, t, s.c, node)
		until(ctx, t, s.failed.Add(leaderCut))
		during(node)
		heal()
		cluster.Eventually(ctx, t, 2*time.Minute, "a daemon leads", func(ctx context.Context) error {
			_, err := leader(ctx, s.c)
			return err
		})
	})
}

// leaderElsewhere moves the share to a node that does not lead, and returns the leader's node.
func (s *shareSeries) leaderElsewhere(ctx context.Context, t *testing.T) string {
	t.Helper()
	for range 5 {
		node, err := leader(ctx, s.c)
		require.NoError(t, err)
		s.placeOn(ctx, t, without([]string{"node-1", "node-2"}, node)[0])
		if now, err := leader(ctx, s.c); err == nil && now == node {
			return node
		}
	}
	t.Fatal("the leader changes whenever the share is moved")
	return ""
}

// cutLeaderFromNodes: a leader reaches no node, but can write to the API server. It considers no node down, because it
// has no witness.
func (s *shareSeries) cutLeaderFromNodes(ctx context.Context, t *testing.T) {
	rules := []string{"FORWARD -s %s ! -d " + apiServer, "FORWARD -d %s ! -s " + apiServer}
	s.cutLeader(ctx, t, rules, func(node string) {
		now, err := leader(ctx, s.c)
		assert.NoError(t, err)
		assert.Equal(t, node, now, "another daemon leads: nothing is shown of one that is cut off")
		for _, n := range s.c.Nodes() {
			got, err := s.c.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(ctx, n, metav1.GetOptions{})
			require.NoError(t, err)
			for _, condition := range got.Status.Conditions {
				assert.NotEqual(t, "NodeNotAnswering", condition.Reason, "node %s", n)
			}
		}
	})
}

// cutLeaderFromAPI: a leader without the API server loses its role to another daemon, and neither of them moves the
// share.
func (s *shareSeries) cutLeaderFromAPI(ctx context.Context, t *testing.T) {
	rules := []string{"FORWARD -s %s -d " + apiServer, "FORWARD -d %s -s " + apiServer}
	s.cutLeader(ctx, t, rules, func(node string) {
		cluster.Eventually(ctx, t, time.Minute, "another daemon leads", func(ctx context.Context) error {
			now, err := leader(ctx, s.c)
			if err == nil && now == node {
				err = errors.New("the one that is cut off from the API server does")
			}
			return err
		})
	})
}

func TestDrops(t *testing.T) {
	d := drops{"FORWARD", "INPUT -s 10.244.0.0/16"}
	assert.Equal(t, "iptables -w 5 -I FORWARD  -j DROP\niptables -w 5 -I INPUT -s 10.244.0.0/16 -j DROP\n", d.script("-I"))
}
