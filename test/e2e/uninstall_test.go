package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// uninstalls are the states in which the installation is removed. Each follows a new installation. So the test also
// shows that the uninstaller left nothing that prevents an installation.
var uninstalls = []struct {
	name string
	// before changes an installation that has a detached volume.
	before func(ctx context.Context, t *testing.T, c *cluster.Cluster)
	// install creates the new installation. By default, deploy/longhorn.yaml is applied.
	install func(ctx context.Context, t *testing.T, c *cluster.Cluster)
	// args are the uninstaller's arguments in addition to the namespace. One of them confirms the removal, because the
	// settings may be gone. Another is needed because a node is permanently dead.
	args []string
	// dead: the data stays on the last node, which is off.
	dead bool
	// said is part of the uninstaller's log; leaves: the data of the volume stays.
	said   string
	leaves bool
}{
	{name: "with the manager running", said: "nothing is left of the installation", before: waitsForUsers},
	{name: "with Helm's release removed", install: installByHelm, before: liveByHelm, said: "no daemon of this installation runs there", leaves: true},
	{
		name: "with the manager gone", said: "no daemon of this installation runs there", leaves: true,
		before: func(ctx context.Context, t *testing.T, c *cluster.Cluster) {
			c.Must(ctx, t, "-n", types.Namespace, "delete", "daemonset/longhorn-manager", "--cascade=foreground", "--timeout=120s")
		},
	},
	{
		name: "with the namespace Terminating", said: "nothing is left of the installation", args: []string{"--delete-volumes"}, leaves: true,
		before: func(ctx context.Context, t *testing.T, c *cluster.Cluster) {
			removePolicies(ctx, t, c)
			c.Must(ctx, t, "-n", types.Namespace, "delete", "daemonset/longhorn-manager", "--cascade=foreground", "--timeout=120s")
			c.Must(ctx, t, "delete", "namespace", types.Namespace, "--wait=false")
			c.Must(ctx, t, "wait", "namespace/"+types.Namespace, "--for=jsonpath={.status.phase}=Terminating", "--timeout=60s")
		},
	},
	{
		name: "with the definitions being deleted", said: "nothing is left of the installation", args: []string{"--delete-volumes"}, leaves: true,
		before: func(ctx context.Context, t *testing.T, c *cluster.Cluster) {
			removePolicies(ctx, t, c)
			c.Must(ctx, t, "-n", types.Namespace, "delete", "daemonset/longhorn-manager", "--cascade=foreground", "--timeout=120s")
			c.Must(ctx, t, "delete", "crd", "-l", types.InstallationLabel+"="+types.InstallationValue, "--wait=false")
		},
	},
	{
		name: "with a node dead", said: "no daemon of this installation runs there", args: []string{"--patience=20s"}, dead: true,
		before: func(ctx context.Context, t *testing.T, c *cluster.Cluster) {
			dead := c.Nodes()[2]
			_, err := c.Devcluster(ctx, "stop-node", dead, "--power-loss")
			require.NoError(t, err)
			c.Must(ctx, t, "wait", "node/"+dead, "--for=condition=Ready=Unknown", "--timeout=120s")
		},
	},
}

// waitsForUsers shows that the uninstaller changes nothing while a pod uses a volume, although the deletion is confirmed.
func waitsForUsers(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const ns, job = "longhorn-uninstall", "job/longhorn-uninstall"
	manifest := filepath.Join(c.Root(), "deploy/uninstall.yaml")
	pod(ctx, t, c, "e2e-uninstall-0", "user", "data", idle)
	confirmDeletion(ctx, t, c, "true")
	c.Must(ctx, t, "apply", "-f", manifest)
	cluster.Eventually(ctx, t, 3*time.Minute, "the uninstaller waits for the pod", func(ctx context.Context) error {
		log, err := c.Kubectl(ctx, "-n", ns, "logs", job)
		if err == nil && !strings.Contains(log, "pods e2e-uninstall-0/user, which use volume e2e-uninstall-0/data") {
			return fmt.Errorf("its log is %q", log)
		}
		return err
	})
	assert.NotContains(t, c.Must(ctx, t, "-n", ns, "logs", job), "delete", "something was removed")
	c.Must(ctx, t, "-n", "e2e-uninstall-0", "exec", "user", "--", "sh", "-c", "echo more >>/data/log && sync")
	c.Must(ctx, t, "delete", "-f", manifest, "--timeout=120s")
	confirmDeletion(ctx, t, c, "false")
	volume := c.Must(ctx, t, "-n", "e2e-uninstall-0", "get", "pvc/data", "-o", "jsonpath={.spec.volumeName}")
	deletePod(ctx, t, c, "e2e-uninstall-0", "user")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
}

// confirmDeletion sets the setting that lets the uninstaller delete volumes.
func confirmDeletion(ctx context.Context, t *testing.T, c *cluster.Cluster, value string) {
	t.Helper()
	c.Must(ctx, t, "-n", types.Namespace, "patch", "settings.longhorn.io", string(settings.DeletingConfirmation), "--type=merge", "-p", `{"value":"`+value+`"}`)
}

func removePolicies(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, kind := range []string{"validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		c.Must(ctx, t, "delete", kind, "longhorn-keep-installation")
	}
	cluster.Eventually(ctx, t, 30*time.Second, "the policy is gone from the API server", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "delete", "namespace", types.Namespace, "--dry-run=server")
		return err
	})
}

func TestUninstall(t *testing.T) {
	t.Parallel() // it has its own cluster
	fresh := &shared{install: true, options: named("-uninstall", cluster.Options{
		Nodes:  3,
		Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
	})}
	ctx, c := fresh.get(t, apart)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 65*time.Minute)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		assert.NoError(t, fresh.down())
	})
	c.DumpIfFailed(t)
	for i, state := range uninstalls {
		ok := t.Run(state.name, func(t *testing.T) {
			switch {
			case state.install != nil:
				state.install(ctx, t, c)
			case i > 0:
				require.NoError(t, c.Install(ctx), "install anew")
			}
			ns := namespace(ctx, t, c, fmt.Sprintf("e2e-uninstall-%d", i))
			volume := claim(ctx, t, c, ns, "data", "64Mi")
			pod(ctx, t, c, ns, "user", "data", idle)
			deletePod(ctx, t, c, ns, "user")
			waitVolume(ctx, t, c, volume, ".status.state", "detached")
			replicas := replicasOf(ctx, t, c, volume)

			state.before(ctx, t, c)
			require.Contains(t, removeInstallation(ctx, t, c, fresh.options.Root, volume, state.args...), state.said)
			if state.dead {
				_, err := c.Devcluster(ctx, "start-node", c.Nodes()[2])
				require.NoError(t, err)
			}
			for _, r := range replicas {
				directory := types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName)
				_, err := c.OnNode(ctx, r.Spec.NodeID, "test", "-e", directory)
				leaves := state.leaves || state.dead && r.Spec.NodeID == c.Nodes()[2]
				assert.Equal(t, leaves, err == nil, "the data in %s on %s: %v", directory, r.Spec.NodeID, err)
			}
		})
		if !ok {
			return // the next state starts with what this one leaves
		}
	}
}

// removeInstallation shows that the uninstaller refuses to remove a volume, confirms the removal, and returns the log of
// the run that removes everything.
func removeInstallation(ctx context.Context, t *testing.T, c *cluster.Cluster, root, volume string, args ...string) string {
	t.Helper()
	log, err := uninstall(ctx, t, c, root)
	require.Error(t, err)
	require.Contains(t, log, "there is data: volume e2e-", "it was not refused")
	require.Contains(t, log, "("+volume+")")
	if !slices.Contains(args, "--delete-volumes") {
		confirmDeletion(ctx, t, c, "true")
	}
	log, err = uninstall(ctx, t, c, root, args...)
	require.NoError(t, err, log)
	checkUninstalled(ctx, t, c)
	return log
}

// uninstall runs deploy/uninstall.yaml until it finishes and returns its log. It returns an error if the uninstaller
// failed.
func uninstall(ctx context.Context, t *testing.T, c *cluster.Cluster, root string, args ...string) (string, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/uninstall.yaml"))
	require.NoError(t, err)
	manifest := string(text)
	namespace := "--namespace=" + types.Namespace
	require.Contains(t, manifest, namespace+"]")
	manifest = strings.Replace(manifest, namespace+"]", strings.Join(append([]string{namespace}, args...), ", ")+"]", 1)
	require.NoError(t, c.Apply(ctx, manifest))
	const job, ns = "job/longhorn-uninstall", "longhorn-uninstall"
	var failed error
	cluster.Eventually(ctx, t, 10*time.Minute, "the uninstaller ends", func(ctx context.Context) error {
		ended, err := c.Kubectl(ctx, "-n", ns, "get", job, "-o", `jsonpath={.status.conditions[?(@.status=="True")].type}`)
		switch {
		case err != nil:
			return err
		case strings.Contains(ended, "Failed"):
			failed = errors.New("the Job failed")
		case !strings.Contains(ended, "Complete"):
			return errors.New("it runs")
		}
		return nil
	})
	log := c.Must(ctx, t, "-n", ns, "logs", job)
	c.Must(ctx, t, "delete", "-f", filepath.Join(root, "deploy/uninstall.yaml"), "--timeout=120s")
	return log, failed
}

func checkUninstalled(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	all := c.Must(ctx, t, "get", "crd,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings,csidrivers,storageclasses,namespaces", "-o", "name")
	for name := range strings.Lines(all) {
		name = strings.TrimSpace(name)
		if strings.Contains(name, "longhorn") {
			assert.Contains(t, name, "e2e-", "left behind")
		}
	}
}
