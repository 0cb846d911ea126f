package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestStrictLocal: the only replica of a claim is on the node of its first pod. A later pod on that node reads the
// data. A pod on another node does not start, and its Events say why. An eviction of the node waits, and says for what.
func TestStrictLocal(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-strict-local")
	class(ctx, t, c, "e2e-strict-local", `{dataLocality: strict-local}`)
	volume := claimOf(ctx, t, c, ns, "data", "64Mi", "e2e-strict-local")
	v := theVolume(ctx, t, c, volume)
	assert.Equal(t, longhorn.DataLocalityStrictLocal, v.Spec.DataLocality)
	assert.Equal(t, 1, v.Spec.NumberOfReplicas)
	assert.Empty(t, placesOf(ctx, t, c, volume), "its replica is placed where it is attached first")
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	assert.Equal(t, types.ReasonPlacedWhenAttached, scheduled.Reason, "%+v", scheduled)

	home, other := c.Nodes()[1], c.Nodes()[2]
	strictPod(ctx, t, c, ns, "first", home)
	sum := writeFile(ctx, t, c, ns, "first", "/data/file", 8)
	replica := soleReplica(ctx, t, c, volume, home)
	waitEvictionWaits(ctx, t, c, volume, replica, home)
	deletePod(ctx, t, c, ns, "first")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")

	startPodOn(ctx, t, c, other, ns, "elsewhere", "data", idle)
	waitEvent(ctx, t, c, ns, "Pod", "elsewhere", "FailedAttachVolume", "strict-local", fmt.Sprintf("its data is on node %q", home))
	deletePod(ctx, t, c, ns, "elsewhere")

	strictPod(ctx, t, c, ns, "second", home)
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "second", "/data/file"))
	assert.Equal(t, replica, soleReplica(ctx, t, c, volume, home))
}

// TestStrictLocalLeadsItsPods: the pod of a StatefulSet that is deleted and created again goes to the node with the
// data, although it prefers the other nodes.
func TestStrictLocalLeadsItsPods(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-strict-leads")
	const name = "e2e-strict-late"
	require.NoError(t, c.Apply(ctx, fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s}\nprovisioner: %s\n"+
		"volumeBindingMode: WaitForFirstConsumer\nparameters: {dataLocality: strict-local}\n", name, types.DriverName)))
	t.Cleanup(func() { c.Must(context.WithoutCancel(ctx), t, "delete", "storageclass", name, "--ignore-not-found") })
	startClaim(ctx, t, c, ns, "data", "64Mi", name)
	const set = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: %s}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [%s]}}]}}
      containers:
        - {name: c, image: "localhost/workload:dev", imagePullPolicy: Never, command: [sleep, infinity], volumeMounts: [{name: v, mountPath: /data}]}
      volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
`
	start := func(preferred string) string {
		require.NoError(t, c.Apply(ctx, fmt.Sprintf(set, ns, preferred)))
		c.Must(ctx, t, "-n", ns, "rollout", "status", "statefulset/db", "--timeout=180s")
		return c.Must(ctx, t, "-n", ns, "get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}")
	}
	home := start("{key: kubernetes.io/hostname, operator: Exists}")
	sum := writeFile(ctx, t, c, ns, "db-0", "/data/file", 1)
	volume := c.Must(ctx, t, "-n", ns, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	waitEvent(ctx, t, c, "default", "PersistentVolume", volume, "NodeAffinitySet", home)
	c.Must(ctx, t, "-n", ns, "delete", "statefulset", "db", "--cascade=foreground", "--wait", "--timeout=120s")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	assert.Equal(t, home, start(fmt.Sprintf("{key: kubernetes.io/hostname, operator: NotIn, values: [%s]}", home)), "although it prefers the other nodes")
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "db-0", "/data/file"))
}

// strictPod runs a pod with the claim "data" on a node, and waits until it is ready.
func strictPod(ctx context.Context, t *testing.T, c *cluster.Cluster, ns, name, node string) {
	t.Helper()
	startPodOn(ctx, t, c, node, ns, name, "data", idle)
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
}

// soleReplica returns the name of a volume's only replica, which must be on the node.
func soleReplica(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, node string) string {
	t.Helper()
	replicas := replicasOf(ctx, t, c, volume)
	require.Len(t, replicas, 1, "%v", placesOf(ctx, t, c, volume))
	require.Equal(t, node, replicas[0].Spec.NodeID)
	return replicas[0].Name
}

// waitEvictionWaits evicts a volume's node until the volume has said why its replica stays.
func waitEvictionWaits(ctx context.Context, t *testing.T, c *cluster.Cluster, volume, replica, node string) {
	t.Helper()
	end := func(ctx context.Context) { setEviction(ctx, t, c, node, false) }
	t.Cleanup(func() { end(context.WithoutCancel(ctx)) })
	setEviction(ctx, t, c, node, true)
	cluster.Eventually(ctx, t, 30*time.Second, "volume "+volume+" says why its replica stays", func(ctx context.Context) error {
		scheduled := types.FindCondition(theVolume(ctx, t, c, volume).Status.Conditions, types.ConditionScheduled)
		if scheduled.Reason != types.ReasonReplicaSchedulingFailure || !strings.Contains(scheduled.Message, replica) || !strings.Contains(scheduled.Message, "another dataLocality") {
			return fmt.Errorf("its condition is %+v", scheduled)
		}
		return nil
	})
	assert.Equal(t, replica, soleReplica(ctx, t, c, volume, node))
	end(ctx)
}

// TestStrictLocalIsChanged: a volume with three replicas becomes strict-local while it is detached. It can be attached
// to any node with its data. The other replicas are deleted as soon as it is served there. Then it can be attached only
// to that node, until it is no longer strict-local.
func TestStrictLocalIsChanged(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	c.DumpIfFailed(t)
	const volume = "e2e-strict-changed"
	l := &locality{c: c, api: restOf(ctx, t, c)}
	l.create(ctx, t, v1.VolumeCreate{Name: volume, NumberOfReplicas: 3, DataLocality: "best-effort"})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		l.api.do(ctx, t, http.MethodDelete, "/volumes/"+volume, nil, http.StatusNoContent, nil)
		waitVolumeGone(ctx, t, c, volume)
	})
	action := func(name string) string { return "/volumes/" + volume + "?action=" + name }
	toStrict := v1.UpdateDataLocalityInput{DataLocality: "strict-local"}
	attach := func(node string) { l.act(ctx, t, volume, "attach", v1.AttachInput{HostID: node}) }
	detach := func() {
		l.act(ctx, t, volume, "detach", v1.DetachInput{})
		waitVolume(ctx, t, c, volume, ".status.state", "detached")
	}

	attach(c.Nodes()[0])
	l.waitReplicas(ctx, t, volume, 3)
	refused := l.api.do(ctx, t, http.MethodPost, action("updateDataLocality"), toStrict, http.StatusUnprocessableEntity, nil)
	assert.Contains(t, refused, "must be 1 with dataLocality strict-local")
	patch := []string{"-n", types.Namespace, "patch", "volumes.longhorn.io", volume, "--type=merge", "-p", `{"spec": {"dataLocality": "strict-local", "numberOfReplicas": 1}}`}
	_, err := c.Kubectl(ctx, patch...)
	require.ErrorContains(t, err, "only while the volume is detached")
	detach()
	c.Must(ctx, t, patch...)

	home := c.Nodes()[1]
	attach(home)
	l.waitLocal(ctx, t, volume, home, 1)
	detach()
	refused = l.api.do(ctx, t, http.MethodPost, action("attach"), v1.AttachInput{HostID: c.Nodes()[0]}, http.StatusConflict, nil)
	assert.Contains(t, refused, "its data is on node")
	assert.Contains(t, refused, home)
	l.act(ctx, t, volume, "updateDataLocality", v1.UpdateDataLocalityInput{DataLocality: "best-effort"})
	attach(c.Nodes()[0])
	l.waitLocal(ctx, t, volume, c.Nodes()[0], 1)
	assert.False(t, slices.ContainsFunc(replicasOf(ctx, t, c, volume), func(r longhorn.Replica) bool { return r.Spec.NodeID == home }))
	detach()
}

// TestAPIServerKnowsWhenAVolumeBecomesStrictLocal: a volume can become strict-local only while it is detached. The same
// is true for the reverse change.
func TestAPIServerKnowsWhenAVolumeBecomesStrictLocal(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	// This may exist from an earlier run.
	c.Must(ctx, t, "-n", types.Namespace, "delete", "volumes.longhorn.io/c-strict", "--ignore-not-found")
	require.NoError(t, c.Apply(ctx, object("Volume", "c-strict", `spec: {size: "2097152", numberOfReplicas: 1}`)))
	patch := func(change string, flags ...string) error {
		_, err := c.Kubectl(ctx, append([]string{"patch", "volumes.longhorn.io/c-strict", "-n", types.Namespace, "--type=merge", "-p", change}, flags...)...)
		return err
	}
	state := func(s string) { require.NoError(t, patch(`{"status":{"state":"`+s+`"}}`, "--subresource=status")) }
	to := func(locality string) error { return patch(`{"spec":{"dataLocality":"` + locality + `"}}`) }
	const refusal = "only while the volume is detached"

	check(t, to("strict-local"), "")
	state("attached")
	check(t, to("disabled"), refusal)
	check(t, to(""), refusal)
	check(t, patch(`{"spec":{"staleReplicaTimeout":7}}`), "")
	state("detached")
	check(t, patch(`{"spec":{"numberOfReplicas":2}}`), "numberOfReplicas must be 1 with dataLocality strict-local")
	check(t, to("best-effort"), "")
	check(t, patch(`{"spec":{"nodeID":"node-1"}}`), "")
	check(t, to("strict-local"), refusal) // it is about to be attached
	check(t, patch(`{"spec":{"nodeID":""}}`), "")
	state("attaching")
	check(t, to("strict-local"), refusal)
	state("attached")
	check(t, to("disabled"), "")
}
