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

// knocking tries to reach a port without pause. It counts its attempts and its successful connections.
const knocking = `
while true; do
  if timeout 2 bash -c 'exec 3<>/dev/tcp/%s/%d' 2>/dev/null; then echo in >>/tmp/in; fi
  echo tried >>/tmp/tried
  sleep 0.2
done
`

// noStranger checks that a pod without rights does not reach the share, even while a node joins whose addresses are not
// known yet.
func (s *share) noStranger(ctx context.Context, t *testing.T) {
	const joiner = "joiner"
	ip := s.c.Must(ctx, t, "-n", types.Namespace, "get", "pod", types.ShareManagerPodName(s.volume), "-o", "jsonpath={.status.podIP}")
	require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: %s}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: guest-1}
  containers: [{name: main, image: "localhost/workload:dev", imagePullPolicy: IfNotPresent, command: [bash, -c, %q]}]
`, s.namespace, fmt.Sprintf(knocking, ip, types.NFSPort))))
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/stranger", "--timeout=120s")
	s.knocks(ctx, t, "nobody else has joined")

	t.Cleanup(func() {
		s.c.Must(context.WithoutCancel(ctx), t, "delete", "node", joiner, "--ignore-not-found")
	})
	require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %[1]s}
spec: {unschedulable: true}
---
apiVersion: longhorn.io/v1beta2
kind: Node
metadata: {name: %[1]s, namespace: %[2]s}
spec: {allowScheduling: false}
`, joiner, types.Namespace)))
	s.awaitClients(ctx, t, "the server learns of the new node", true, joiner)
	s.knocks(ctx, t, "the addresses of a node are not known")

	s.c.Must(ctx, t, "delete", "node", joiner)
	s.awaitClients(ctx, t, "the server learns that the node is gone", false, joiner)
	s.knocks(ctx, t, "the node is gone")
	deletePod(ctx, t, s.c, s.namespace, "stranger")
}

// knocks checks that the stranger was never let in, and is not let in at the next attempts. These attempts take longer
// than the server needs to apply a new list.
func (s *share) knocks(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	s.exec(ctx, t, "stranger", `touch /tmp/tried; before=$(wc -l </tmp/tried); while [ "$(wc -l </tmp/tried)" -lt $((before + 3)) ]; do sleep 0.2; done`)
	assert.Equal(t, "0", s.exec(ctx, t, "stranger", "cat /tmp/in 2>/dev/null | wc -l"), "the stranger was let in: %s", when)
}

// awaitClients waits until the server's list of clients names a node, or no longer names it.
func (s *share) awaitClients(ctx context.Context, t *testing.T, what string, names bool, node string) {
	t.Helper()
	cluster.Eventually(ctx, t, 3*time.Minute, what, func(ctx context.Context) error {
		list, err := s.c.Kubectl(ctx, "-n", types.Namespace, "exec", types.ShareManagerPodName(s.volume), "--", "bash", "-c", "cat "+types.ShareClientsDirectory+"/*")
		if err == nil && strings.Contains(list, node) != names {
			err = errors.New(list)
		}
		return err
	})
}
