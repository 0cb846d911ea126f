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
	// apiServer is where the control plane of a development cluster is, for the packets that its nodes pass on.
	apiServer = "172.30.0.1"
	// podNetworks has the addresses of all pods of a development cluster.
	podNetworks = "10.244.0.0/16"

	// outage is how long pods are without a network, and leaderCut how long a leader is without a part of it. The latter is longer than all that
	// a leader waits for: leases, verdicts, and the end of a former server.
	outage    = 3 * time.Second
	leaderCut = 45 * time.Second
)

// drops are rules of iptables on a node, each of a chain and what is dropped there.
type drops []string

func (d drops) script(verb string) string {
	var b strings.Builder
	for _, rule := range d {
		chain, what, _ := strings.Cut(rule, " ")
		fmt.Fprintf(&b, "iptables -w 5 %s %s %s -j DROP\n", verb, chain, what)
	}
	return b.String()
}

// on has a node drop packets until the returned function is called, or the test ends.
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

// staysWhile does something that must not move the share: the same pod serves on the same node before and after.
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

// loseNetwork has the network between nodes drop what pods send and what is sent to them, for 3 s, and for all of them at the same moment: one
// node that is cut off for so long is rightly taken for dead. That is too short for anything to be moved.
func (s *shareSeries) loseNetwork(ctx context.Context, t *testing.T) {
	rules := drops{"FORWARD -s " + podNetworks, "FORWARD -d " + podNetworks}
	s.staysWhile(ctx, t, func() {
		s.failsNow()
		script := fmt.Sprintf("%sread -r -t %.0f <> <(:) || true\n%s", rules.script("-I"), outage.Seconds(), rules.script("-D"))
		assert.NoError(t, s.c.InRouter(ctx, "bash", "-c", script))
		t.Logf("pods had no network for %v", time.Since(s.failed).Round(time.Millisecond))
	})
}

// cutLeader has the leader's node drop some of what the leader sends and gets, %[1]s being the leader's address. The share is on another node.
// during is called after that time, before the leader is healed.
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

// leaderElsewhere has the share on a node that does not lead, and returns the one that does.
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

// cutLeaderFromNodes: a leader that hears no node, but writes what it likes, takes no node for dead, for it has no witness.
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

// cutLeaderFromAPI: a leader without the API server gives way to another daemon, and neither moves the share.
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
