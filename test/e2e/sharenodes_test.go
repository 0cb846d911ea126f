package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// third is the node of a series that dies or is cut off, with thirdPod, which runs on it.
const third, thirdPod = "guest-3", "three"

// grabbing acquires the lock of contending and releases it, again and again. It writes nothing to the volume, so it
// needs no disk.
//
//	/tmp/grants   when it got the lock, a line each
const grabbing = `
exec 8<> <(:)
exec 9>>/data/lock
while true; do
  if flock -n 9; then
    echo "$EPOCHREALTIME" >>/tmp/grants
    flock -u 9
  fi
  read -r -t 0.1 -u 8 || true
done
`

// placeOn moves the share's pod to a chosen node. Later pods may run on that node, and on the nodes with this machine's
// kernel.
func (s *shareSeries) placeOn(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	defer labelForShares(ctx, t, s.c)
	for _, other := range without(s.c.Nodes(), node) {
		s.c.Must(ctx, t, "label", "node", other, "e2e/shares-")
	}
	s.c.Must(ctx, t, "label", "node", node, "e2e/shares=yes", "--overwrite")
	if s.status(ctx, t).CurrentNode != node {
		uid, err := s.podUID(ctx)
		require.NoError(t, err)
		began := time.Now()
		s.c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", types.ShareManagerPodName(s.volume), "--wait=false")
		s.waitRunning(ctx, t, uid, 3*time.Minute)
		s.waitAcked(ctx, t, time.Minute)
		for _, pod := range sharers {
			t.Logf("pod %s wrote nothing for %v while the share moved to node %s", pod, s.gapAfter(ctx, t, pod, began).Round(time.Millisecond), node)
		}
		s.checkLock(ctx, t)
	}
	require.Equal(t, node, s.status(ctx, t).CurrentNode)
	s.waitAcked(ctx, t, time.Minute)
	waitHealthy(ctx, t, s.c, s.volume, 5*time.Minute)
}

// startThird lets a pod on the third node run a script with the volume, until the test deletes it.
func (s *shareSeries) startThird(ctx context.Context, t *testing.T, script string) {
	t.Helper()
	startPodOn(ctx, t, s.c, third, s.namespace, thirdPod, "shared", script)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/"+thirdPod, "--timeout=240s")
}

// killNode moves the share to a node that does not lead, and kills this node.
func (s *shareSeries) killNode(ctx context.Context, t *testing.T) {
	leads, err := leader(ctx, s.c)
	require.NoError(t, err)
	s.placeOn(ctx, t, without([]string{"node-1", "node-2"}, leads)[0])
	s.dies(ctx, t)
}

// killLeader moves the share to the node that leads, and kills this node.
func (s *shareSeries) killLeader(ctx context.Context, t *testing.T) {
	leads := s.leadOnThisKernel(ctx, t)
	s.placeOn(ctx, t, leads)
	now, err := leader(ctx, s.c)
	require.NoError(t, err)
	if now != leads {
		t.Skipf("the leader moved from %s to %s, away from the share, so no node both leads and serves it", leads, now)
	}
	s.dies(ctx, t)
}

// leadOnThisKernel moves the leader role to a node with this machine's kernel, where shares run, and returns the node.
func (s *shareSeries) leadOnThisKernel(ctx context.Context, t *testing.T) string {
	t.Helper()
	for range 20 {
		leads, err := leader(ctx, s.c)
		require.NoError(t, err)
		if leads == "node-1" || leads == "node-2" {
			return leads
		}
		s.c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", "-l", "app=longhorn-manager", "--field-selector=spec.nodeName="+leads)
		cluster.Eventually(ctx, t, time.Minute, "another daemon leads", func(ctx context.Context) error {
			now, err := leader(ctx, s.c)
			if err == nil && now == leads {
				err = errors.New("the same one does")
			}
			return err
		})
	}
	t.Fatal("no daemon on a node of this machine's kernel ever led")
	return ""
}

// needsTables skips a failure that needs the share and one of its clients on the same node, if the node's kernel has no
// nftables for IP. Without nftables, clients lose their locks when a share moves to that node or from it. The share
// also never closes its port (share/firewall).
func (s *shareSeries) needsTables(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	if out, err := s.c.OnNode(ctx, node, "modprobe", "-n", "nft_chain_nat"); err != nil {
		t.Skipf("the kernel of node %s has no nftables for IP, one of scripts/guestkernel.sh has (LONGHORN_GUEST_KERNEL): %s", node, out)
	}
}

// checkGuestKernel: guests with a kernel of scripts/guestkernel.sh have nftables for IP, and can close connections
// (SOCK_DESTROY). So no failure is skipped, and clients reconnect as with an ordinary kernel.
func (s *shareSeries) checkGuestKernel(t *testing.T) {
	if os.Getenv("LONGHORN_GUEST_KERNEL") == "" {
		t.Skip("LONGHORN_GUEST_KERNEL is not set: guests have Debian's kernel")
	}
	ctx := t.Context()
	for i := range 3 {
		node := fmt.Sprintf("guest-%d", i+1)
		s.c.MustOnNode(ctx, t, node, "modprobe", "-n", "nft_chain_nat")
		_, err := s.c.OnNode(ctx, node, "bash", "-ec", `
exec 5<>/dev/tcp/127.0.0.1/10248 # the kubelet's health
connections() { ss -Htn state established dst 127.0.0.1 dport = :10248; }
connections | grep -q .
ss -HtnK state established dst 127.0.0.1 dport = :10248
! connections | grep .`)
		assert.NoError(t, err, "node %s does not end connections", node)
	}
}

// killNodeOfClient moves the share to a node with a pod that uses it and has files open, and kills this node.
func (s *shareSeries) killNodeOfClient(ctx context.Context, t *testing.T) {
	s.needsTables(ctx, t, third)
	s.placeOn(ctx, t, third)
	s.startThird(ctx, t, appending)
	s.waitAckedBy(ctx, t, thirdPod, time.Minute)
	s.dies(ctx, t)
	deletePod(ctx, t, s.c, s.namespace, thirdPod)
}

// dies cuts the power of the server's node, and switches it on again as soon as another node serves.
func (s *shareSeries) dies(ctx context.Context, t *testing.T) {
	t.Helper()
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	node := s.status(ctx, t).CurrentNode
	t.Cleanup(func() { startNode(t, s.c, node) })
	s.failsNow()
	_, err = s.c.Devcluster(ctx, "stop-node", node, "--power-loss")
	require.NoError(t, err)
	s.waitRunning(ctx, t, uid, 2*time.Minute)
	assert.NotEqual(t, node, s.status(ctx, t).CurrentNode)
	s.waitAcked(ctx, t, 2*time.Minute)
	_, err = s.c.Devcluster(ctx, "start-node", node)
	require.NoError(t, err)
	s.waitNodeWhole(ctx, t, node)
}

// cutFor is how long a node is cut off.
const cutFor = time.Minute

// cutNode cuts the server's node off from all others. A pod on this node acquires and releases the lock, and needs no
// disk for that. The former server must not grant the lock after the next server has granted it. The other pods do not
// use the lock until the node is cut off. If one of them held it at that moment, the former server could grant it to no
// client, and the test would show nothing.
func (s *shareSeries) cutNode(ctx context.Context, t *testing.T) {
	s.needsTables(ctx, t, third)
	s.placeOn(ctx, t, third)
	s.startThird(ctx, t, grabbing)
	for _, pod := range sharers {
		s.exec(ctx, t, pod, "touch /tmp/leave")
	}
	s.waitGrabs(ctx, t)
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	heal := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := s.c.Devcluster(ctx, "heal", third)
		assert.NoError(t, err)
	}
	t.Cleanup(heal)
	s.failsNow()
	_, err = s.c.Devcluster(ctx, "cut", third)
	require.NoError(t, err)
	cut := time.Now()
	for _, pod := range sharers {
		s.exec(ctx, t, pod, "rm /tmp/leave")
	}
	s.waitRunning(ctx, t, uid, 2*time.Minute)
	s.waitAcked(ctx, t, 2*time.Minute)
	until(ctx, t, cut.Add(cutFor))
	grants := s.grantsOnNode(ctx, t)
	heal()
	s.waitNodeWhole(ctx, t, third)
	var first time.Time
	for _, pod := range sharers {
		for _, at := range timesIn(s.exec(ctx, t, pod, "cat /tmp/grants")) {
			if at.After(cut) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	last := grants[len(grants)-1]
	t.Logf("the last lock of the former server came %v after the node was cut off, the first of the next one %v after it",
		last.Sub(cut).Round(time.Millisecond), first.Sub(cut).Round(time.Millisecond))
	assert.True(t, last.After(cut.Add(-2*time.Second)), "the former server granted nothing for a while before the node was cut off: the test would see nothing")
	assert.False(t, first.IsZero(), "nobody got the lock from the next server")
	assert.True(t, last.Before(first), "the former server granted the lock after the next one had")
	deletePod(ctx, t, s.c, s.namespace, thirdPod)
}

// waitGrabs waits until the third pod gets the lock again and again, that is, until the others have released it.
func (s *shareSeries) waitGrabs(ctx context.Context, t *testing.T) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "the third pod gets the lock again and again", func(ctx context.Context) error {
		_, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", thirdPod, "--", "bash", "-c",
			"grants() { cat /tmp/grants 2>/dev/null | wc -l; }; before=$(grants); sleep 2; [ $(grants) -ge $((before + 3)) ]")
		return err
	})
}

// grantsOnNode returns the times at which the third pod got the lock. The API server does not reach the pod's node, so
// it reads the file through the pod's root in /proc.
func (s *shareSeries) grantsOnNode(ctx context.Context, t *testing.T) []time.Time {
	t.Helper()
	out := s.c.MustOnNode(ctx, t, third, "bash", "-c", `for p in /proc/[0-9]*; do if [ -s $p/root/tmp/grants ]; then cat $p/root/tmp/grants; exit; fi; done; exit 1`)
	grants := timesIn(out)
	require.NotEmpty(t, grants)
	return grants
}

// timesIn returns the times in a text, sorted. Each line of the text is a time in the form of EPOCHREALTIME, and was
// written at once. All kernels of the cluster have this machine's clock.
func timesIn(text string) (times []time.Time) {
	for line := range strings.Lines(text) {
		if seconds, err := strconv.ParseFloat(strings.TrimSpace(line), 64); err == nil {
			times = append(times, time.UnixMicro(int64(seconds*1e6)))
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// haltServer stops the server's process with SIGSTOP. The share manager kills it.
func (s *shareSeries) haltServer(ctx context.Context, t *testing.T) {
	s.signal(ctx, t, "STOP")
}

// killServerBesideIdle kills the server while a third node has the share mounted and sends no requests.
func (s *shareSeries) killServerBesideIdle(ctx context.Context, t *testing.T) {
	s.startThird(ctx, t, "exec 7</data; exec sleep infinity")
	s.waitClients(ctx, t, len(sharers)+1)
	s.failsNow()
	s.killServer(ctx, t)
	s.waitAcked(ctx, t, time.Minute)
	deletePod(ctx, t, s.c, s.namespace, thirdPod)
}

// TestTimesIn: the last line counts, although commands on nodes and in pods return their output without its newline.
func TestTimesIn(t *testing.T) {
	assert.Equal(t, []time.Time{time.UnixMicro(1500000), time.UnixMicro(2500000)}, timesIn("2.5\n1.500000\nno time"))
	assert.Equal(t, []time.Time{time.UnixMicro(3100000)}, timesIn("3.1"))
}
