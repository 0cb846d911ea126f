package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
)

// holding holds the lock of a share permanently. It writes a line under the lock twice a second, and makes each line
// durable.
//
//	/tmp/grants   once, when it got the lock
//	/tmp/acks     <time> <number>, after it is durable
//	/tmp/failed   everything that failed
const holding = `
exec 8<> <(:)
exec 9>>/data/lock
flock 9
echo "$EPOCHREALTIME" >>/tmp/grants
n=0
while true; do
  n=$((n + 1))
  if echo "$n" >&9 && sync /data/lock; then
    echo "$EPOCHREALTIME $n" >>/tmp/acks
  else
    echo "record $n" >>/tmp/failed
  fi
  read -r -t 0.5 -u 8 || true
done
`

// wanting tries to get the lock that the other pod holds. It writes a line to /tmp/grants each time that it gets the
// lock.
const wanting = `
exec 8<> <(:)
exec 9>>/data/lock
while true; do
  if flock -n 9; then
    echo "$EPOCHREALTIME" >>/tmp/grants
    flock -u 9
  fi
  echo "$EPOCHREALTIME 0" >>/tmp/tries
  read -r -t 1 -u 8 || true
done
`

// TestSharedVolumesOfOneNode: one node serves as many shares as LONG_TOGETHER says. Each share has a pod that holds a
// lock and writes, and a pod that wants the lock. The node loses its power without warning. All shares come back on
// another node, no pod is restarted, every durable record is there, and no lock was lost. The test logs how long each
// share's pod could not write.
func TestSharedVolumesOfOneNode(t *testing.T) {
	count := numbersOf(t, "LONG_TOGETHER", "shares")[0]
	t.Parallel()
	turnOfKernels(t)
	ctx, c := series.get(t, long)
	c.DumpIfFailed(t)
	require.NoError(t, c.Apply(ctx, shareClass("shared", "ext4")))
	ns := namespace(ctx, t, c, "e2e-share-together")
	leads, err := leader(ctx, c)
	require.NoError(t, err)
	dying := without([]string{"node-1", "node-2"}, leads)[0]
	labelForShares(ctx, t, c)
	c.Must(ctx, t, "label", "node", without([]string{"node-1", "node-2"}, dying)[0], "e2e/shares-")
	shares := sharesTogether(ctx, t, c, ns, count)
	labelForShares(ctx, t, c)

	before := make([]string, count)
	for i, s := range shares {
		require.Equal(t, dying, s.status(ctx, t).CurrentNode, "share %d", i)
		if before[i], err = s.podUID(ctx); err != nil {
			t.Fatal(err)
		}
		s.waitGrows(ctx, t, s.holder(), "/tmp/acks", time.Minute)
		s.waitGrows(ctx, t, s.wanter(), "/tmp/tries", time.Minute)
		waitHealthy(ctx, t, c, s.volume, time.Minute)
	}
	t.Cleanup(func() { startNode(t, c, dying) })
	died := time.Now()
	_, err = c.Devcluster(ctx, "stop-node", dying, "--power-loss")
	require.NoError(t, err)
	for i, s := range shares {
		s.waitRunning(ctx, t, before[i], 3*time.Minute)
	}
	gaps := make([]time.Duration, count)
	for i, s := range shares {
		s.waitGrows(ctx, t, s.holder(), "/tmp/acks", 3*time.Minute)
		s.waitGrows(ctx, t, s.wanter(), "/tmp/tries", 3*time.Minute)
		gaps[i] = s.longestGap(ctx, t, s.holder(), died)
		t.Logf("FIGURES together: share %d wrote nothing for %.2f s", i, gaps[i].Seconds())
	}
	t.Logf("FIGURES from the last good write of a pod to the next, in seconds:\n%s", gapTable([]string{"the node of all shares dies"},
		map[string][]time.Duration{"the node of all shares dies": gaps}))
	for i, s := range shares {
		assert.NotEqual(t, dying, s.status(ctx, t).CurrentNode, "share %d", i)
		s.checkHeld(ctx, t)
	}
}

// together is one of the shares that one node serves.
type together struct {
	*share
	index int
}

func (s together) holder() string { return fmt.Sprintf("holder-%d", s.index) }
func (s together) wanter() string { return fmt.Sprintf("wanter-%d", s.index) }

// sharesTogether creates shares. Each has a pod that holds its lock, on one of the nodes with an NFS client, and a pod
// that wants the lock, on another.
func sharesTogether(ctx context.Context, t *testing.T, c *cluster.Cluster, ns string, count int) (shares []together) {
	t.Helper()
	for i := range count {
		s := together{share: &share{c: c, namespace: ns}, index: i}
		claim := fmt.Sprintf("c%d", i)
		s.volume = s.claim(ctx, t, claim, "shared", "64Mi")
		startPodOn(ctx, t, c, fmt.Sprintf("guest-%d", i%3+1), ns, s.holder(), claim, holding)
		shares = append(shares, s)
	}
	for i, s := range shares {
		c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/"+s.holder(), "--timeout=400s")
		s.waitGrows(ctx, t, s.holder(), "/tmp/grants", time.Minute)
		startPodOn(ctx, t, c, fmt.Sprintf("guest-%d", (i+1)%3+1), ns, s.wanter(), fmt.Sprintf("c%d", i), wanting)
	}
	for _, s := range shares {
		c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/"+s.wanter(), "--timeout=240s")
	}
	return shares
}

// waitGrows waits until a pod appends to a file from now on. For /tmp/grants, the first line is enough.
func (s together) waitGrows(ctx context.Context, t *testing.T, pod, file string, timeout time.Duration) {
	t.Helper()
	lines := func(ctx context.Context) (string, error) {
		return s.c.Kubectl(ctx, "-n", s.namespace, "exec", pod, "--", "bash", "-c", "cat "+file+" 2>/dev/null | wc -l")
	}
	before := "0"
	if file != "/tmp/grants" {
		var err error
		before, err = lines(ctx)
		require.NoError(t, err)
	}
	cluster.Eventually(ctx, t, timeout, "pod "+pod+" appends to "+file, func(ctx context.Context) error {
		now, err := lines(ctx)
		if err == nil && now == before {
			err = errors.New("it has " + now + " lines, as before")
		}
		return err
	})
}

// checkHeld checks that the holder held the lock all the time and that both pods are the original ones. The other pod
// must see all durable records.
func (s together) checkHeld(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, pod := range []string{s.holder(), s.wanter()} {
		state := s.c.Must(ctx, t, "-n", s.namespace, "get", "pod", pod, "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}")
		assert.Equal(t, "Running 0", state, "pod %s", pod)
		assert.Empty(t, s.exec(ctx, t, pod, "cat /tmp/failed 2>/dev/null || true"), "pod %s saw errors", pod)
	}
	assert.Empty(t, s.exec(ctx, t, s.wanter(), "cat /tmp/grants 2>/dev/null || true"), "not by chance: pod %s got the lock that the other one had", s.wanter())
	_, records := s.acked(ctx, t, s.holder())
	there := strings.Fields(s.exec(ctx, t, s.wanter(), "cat /data/lock"))
	require.GreaterOrEqual(t, len(there), len(records), "not by chance: records of pod %s are lost", s.holder())
	assert.True(t, slices.Equal(records, there[:len(records)]), "not by chance: records of pod %s are lost: it made %v durable, and there are %v", s.holder(), records, there)
}
