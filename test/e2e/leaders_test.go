package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The number of leaders that are cut off, for how long each, and by how much one node's clock is ahead.
const (
	leadersCut    = 20
	leaderCutFor  = 20 * time.Second
	clockAhead    = 30 * time.Second
	leaderElected = time.Minute
)

// TestNoTwoLeadersWrite: the leader's node is cut off again and again, while the clock of one node is ahead. Every
// write with the leader's account comes from the node that last acquired the lease.
func TestNoTwoLeadersWrite(t *testing.T) {
	if os.Getenv("LONG_OUTAGES") == "" {
		t.Skip("LONG_OUTAGES is not set: a long run that gives figures")
	}
	t.Parallel()
	turnOfKernels(t) // each kernel has only one clock
	ctx, c := guests.get(t, long)
	c.DumpIfFailed(t)
	ahead := c.Nodes()[0]
	t.Cleanup(func() {
		_, err := c.OnNode(context.WithoutCancel(ctx), ahead, "date", "-s", fmt.Sprintf("-%.0f seconds", clockAhead.Seconds()))
		assert.NoError(t, err)
	})
	c.MustOnNode(ctx, t, ahead, "date", "-s", fmt.Sprintf("+%.0f seconds", clockAhead.Seconds()))
	began := time.Now()
	cuts := map[string]int{}
	for range leadersCut {
		node := awaitLeader(ctx, t, c, "")
		cutOffLeader(ctx, t, c, node, func() { awaitLeader(ctx, t, c, node) })
		cuts[node]++
	}
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=60s")
	leases, writes, wrong := leadersWrites(requestsSince(t, guests.options.Dir, began))
	t.Logf("FIGURES leaders cut off: %v, of which %s has a clock that is %v ahead; the lease changed hands %d times; %d writes", cuts, ahead, clockAhead, leases, writes)
	assert.Empty(t, wrong, "not by chance: written by a daemon that had lost the lease")
	assert.GreaterOrEqual(t, leases, leadersCut, "the lease did not change hands each time")
	assert.Positive(t, cuts[ahead], "the node with the other clock never led: the test would see nothing")
	assert.Positive(t, writes, "no leader wrote anything: the test would see nothing")
}

// cutOffLeader cuts a node off for leaderCutFor, and calls during in this time.
func cutOffLeader(ctx context.Context, t *testing.T, c *cluster.Cluster, node string, during func()) {
	t.Helper()
	heal := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := c.Devcluster(ctx, "heal", node)
		assert.NoError(t, err)
	}
	t.Cleanup(heal)
	began := time.Now()
	_, err := c.Devcluster(ctx, "cut", node)
	require.NoError(t, err)
	during()
	until(ctx, t, began.Add(leaderCutFor))
	heal()
}

// awaitLeader returns the node that leads, as soon as it is not the given one.
func awaitLeader(ctx context.Context, t *testing.T, c *cluster.Cluster, but string) (node string) {
	t.Helper()
	cluster.Eventually(ctx, t, leaderElected, "a daemon leads, not that of "+but, func(ctx context.Context) (err error) {
		if node, err = leader(ctx, c); err == nil && node == but {
			err = errors.New("the same one does")
		}
		return err
	})
	return node
}

// leadersWrites searches requests for writes with the leader's account. leases is how often the lease changed hands,
// and writes is the number of these writes. wrong lists the writes that did not come from the sender of the last
// successful write of the lease.
func leadersWrites(requests []request) (leases, writes int, wrong []string) {
	holder := ""
	for _, r := range requests {
		if !r.ours() || !r.writes() || r.ResponseStatus.Code >= 300 || len(r.SourceIPs) == 0 {
			continue
		}
		from := r.SourceIPs[0]
		switch {
		case r.ObjectRef.Resource == "leases" && r.ObjectRef.Name == types.LeaderLease:
			if holder != from {
				leases++
			}
			holder = from
		case r.User.Username == accounts+types.LeaderAccount:
			writes++
			if from != holder && holder != "" {
				wrong = append(wrong, fmt.Sprintf("%s from %s: %s %s %s %s, while %s had the lease", r.RequestReceivedTimestamp.Format(time.RFC3339Nano), from,
					r.Verb, r.ObjectRef.Resource, r.ObjectRef.Name, r.ObjectRef.Subresource, holder))
			}
		}
	}
	return leases, writes, wrong
}

func TestLeadersWrites(t *testing.T) {
	lease := func(from string, code int) (r request) {
		r.Verb, r.User.Username, r.SourceIPs, r.ResponseStatus.Code = "update", accounts+"longhorn-manager", []string{from}, code
		r.ObjectRef.Resource, r.ObjectRef.Name = "leases", types.LeaderLease
		return r
	}
	write := func(from string) (r request) {
		r.Verb, r.User.Username, r.SourceIPs, r.ResponseStatus.Code = "patch", accounts+types.LeaderAccount, []string{from}, 200
		r.ObjectRef.Resource, r.ObjectRef.Name = "volumes", "v"
		return r
	}
	for name, tc := range map[string]struct {
		requests               []request
		leases, writes, wrongs int
	}{
		"one after the other":            {[]request{lease("a", 200), write("a"), lease("a", 200), lease("b", 200), write("b")}, 2, 2, 0},
		"after another has the lease":    {[]request{lease("a", 200), lease("b", 200), write("a")}, 2, 1, 1},
		"a lease that was refused":       {[]request{lease("a", 200), lease("b", 409), write("a")}, 1, 1, 0},
		"before anyone was seen with it": {[]request{write("a"), lease("b", 200)}, 1, 1, 0},
		"it comes back → three times":    {[]request{lease("a", 200), lease("b", 200), lease("a", 200), write("a")}, 3, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			leases, writes, wrong := leadersWrites(tc.requests)
			assert.Equal(t, []int{tc.leases, tc.writes, tc.wrongs}, []int{leases, writes, len(wrong)}, "%v", wrong)
		})
	}
}
