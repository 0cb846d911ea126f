package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// foreignDefinition returns a CRD as another Longhorn leaves it.
func foreignDefinition(kind, plural string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.longhorn.io, labels: {longhorn-manager: ""}}
spec:
  group: longhorn.io
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]s, singular: %[3]s}
  versions:
    - {name: v1beta2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, kind, plural, strings.ToLower(kind))
}

// TestAnotherLonghornIsNotTakenOver: deploy/longhorn.yaml is applied over the definitions and the DaemonSet of another
// installation. They stay as they are, and the command says so. The test has its own API server, because nothing may be
// installed there before.
func TestAnotherLonghornIsNotTakenOver(t *testing.T) {
	fresh := &shared{options: named("-foreign", cluster.Options{})}
	ctx, c := fresh.get(t, ordinary)
	t.Cleanup(func() {
		assert.NoError(t, fresh.down())
	})
	theirs := fmt.Sprintf("%s\n---\n%s\n---\n%s", foreignDefinition("Volume", "volumes"), foreignDefinition("EngineImage", "engineimages"), `
apiVersion: v1
kind: Namespace
metadata: {name: longhorn-system}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: longhorn-manager, namespace: longhorn-system}
spec:
  selector: {matchLabels: {app: longhorn-manager}}
  template:
    metadata: {labels: {app: longhorn-manager}}
    spec: {containers: [{name: longhorn-manager, image: example.com/another}]}
---
apiVersion: v1
kind: Service
metadata: {name: longhorn-backend, namespace: longhorn-system}
spec: {selector: {app: longhorn-manager}, ports: [{name: manager, port: 9500}]}
`)
	require.NoError(t, c.Apply(ctx, theirs))
	root := fresh.options.Root
	// A policy is enforced only a moment after it was applied. This test is about what it enforces.
	c.Must(ctx, t, "apply", "-f", filepath.Join(root, "deploy/chart/templates/10-policy-adoption.yaml"))
	cluster.Eventually(ctx, t, 20*time.Second, "the policy about adoption is known to the API server", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "label", "--dry-run=server", "crd", "volumes.longhorn.io", types.InstallationLabel+"="+types.InstallationValue)
		if err == nil {
			return fmt.Errorf("the label would have been accepted")
		}
		return nil
	})
	before := snapshotForeign(ctx, t, c)
	_, err := c.Kubectl(ctx, "apply", "-f", filepath.Join(root, "deploy/longhorn.yaml"))
	require.Error(t, err, "deploy/longhorn.yaml was applied over another Longhorn without a word")
	for _, want := range []string{
		"volumes.longhorn.io belongs to another Longhorn and was left as it is",
		"longhorn-backend belongs to another Longhorn and was left as it is",
		`DaemonSet.apps "longhorn-manager" is invalid`,
	} {
		// The DaemonSet's immutable selector or the policy refuses it; the policy may be first.
		alternative := strings.ReplaceAll(want, `DaemonSet.apps "longhorn-manager" is invalid`, "longhorn-manager belongs to another Longhorn")
		if !strings.Contains(err.Error(), want) {
			assert.ErrorContains(t, err, alternative, "the refusal does not say %q", want)
		}
	}
	assert.Equal(t, before, snapshotForeign(ctx, t, c), "objects of the other Longhorn changed")
}

// snapshotForeign returns what must not change: versions of the other installation's objects.
func snapshotForeign(ctx context.Context, t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	const version = "jsonpath={.metadata.uid} {.metadata.generation} {.metadata.labels}"
	return strings.Join([]string{
		c.Must(ctx, t, "get", "crd", "volumes.longhorn.io", "-o", version),
		c.Must(ctx, t, "get", "crd", "engineimages.longhorn.io", "-o", version),
		c.Must(ctx, t, "-n", types.Namespace, "get", "daemonset", "longhorn-manager", "-o", version),
		c.Must(ctx, t, "-n", types.Namespace, "get", "service", "longhorn-backend", "-o", "jsonpath={.metadata.uid} {.metadata.labels} {.spec}"),
	}, "\n")
}

// TestForeignDirectoryIsRefused: a foreign directory is in the place of a replica's directory. The replica fails and
// says why, and the volume starts without it. Neither the start nor the deletion of the volume touches the directory.
func TestForeignDirectoryIsRefused(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-foreign")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "first", "data", idle)
	deletePod(ctx, t, c, ns, "first")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")

	victim := replicasOf(ctx, t, c, volume)[0]
	node, dir := victim.Spec.NodeID, types.ReplicaDataPath(victim.Spec.DiskPath, victim.Spec.DataDirectoryName)
	aside := dataDirectory + "/aside-" + victim.Name
	c.MustOnNode(ctx, t, node, "bash", "-ec", fmt.Sprintf("mv %[1]s %[2]s; mkdir %[1]s; echo precious >%[1]s/data.img; echo '{}' >%[1]s/volume.meta", dir, aside))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.MustOnNode(ctx, t, node, "rm", "-rf", dir, aside)
	})
	before := fingerprint(ctx, t, c, node, dir)

	startPod(ctx, t, c, ns, "second", "data", idle)
	c.Must(ctx, t, "-n", types.Namespace, "wait", "replicas.longhorn.io/"+victim.Name, "--for=jsonpath={.status.currentState}=error", "--timeout=120s")
	why := c.Must(ctx, t, "-n", types.Namespace, "get", "replicas.longhorn.io", victim.Name, "-o",
		"jsonpath={.status.conditions[?(@.type==\"InstanceCreation\")].reason}: {.status.conditions[?(@.type==\"InstanceCreation\")].message}")
	assert.True(t, strings.HasPrefix(why, "NotAReplica: "), why)
	assert.Contains(t, why, victim.Spec.DataDirectoryName)
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/second", "--timeout=120s")
	waitVolume(ctx, t, c, volume, ".status.robustness", "degraded")
	assert.Equal(t, before, fingerprint(ctx, t, c, node, dir), "starting touched the foreign directory")

	c.Must(ctx, t, "-n", ns, "delete", "pod", "second", "--wait", "--timeout=90s")
	c.Must(ctx, t, "-n", ns, "delete", "pvc", "data", "--wait=false")
	cluster.Eventually(ctx, t, time.Minute, "the deletion says that the directory is not the replica's", func(ctx context.Context) error {
		events, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "events", "--field-selector", "involvedObject.name="+victim.Name+",reason=RemovalRefused", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(events, victim.Spec.DataDirectoryName) {
			err = fmt.Errorf("events: %q", events)
		}
		return err
	})
	assert.Equal(t, before, fingerprint(ctx, t, c, node, dir), "deleting touched the foreign directory")
	// The user who created the directory removes it. Then the deletion continues.
	c.MustOnNode(ctx, t, node, "rm", "-rf", dir)
	waitVolumeGone(ctx, t, c, volume)
}

// fingerprint returns the content, the owners and the times of everything in a directory.
func fingerprint(ctx context.Context, t *testing.T, c *cluster.Cluster, node, dir string) string {
	t.Helper()
	return c.MustOnNode(ctx, t, node, "bash", "-c", fmt.Sprintf("cd %s && find . -printf '%%p %%y %%m %%U %%s %%T@\\n' | LC_ALL=C sort && find . -type f -exec sha256sum {} + | LC_ALL=C sort", dir))
}

// TestDaemonRefusesAnotherLonghornsCluster: a daemon that starts and finds a definition of another installation says so
// and stops. Volumes keep serving. The daemon starts when the definition is gone.
func TestDaemonRefusesAnotherLonghornsCluster(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	require.NoError(t, c.Apply(ctx, foreignDefinition("EngineImage", "engineimages")))
	remove := func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "delete", "crd", "engineimages.longhorn.io", "--ignore-not-found", "--timeout=30s")
		return err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, remove(ctx))
	})
	c.DumpIfFailed(t)
	onFirst := []string{"-n", types.Namespace, "get", "pods", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName=" + nodes[0]}
	old := c.Must(ctx, t, append(onFirst, "-o", "jsonpath={.items[0].metadata.name}")...)
	c.Must(ctx, t, "-n", types.Namespace, "delete", "pod", old, "--wait", "--timeout=60s")
	cluster.Eventually(ctx, t, time.Minute, "the daemon refuses to start", func(ctx context.Context) error {
		name, err := c.Kubectl(ctx, append(onFirst, "-o", "jsonpath={.items[0].metadata.name}")...)
		if err != nil {
			return err
		}
		log, err := c.Kubectl(ctx, "-n", types.Namespace, "logs", name)
		if err == nil && !(strings.Contains(log, "another Longhorn is installed in this cluster") && strings.Contains(log, "engineimages.longhorn.io")) {
			err = fmt.Errorf("its log says %q", log)
		}
		return err
	})
	require.NoError(t, remove(ctx))
	// A new pod does not wait for the back-off of the pod that refused.
	c.Must(ctx, t, "-n", types.Namespace, "delete", "pods", "-l", "app=longhorn-manager", "--field-selector", "spec.nodeName="+nodes[0], "--wait", "--timeout=60s")
	c.Must(ctx, t, "-n", types.Namespace, "rollout", "status", "daemonset/longhorn-manager", "--timeout=120s")
}
