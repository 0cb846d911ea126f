package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// clientsNameTheirNodes checks that each node's kernel has the identifier that its Node reports, which is unique to the
// node. The share has one record of each.
func (s *share) clientsNameTheirNodes(ctx context.Context, t *testing.T) {
	ids := map[string]string{}
	for pod, node := range map[string]string{"one": "guest-1", "two": "guest-2"} {
		require.Equal(t, node, nodeOf(ctx, t, s.c, s.namespace, pod))
		ids[node] = s.clientIDOf(ctx, t, node)
	}
	names := s.recordedClients(ctx, t)
	for node, id := range ids {
		assert.Equal(t, 1, countClients(names, id), "records of the client of %s, %s, of %q", node, id, names)
	}
}

// clientIDOf returns the identifier of a node's client. The Node must report it, and the node's kernel must have it.
func (s *share) clientIDOf(ctx context.Context, t *testing.T, node string) string {
	t.Helper()
	var id string
	cluster.Eventually(ctx, t, time.Minute, "node "+node+" reports the identifier of its NFS client", func(ctx context.Context) error {
		n, err := s.c.Longhorn.LonghornV1beta2().Nodes(types.Namespace).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if id = n.Status.NFSClientID; id == "" || id != string(n.UID) {
			return fmt.Errorf("it reports %q; its UID is %s", id, n.UID)
		}
		return nil
	})
	plugin := s.c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", "app=longhorn-csi-plugin", "--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].metadata.name}")
	kernel := s.c.Must(ctx, t, "-n", types.Namespace, "exec", plugin, "--", "cat", "/host/proc/1/root/sys/fs/nfs/net/nfs_client/identifier")
	assert.Equal(t, id, strings.TrimSpace(kernel), "the kernel of %s", node)
	return id
}

// recordedClients returns the names of the clients that the share has records of.
func (s *share) recordedClients(ctx context.Context, t *testing.T) (names []string) {
	t.Helper()
	records := s.c.Must(ctx, t, "-n", types.Namespace, "exec", types.ShareManagerPodName(s.volume), "--", "ls", "-1", "/run/longhorn-share/recovery/v4recov/node0/")
	for _, record := range strings.Split(strings.TrimSpace(records), "\n") {
		name, ok := types.NFSClientOfRecord(record)
		assert.True(t, ok, "record %q", record)
		names = append(names, name)
	}
	return names
}

func countClients(names []string, id string) (n int) {
	for _, name := range names {
		if types.HasNFSClientID(name, id) {
			n++
		}
	}
	return n
}
