package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func (s *share) serverIsKilled(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	s.through(ctx, t, time.Minute, func() { s.signal(ctx, t, "KILL") })
	now, err := s.podUID(ctx)
	require.NoError(t, err)
	assert.Equal(t, uid, now, "its pod stays")
}

// serverIsKilledBesideAnIdleNode: without help, the kernel of an idle node would reconnect only when it renews its
// lease. Until then, pod one would wait.
func (s *share) serverIsKilledBesideAnIdleNode(ctx context.Context, t *testing.T) {
	s.exec(ctx, t, "two", "touch /tmp/pause; before=-1; while [ $(wc -l </tmp/acks) -ne $before ]; do before=$(wc -l </tmp/acks); sleep 0.5; done")
	began := time.Now()
	s.signal(ctx, t, "KILL")
	s.waitAckedBy(ctx, t, "one", time.Minute)
	t.Logf("pod one: the longest time without an acknowledgement was %v", s.longestGap(ctx, t, "one", began).Round(time.Millisecond))
	s.exec(ctx, t, "two", "rm /tmp/pause")
	s.waitAcked(ctx, t, time.Minute)
	s.expectServed(ctx, t)
}

func (s *share) serverHangs(ctx context.Context, t *testing.T) {
	s.through(ctx, t, 90*time.Second, func() { s.signal(ctx, t, "STOP") })
}

func (s *share) podIsDeleted(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	s.through(ctx, t, 3*time.Minute, func() {
		s.c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", types.ShareManagerPodName(s.volume), "--wait=false")
		s.waitRunning(ctx, t, uid, 3*time.Minute)
	})
}

func (s *share) nodeIsDrained(ctx context.Context, t *testing.T) {
	s.through(ctx, t, 3*time.Minute, func() { s.drainNode(ctx, t) })
}

// drainNode evicts the share's pod, as kubectl drain does, and no other pod: the other pods have their own tests.
func (s *share) drainNode(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	node := s.status(ctx, t).CurrentNode
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := s.c.Kubectl(ctx, "uncordon", node)
		assert.NoError(t, err)
	})
	s.c.Must(ctx, t, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector="+types.LabelShareManager, "--timeout=120s")
	s.waitRunning(ctx, t, uid, 3*time.Minute)
	assert.NotEqual(t, node, s.status(ctx, t).CurrentNode)
}

// grows uses xfs, because this machine does not let ext4 grow while it is mounted.
func (s *share) grows(ctx context.Context, t *testing.T) {
	require.NoError(t, s.c.Apply(ctx, shareClass("shared-xfs", "xfs")))
	s.claim(ctx, t, "growing", "shared-xfs", "512Mi")
	startPodOn(ctx, t, s.c, "guest-1", s.namespace, "growing", "growing", idle)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/growing", "--timeout=240s")
	size := func(ctx context.Context) (int64, error) {
		out, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", "growing", "--", "bash", "-ec", "set -- $(stat -f -c '%b %S' /data); echo $(($1 * $2))")
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(out, 10, 64)
	}
	before, err := size(ctx)
	require.NoError(t, err)
	s.c.Must(ctx, t, "-n", s.namespace, "patch", "pvc", "growing", "--type=merge", "-p", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=jsonpath={.status.capacity.storage}=1Gi", "pvc/growing", "--timeout=120s")
	cluster.Eventually(ctx, t, time.Minute, "the pod has the room", func(ctx context.Context) error {
		now, err := size(ctx)
		if err == nil && now < before*3/2 {
			err = fmt.Errorf("its file system has %d bytes, and had %d", now, before)
		}
		return err
	})
	deletePod(ctx, t, s.c, s.namespace, "growing")
}

func (s *share) nodeDies(ctx context.Context, t *testing.T) {
	uid, err := s.podUID(ctx)
	require.NoError(t, err)
	node := s.status(ctx, t).CurrentNode
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		_, err := s.c.Devcluster(ctx, "start-node", node)
		assert.NoError(t, err)
		s.c.Must(ctx, t, "wait", "node/"+node, "--for=condition=Ready", "--timeout=120s")
	})
	s.through(ctx, t, 5*time.Minute, func() {
		_, err := s.c.Devcluster(ctx, "stop-node", node, "--power-loss")
		require.NoError(t, err)
		s.waitRunning(ctx, t, uid, 5*time.Minute)
	})
	assert.NotEqual(t, node, s.status(ctx, t).CurrentNode)
}

// noClient: this machine's own kernel has no NFS client.
func (s *share) noClient(ctx context.Context, t *testing.T) {
	startPodOn(ctx, t, s.c, s.status(ctx, t).CurrentNode, s.namespace, "deaf", "shared", idle)
	cluster.Eventually(ctx, t, 2*time.Minute, "an Event says why the pod does not start", func(ctx context.Context) error {
		events, err := s.c.Kubectl(ctx, "-n", s.namespace, "get", "events", "--field-selector=involvedObject.name=deaf", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, "NFS client") {
			err = fmt.Errorf("the Events say %q", events)
		}
		return err
	})
	deletePod(ctx, t, s.c, s.namespace, "deaf")
}
