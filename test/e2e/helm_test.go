package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// helm runs Helm in the installation's namespace.
func helm(ctx context.Context, t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Helm(ctx, append([]string{"--namespace", types.Namespace}, args...)...)
	require.NoError(t, err)
	return out
}

// installByHelm installs the chart as docs/HELM.md says, in a namespace that Helm creates.
func installByHelm(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	chart, err := filepath.Abs("../../deploy/chart")
	require.NoError(t, err)
	notes := helm(ctx, t, c, "install", "longhorn", chart, "--create-namespace")
	assert.Contains(t, notes, "kubectl label namespace "+types.Namespace+" "+types.InstallationLabel+"="+types.InstallationValue,
		"nothing says that the namespace needs a label")
	c.Must(ctx, t, "label", "namespace", types.Namespace, types.InstallationLabel+"="+types.InstallationValue, "pod-security.kubernetes.io/enforce=privileged")
	require.NoError(t, c.WaitInstalled(ctx))
}

// liveByHelm upgrades the release, then removes it and installs it again, while a pod writes all the time. It removes
// the release in the end. The data plane serves the pod without a daemon, and the pod notices nothing. The new release
// finds the pod's volume.
func liveByHelm(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const setting = string(settings.DefaultReplicaCount)
	chart, err := filepath.Abs("../../deploy/chart")
	require.NoError(t, err)
	w := startWriter(ctx, t, c, namespace(ctx, t, c, "e2e-helm"), writing)
	writer, pods := w.podUID(ctx, t), instanceManagerPods(ctx, t, c)
	wroteOn := func(after string) {
		w.waitAcked(ctx, t, time.Now(), time.Minute)
		assert.Equal(t, writer, w.podUID(ctx, t), "the pod was made anew after the release was %s", after)
		assert.Equal(t, pods, instanceManagerPods(ctx, t, c), "the data planes were made anew after the release was %s", after)
	}

	helm(ctx, t, c, "upgrade", "longhorn", chart, "--set", "defaultSettings."+setting+"=2", "--set", "storageClass.default=true")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "settings.longhorn.io/"+setting, "--for=jsonpath={.value}=2", "--timeout=120s")
	c.Must(ctx, t, "wait", "storageclass/longhorn", `--for=jsonpath={.metadata.annotations.storageclass\.kubernetes\.io/is-default-class}=true`, "--timeout=120s")
	require.NoError(t, c.WaitInstalled(ctx))
	wroteOn("upgraded")

	removed := helm(ctx, t, c, "uninstall", "longhorn", "--wait", "--timeout", "3m")
	assert.Contains(t, removed, "volumes.longhorn.io", "it does not say that the definitions were kept")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=delete", "pod", "-l", "app=longhorn-manager", "--timeout=120s")
	assert.Equal(t, w.volume, theVolume(ctx, t, c, w.volume).Name, "the record of the volume")
	wroteOn("removed")

	_, err = c.Helm(ctx, "--namespace", types.Namespace, "install", "longhorn", chart, "--set", "csi.controller.replicas=none")
	require.ErrorContains(t, err, "/csi/controller/replicas", "a wrong value is not refused by its name")
	helm(ctx, t, c, "install", "longhorn", chart)
	require.NoError(t, c.WaitInstalled(ctx))
	w.waitHealthy(ctx, t, 2*time.Minute)
	wroteOn("installed anew")
	w.finish(ctx, t)
	c.Must(ctx, t, "-n", w.namespace, "delete", "deployment/writer", "pvc/data", "--timeout=120s")
	waitVolumeGone(ctx, t, c, w.volume)

	helm(ctx, t, c, "uninstall", "longhorn", "--wait", "--timeout", "3m")
	c.Must(ctx, t, "-n", types.Namespace, "wait", "--for=delete", "pod", "-l", "app=longhorn-manager", "--timeout=120s")
}
