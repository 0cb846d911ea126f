package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestEngineFailsUnderItsUsers: a volume has one replica, on another node than its engine. That replica is lost while
// the device is mounted. The engine has failed although its process still runs, so it is stopped. The volume is started
// again when the replica is back. The workload works again without help, with every record that was made durable.
func TestEngineFailsUnderItsUsers(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	ns := namespace(ctx, t, c, "e2e-engine-fails")
	class(ctx, t, c, "e2e-one-replica", `{numberOfReplicas: "1"}`)
	w := startWriterOn(ctx, t, c, ns, writing, "e2e-one-replica")
	replica := replicasOf(ctx, t, c, w.volume)[0]
	if w.node(ctx, t) == replica.Spec.NodeID { // the writer must run on another node
		c.Must(ctx, t, "cordon", replica.Spec.NodeID)
		t.Cleanup(func() { c.Must(context.WithoutCancel(ctx), t, "uncordon", replica.Spec.NodeID) })
		w.scale(ctx, t, 0)
		w.scale(ctx, t, 1)
	}
	h := follow(ctx, t, c, w.volume)
	was := theEngine(ctx, t, c, w.volume).Status
	node := w.node(ctx, t)
	process := processOf(ctx, t, c, node)

	killed := time.Now()
	killProcess(ctx, t, c, replica.Spec.NodeID, "instance-manager")
	cluster.Eventually(ctx, t, 2*time.Minute, "another engine was started", func(context.Context) error {
		if _, ok := h.generationAbove(was.Generation); !ok {
			return errors.New("it was not")
		}
		return nil
	})
	w.waitHealthy(ctx, t, 2*time.Minute)
	again, _ := h.generationAbove(was.Generation)
	w.waitAcked(ctx, t, again, 2*time.Minute)
	t.Logf("records are acknowledged again after %s", time.Since(killed).Round(time.Second))
	waitOneDevice(ctx, t, c, w.node(ctx, t), w.volume)
	assert.Equal(t, process, processOf(ctx, t, c, node), "not what was to be tested")
	w.finish(ctx, t)
}

// processOf identifies the process of a node's instance manager.
func processOf(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) string {
	t.Helper()
	im, err := c.Longhorn.LonghornV1beta2().InstanceManagers(types.Namespace).Get(ctx, types.InstanceManagerName(node), metav1.GetOptions{})
	require.NoError(t, err)
	return im.Status.UUID
}

// TestAnOlderRecordIsNotBelieved: an Engine object is older than the data, for example after the restore of a backup.
// It starts nothing. The volume is faulted and names a command; after that command the volume has every byte.
func TestAnOlderRecordIsNotBelieved(t *testing.T) {
	t.Parallel() // runs with the other tests that keep the cluster intact, after the tests that do not
	ctx, c := threeNodes.get(t, ordinary)
	ns := namespace(ctx, t, c, "e2e-older-record")
	volume := claim(ctx, t, c, ns, "data", "64Mi")
	pod(ctx, t, c, ns, "first", "data", idle)
	older, err := json.Marshal(map[string]any{"status": map[string]any{"epoch": theEngine(ctx, t, c, volume).Status.Epoch}})
	require.NoError(t, err)
	sum := writeFile(ctx, t, c, ns, "first", "/data/file", 8)
	for _, name := range []string{"first", "second"} { // a second start creates a newer epoch
		if name == "second" {
			pod(ctx, t, c, ns, name, "data", idle)
		}
		deletePod(ctx, t, c, ns, name)
		waitVolume(ctx, t, c, volume, ".status.state", "detached")
	}
	engine := "engines.longhorn.io/" + types.EngineName(volume)
	c.Must(ctx, t, "-n", types.Namespace, "patch", engine, "--subresource=status", "--type=merge", "-p", string(older))

	startPod(ctx, t, c, ns, "third", "data", idle)
	waitVolume(ctx, t, c, volume, ".status.robustness", "faulted")
	command := regexp.MustCompile(`kubectl (-n \S+ patch \S+ \S+ --subresource=status --type=merge -p) '([^']+)'`)
	var words []string
	cluster.Eventually(ctx, t, 30*time.Second, "the volume names the command", func(ctx context.Context) error {
		message, err := c.Kubectl(ctx, "-n", types.Namespace, "get", "volumes.longhorn.io", volume, "-o", "jsonpath={.status.conditions[?(@.type==\"Faulted\")].message}")
		if words = command.FindStringSubmatch(message); words == nil {
			return errors.Join(err, fmt.Errorf("it says %q", message))
		}
		return err
	})
	args := append(regexp.MustCompile(`\S+`).FindAllString(words[1], -1), words[2])
	c.Must(ctx, t, args...)
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/third", "--timeout=180s")
	assert.Equal(t, sum, sumInPod(ctx, t, c, ns, "third", "/data/file"))
	waitHealthy(ctx, t, c, volume, 2*time.Minute)
	deletePod(ctx, t, c, ns, "third")
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	checkSums(ctx, t, c, theVolume(ctx, t, c, volume), replicasOf(ctx, t, c, volume))
}
