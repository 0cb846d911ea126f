package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const mebibyte = int64(1 << 20)

// TestExpansion: a claim requests a larger size and gets it: while a pod writes, while parts of the data plane are
// lost, and while nothing is attached. No record is lost, and the pod sees no change except the additional space. The
// file system is xfs: the kernel of a node in a namespace does not let a mounted ext4 grow (see
// TestGuestsDisksAndNodesHang).
func TestExpansion(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	api := restOf(ctx, t, c)
	expandableClass(ctx, t, c, "e2e-expansion-xfs", "xfs")
	ns := namespace(ctx, t, c, "e2e-expansion")
	w := startWriterOn(ctx, t, c, ns, writing, "e2e-expansion-xfs")
	h := follow(ctx, t, c, w.volume)
	for _, tc := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"a claim asks for more → its pod has the room, and goes on", func(t *testing.T) {
			before := w.podUID(ctx, t)
			w.ask(ctx, t, 400)
			w.waitSize(ctx, t, 400)
			w.waitRoom(ctx, t, 400)
			assert.Equal(t, before, w.podUID(ctx, t), "the pod was started anew")
		}},
		{"while a replica is rebuilt → its pod has the room, and goes on", func(t *testing.T) {
			before, began := w.podUID(ctx, t), time.Now()
			killProcess(ctx, t, c, without(c.Nodes(), w.node(ctx, t))[0], "instance-manager")
			waitDegraded(ctx, t, h, began, time.Minute)
			w.ask(ctx, t, 500)
			w.waitSize(ctx, t, 500)
			w.waitRoom(ctx, t, 500)
			w.waitHealthy(ctx, t, 2*time.Minute)
			assert.Equal(t, before, w.podUID(ctx, t), "the pod was started anew")
		}},
		{"the data plane of the engine's node is killed in the middle → it is expanded afterwards", func(t *testing.T) {
			w.ask(ctx, t, 600)
			killProcess(ctx, t, c, w.node(ctx, t), "instance-manager")
			w.waitHealthy(ctx, t, 4*time.Minute)
			w.waitSize(ctx, t, 600)
			w.waitAcked(ctx, t, time.Now(), 3*time.Minute)
			w.waitRoom(ctx, t, 600)
		}},
		{"over the REST API → the claim asks for it", func(t *testing.T) {
			api.do(ctx, t, http.MethodPost, "/volumes/"+w.volume+"?action=expand", v1.ExpandInput{Size: "700Mi"}, http.StatusOK, nil)
			assert.Equal(t, "700Mi", c.Must(ctx, t, "-n", ns, "get", "pvc", "data", "-o", "jsonpath={.spec.resources.requests.storage}"))
			w.waitSize(ctx, t, 700)
			w.waitRoom(ctx, t, 700)
		}},
		{"a smaller size → refused", func(t *testing.T) {
			answer := api.do(ctx, t, http.MethodPost, "/volumes/"+w.volume+"?action=expand", v1.ExpandInput{Size: "100Mi"}, http.StatusUnprocessableEntity, nil)
			assert.Contains(t, answer, "cannot shrink")
			_, err := c.Kubectl(ctx, "-n", types.Namespace, "patch", "lhv", w.volume, "--type=merge", "-p", `{"spec":{"size":"104857600"}}`)
			require.ErrorContains(t, err, "size must not shrink")
			_, err = c.Kubectl(ctx, "-n", ns, "patch", "pvc", "data", "--type=merge", "-p", claimPatch(100))
			require.Error(t, err)
		}},
		{"an expansion that has begun → not taken back", func(t *testing.T) {
			api.do(ctx, t, http.MethodPost, "/volumes/"+w.volume+"?action=cancelExpansion", nil, http.StatusConflict, nil)
		}},
		{"while the node of a replica is cut off → its pod has the room, the replica grows when its node is back", func(t *testing.T) {
			w.expandWithout(ctx, t, h, without(c.Nodes(), w.node(ctx, t))[1], 750)
		}},
		{"while nothing is attached → the next pod has the room", func(t *testing.T) {
			w.scale(ctx, t, 0)
			w.ask(ctx, t, 800)
			w.waitSize(ctx, t, 800)
			w.scale(ctx, t, 1)
			w.waitRoom(ctx, t, 800)
		}},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			c.DumpIfFailed(t)
			tc.run(t)
		})
		if !ok {
			return // the next steps would start from the state that the failed step left
		}
	}
	w.waitHealthy(ctx, t, 2*time.Minute)
	w.finish(ctx, t)
}

// TestExpansionThatDoesNotFit: the expansion does not start, the volume says why, and the user can cancel it.
func TestExpansionThatDoesNotFit(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	api := restOf(ctx, t, c)
	const volume = "e2e-expansion-no-room"
	api.do(ctx, t, http.MethodPost, "/volumes", v1.VolumeCreate{Name: volume, Size: "64Mi", NumberOfReplicas: 3}, http.StatusCreated, nil)
	t.Cleanup(func() {
		c.Must(context.WithoutCancel(ctx), t, "-n", types.Namespace, "delete", "lhv", volume, "--ignore-not-found", "--timeout=120s")
	})
	c.DumpIfFailed(t)
	waitVolume(ctx, t, c, volume, ".status.state", "detached")
	waitVolume(ctx, t, c, volume, ".status.size", "67108864")
	api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action=expand", v1.ExpandInput{Size: "100Ti"}, http.StatusOK, nil)
	var v v1.Volume
	cluster.Eventually(ctx, t, time.Minute, "the volume says why", func(ctx context.Context) error {
		api.do(ctx, t, http.MethodGet, "/volumes/"+volume, nil, http.StatusOK, &v)
		if condition := v.Conditions[types.ConditionExpanded]; condition.Status != "False" || condition.Message == "" {
			return fmt.Errorf("its condition is %+v", condition)
		}
		return nil
	})
	assert.Contains(t, []string{types.ReasonSizeLimit, types.ReasonNoRoomToGrow}, v.Conditions[types.ConditionExpanded].Reason)
	t.Logf("the volume says: %s", v.Conditions[types.ConditionExpanded].Message)
	assert.True(t, v.ExpansionRequired)
	api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action=cancelExpansion", nil, http.StatusOK, &v)
	assert.Equal(t, "67108864", v.Size)
	assert.False(t, v.ExpansionRequired)
}

// TestExpansionOfABlockVolume: the pod's device grows while the pod uses it.
func TestExpansionOfABlockVolume(t *testing.T) {
	ctx, c := threeNodes.get(t, ordinary)
	expandableClass(ctx, t, c, "e2e-expansion-block", "ext4")
	ns := namespace(ctx, t, c, "e2e-expansion-block")
	require.NoError(t, c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %[1]s}
spec:
  storageClassName: e2e-expansion-block
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: device, namespace: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: localhost/workload:dev
      imagePullPolicy: IfNotPresent
      command: [bash, -ec, "%[2]s"]
      volumeDevices: [{name: data, devicePath: /dev/data}]
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: data}
`, ns, idle)))
	c.Must(ctx, t, "-n", ns, "wait", "--for=condition=Ready", "pod/device", "--timeout=180s")
	inPod := func(script string) string {
		return c.Must(ctx, t, "-n", ns, "exec", "device", "--", "bash", "-ec", script)
	}
	inPod("dd if=/dev/urandom of=/tmp/data bs=1M count=64 status=none; dd if=/tmp/data of=/dev/data bs=1M oflag=direct status=none")
	w := &writer{c: c, namespace: ns, volume: c.Must(ctx, t, "-n", ns, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")}
	w.ask(ctx, t, 128)
	w.waitSize(ctx, t, 128)
	assert.Equal(t, strconv.FormatInt(128*mebibyte, 10), strings.TrimSpace(inPod("blockdev --getsize64 /dev/data 2>/dev/null || python3 -c 'print(open(\"/dev/data\",\"rb\").seek(0,2))'")))
	inPod("cmp -n $((64 << 20)) /tmp/data /dev/data")
	inPod("dd if=/tmp/data of=/dev/data bs=1M seek=64 oflag=direct status=none; cmp -n $((64 << 20)) /tmp/data <(dd if=/dev/data bs=1M skip=64 status=none)")
}

// expandWithout requests a larger size for the claim while a node with a replica is cut off. Until the engine excludes
// that replica, the volume's condition names the reason for the wait. The replica becomes a member again only with the
// new size.
func (w *writer) expandWithout(ctx context.Context, t *testing.T, h *history, node string, mebibytes int64) {
	t.Helper()
	before := w.podUID(ctx, t)
	heal := func() {
		_, err := w.c.Devcluster(context.WithoutCancel(ctx), "heal", node)
		assert.NoError(t, err)
	}
	t.Cleanup(heal)
	_, err := w.c.Devcluster(ctx, "cut", node)
	require.NoError(t, err)
	began := time.Now()
	w.ask(ctx, t, mebibytes)
	w.waitSize(ctx, t, mebibytes)
	w.waitRoom(ctx, t, mebibytes)
	said := h.expansion(began)
	require.NotEmpty(t, said, "the volume never said what its expansion waits for")
	for _, c := range said {
		t.Logf("meanwhile the volume said %s: %s", c.Reason, c.Message)
		assert.Contains(t, []string{types.ReasonReplicasGrow, types.ReasonNodeCannotGrow, types.ReasonEngineExpands}, c.Reason, c.Message)
		assert.NotEmpty(t, c.Message)
	}
	for _, r := range replicasOf(ctx, t, w.c, w.volume) {
		if r.Spec.NodeID == node {
			assert.Less(t, int64(r.Status.CurrentSize), mebibytes*mebibyte, "the replica on %s, which is cut off", node)
		}
	}
	heal()
	w.waitHealthy(ctx, t, 2*time.Minute)
	for _, r := range replicasOf(ctx, t, w.c, w.volume) {
		assert.Equal(t, mebibytes*mebibyte, int64(r.Status.CurrentSize), "replica %s on %s", r.Name, r.Spec.NodeID)
	}
	assert.Equal(t, before, w.podUID(ctx, t), "the pod was started anew")
}

// expandExt4 requests a larger size for the claim of a writer on a node with its own kernel. Its file system is ext4.
func (w *writer) expandExt4(ctx context.Context, t *testing.T) {
	t.Helper()
	before := w.podUID(ctx, t)
	w.ask(ctx, t, 512)
	w.waitSize(ctx, t, 512)
	w.waitRoom(ctx, t, 512)
	w.waitAcked(ctx, t, time.Now(), time.Minute)
	assert.Equal(t, before, w.podUID(ctx, t), "the pod was started anew")
}

func expandableClass(ctx context.Context, t *testing.T, c *cluster.Cluster, name, fsType string) {
	t.Helper()
	require.NoError(t, c.Apply(ctx, fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
allowVolumeExpansion: true
parameters: {numberOfReplicas: "3", fsType: %s}
`, name, types.DriverName, fsType)))
	t.Cleanup(func() {
		c.Must(context.WithoutCancel(ctx), t, "delete", "storageclass", name, "--ignore-not-found")
	})
}

func claimPatch(mebibytes int64) string {
	return fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":"%dMi"}}}}`, mebibytes)
}

// ask sets the size that the claim requests, as a user does.
func (w *writer) ask(ctx context.Context, t *testing.T, mebibytes int64) {
	t.Helper()
	w.c.Must(ctx, t, "-n", w.namespace, "patch", "pvc", "data", "--type=merge", "-p", claimPatch(mebibytes))
}

// waitSize waits until claim and volume report the size that users have.
func (w *writer) waitSize(ctx context.Context, t *testing.T, mebibytes int64) {
	t.Helper()
	began := time.Now()
	cluster.Eventually(ctx, t, 4*time.Minute, fmt.Sprintf("the claim has %d MiB", mebibytes), func(ctx context.Context) error {
		has, err := w.c.Kubectl(ctx, "-n", w.namespace, "get", "pvc", "data", "-o", "jsonpath={.status.capacity.storage}")
		if err == nil && has != fmt.Sprintf("%dMi", mebibytes) {
			err = fmt.Errorf("it has %s", has)
		}
		return err
	})
	t.Logf("the claim had %d MiB after %s", mebibytes, time.Since(began).Round(time.Second))
	v, err := w.c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, w.volume, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, mebibytes*mebibyte, int64(v.Spec.Size))
	assert.Equal(t, mebibytes*mebibyte, int64(v.Status.Size))
	assert.False(t, v.Status.ExpansionRequired)
}

// waitRoom waits until the pod's file system fills a device of this size, except for what the file system itself needs:
// the journal of xfs alone takes 64 MiB.
func (w *writer) waitRoom(ctx context.Context, t *testing.T, mebibytes int64) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, fmt.Sprintf("the file system fills %d MiB", mebibytes), func(ctx context.Context) error {
		out, err := w.c.Kubectl(ctx, "-n", w.namespace, "exec", "deployment/writer", "--", "df", "-B1", "--output=size", "/data")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		size, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err == nil && size < (mebibytes-80)*mebibyte {
			err = fmt.Errorf("it has %d", size/mebibyte)
		}
		return err
	})
}
