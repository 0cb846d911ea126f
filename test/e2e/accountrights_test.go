package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestADaemonIsHeldToItsNode: without a node in its token, the account of the daemons can write nothing. Rights that
// only the whole cluster needs are not granted to it. (All other tests show that a daemon has the rights that it
// needs.)
func TestADaemonIsHeldToItsNode(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	as := "--as=system:serviceaccount:" + types.Namespace + ":longhorn-manager"
	file := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(file, []byte(object("Node", "not-mine", "")), 0o600))
	cluster.Eventually(ctx, t, 20*time.Second, "the policy is known to the API server", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "create", "-f", file, "--dry-run=server", as)
		if err == nil || !strings.Contains(err.Error(), "does not name exactly one node: it must be a token that a kubelet requested for a pod") {
			return fmt.Errorf("it said %w", err)
		}
		return nil
	})
	for _, args := range [][]string{
		{"delete", "pods", "--all-namespaces"},
		{"list", "secrets", "-n", types.Namespace},
		{"create", "secrets", "-n", types.Namespace},
		{"delete", "replicas.longhorn.io", "-n", types.Namespace},
		{"update", "volumes.longhorn.io", "-n", types.Namespace},
		{"create", "serviceaccounts/default", "--subresource=token", "-n", types.Namespace},
	} {
		out, err := c.Kubectl(ctx, append([]string{"auth", "can-i", as}, args...)...)
		assert.Error(t, err, "the account of the daemons may %v: %s", args, out)
	}
}

// TestTheRightsOfADaemon lists all rights of the daemons' account, in the namespace and outside. In addition, a policy
// limits its writes to its own node (test/policy).
func TestTheRightsOfADaemon(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	account := "--as=system:serviceaccount:" + types.Namespace + ":longhorn-manager"
	anywhere := rightsOf(ctx, t, c, "default", account)
	assert.Equal(t, []string{
		"csidrivers.storage.k8s.io [] [] [list]",
		"customresourcedefinitions.apiextensions.k8s.io [] [] [get list]",
		"events [] [] [create patch]",
		"nodes [] [] [get list watch]",
		"subjectaccessreviews.authorization.k8s.io [] [] [create]", // who sent a REST request, and with what rights
		"tokenreviews.authentication.k8s.io [] [] [create]",
	}, anywhere)
	here := slices.DeleteFunc(rightsOf(ctx, t, c, types.Namespace, account), func(right string) bool { return slices.Contains(anywhere, right) })
	assert.Equal(t, []string{
		"configmaps [] [longhorn-default-setting] [get list watch]",
		"configmaps [] [longhorn-storageclass] [get list watch]",
		"daemonsets.apps [] [] [list]",
		"deployments.apps [] [] [list]",
		"engines.longhorn.io [] [] [get list watch update patch]",
		"engines.longhorn.io/status [] [] [update patch]",
		"instancemanagers.longhorn.io [] [] [get list watch create update patch]",
		"instancemanagers.longhorn.io/finalizers [] [] [update]",
		"instancemanagers.longhorn.io/status [] [] [update patch]",
		"leases.coordination.k8s.io [] [] [get create update patch]",
		"nodes.longhorn.io [] [] [get list watch create update patch]",
		"nodes.longhorn.io/status [] [] [update patch]",
		"pods [] [] [get list watch create delete]",
		"replicas.longhorn.io [] [] [get list watch update patch]",
		"replicas.longhorn.io/status [] [] [update patch]",
		"secrets [] [] [get]", // only by a name that the daemon knows: docs/decisions/0010
		"serviceaccounts/token [] [longhorn-manager-leader] [create]",
		"settings.longhorn.io [] [] [get list watch]",
		"volumes.longhorn.io [] [] [get list watch]",
	}, here)
}

// rightsOf lists the rights of an account in a namespace, without the rights that every account has.
func rightsOf(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, account string) []string {
	t.Helper()
	out := c.Must(ctx, t, "auth", "can-i", "--list", "--no-headers", "-n", namespace, account)
	var rights []string
	for line := range strings.Lines(out) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" || strings.HasPrefix(line, "[") || strings.HasPrefix(line, "selfsubject") {
			continue // addresses of the API server, and reviews of the account's own rights
		}
		rights = append(rights, line)
	}
	slices.Sort(rights)
	return rights
}
