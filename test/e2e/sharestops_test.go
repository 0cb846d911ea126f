package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// killServer kills the server's process. Another one is started in its pod.
func (s *shareSeries) killServer(ctx context.Context, t *testing.T) {
	s.signal(ctx, t, "KILL")
}

// waitNodeWhole waits until a node can take a share again.
func (s *shareSeries) waitNodeWhole(ctx context.Context, t *testing.T, node string) {
	t.Helper()
	s.c.Must(ctx, t, "wait", "node/"+node, "--for=condition=Ready", "--timeout=120s")
	s.c.Must(ctx, t, "-n", types.Namespace, "wait", "nodes.longhorn.io/"+node, "--for=condition=Ready", "--timeout=120s")
	s.c.Must(ctx, t, "-n", types.Namespace, "wait", "instancemanagers.longhorn.io/"+types.InstanceManagerName(node), "--for=jsonpath={.status.currentState}=running", "--timeout=120s")
}

// stoppedFor is how long a pod is stopped.
const stoppedFor = time.Minute

// stopPod stops all processes of the server's pod with SIGSTOP. Its node's kubelet kills them when another pod is about
// to replace the pod.
func (s *shareSeries) stopPod(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	p := s.processes(ctx, t)
	began := time.Now()
	p.signal(ctx, t, "STOP")
	s.waitRunning(ctx, t, uid, 2*time.Minute)
	t.Logf("another pod served %v after that", time.Since(began).Round(100*time.Millisecond))
	until(ctx, t, began.Add(stoppedFor))
	p.signal(ctx, t, "CONT")
	p.waitGone(ctx, t)
}

// stopPodAndKubelet stops the kubelet, too. So the node is considered down, and another node serves. The pod's
// processes still exist and can continue while the successor serves. They have their mount of the volume and all their
// unwritten data.
func (s *shareSeries) stopPodAndKubelet(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	p := s.processes(ctx, t)
	kubelet := p.kubelet(ctx, t)
	began := time.Now()
	t.Cleanup(func() { kubelet.signal(context.WithoutCancel(ctx), t, "CONT") })
	kubelet.signal(ctx, t, "STOP")
	p.signal(ctx, t, "STOP")
	s.waitRunning(ctx, t, uid, 3*time.Minute)
	t.Logf("another pod served %v after that", time.Since(began).Round(100*time.Millisecond))
	assert.NotEqual(t, p.node, s.status(ctx, t).CurrentNode)
	until(ctx, t, began.Add(stoppedFor))
	assert.NotEmpty(t, p.left(ctx, t), "the processes were ended while they stood still: nothing is shown by that")
	on := time.Now()
	p.signal(ctx, t, "CONT")
	p.waitGone(ctx, t)
	t.Logf("its processes had ended %v after they went on", time.Since(on).Round(100*time.Millisecond))
	s.waitAcked(ctx, t, time.Minute)
	kubelet.signal(ctx, t, "CONT")
	s.waitNodeWhole(ctx, t, p.node)
}

func until(ctx context.Context, t *testing.T, when time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(when)):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// processes are some processes of a node.
type processes struct {
	c    *cluster.Cluster
	node string
	ids  []string
}

// processes returns the processes of the share's pod. The name of a container's control group contains the container's
// id.
func (s *share) processes(ctx context.Context, t *testing.T) processes {
	t.Helper()
	node := s.status(ctx, t).CurrentNode
	id := s.c.Must(ctx, t, "-n", types.Namespace, "get", "pod", types.ShareManagerPodName(s.volume), "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	_, id, found := strings.Cut(id, "://")
	require.True(t, found)
	p := processesOf(ctx, t, s.c, node, fmt.Sprintf("grep -l %s /proc/[0-9]*/cgroup 2>/dev/null | cut -d / -f 3", id))
	require.GreaterOrEqual(t, len(p.ids), 2, "the pod has a share manager and a server")
	return p
}

// kubelet returns the kubelet of the same node.
func (p processes) kubelet(ctx context.Context, t *testing.T) processes {
	t.Helper()
	k := processesOf(ctx, t, p.c, p.node, `for p in /proc/[0-9]*; do [[ "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" == /*/devcluster' component kubelet '* ]] && echo "${p#/proc/}"; done; true`)
	require.Len(t, k.ids, 1, "node %s has one kubelet", p.node)
	return k
}

// processesOf returns the processes whose ids a script prints on a node.
func processesOf(ctx context.Context, t *testing.T, c *cluster.Cluster, node, script string) processes {
	t.Helper()
	return processes{c: c, node: node, ids: strings.Fields(c.MustOnNode(ctx, t, node, "bash", "-c", script))}
}

// signal sends a signal to those that still exist.
func (p processes) signal(ctx context.Context, t *testing.T, signal string) {
	t.Helper()
	p.c.MustOnNode(ctx, t, p.node, "bash", "-c", "kill -"+signal+" "+strings.Join(p.ids, " ")+" 2>/dev/null || true")
}

// left returns those that have not exited.
func (p processes) left(ctx context.Context, t *testing.T) []string {
	t.Helper()
	return strings.Fields(p.c.MustOnNode(ctx, t, p.node, "bash", "-c", "for p in "+strings.Join(p.ids, " ")+`; do ! grep -q '^State:.[^Z]' /proc/$p/status 2>/dev/null || echo $p; done`))
}

func (p processes) waitGone(ctx context.Context, t *testing.T) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "the pod's processes have ended", func(ctx context.Context) error {
		if left := p.left(ctx, t); len(left) > 0 {
			return errors.New("there are " + strings.Join(left, " "))
		}
		return nil
	})
}
