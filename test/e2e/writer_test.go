package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// writer is a Deployment of one pod that appends numbered records to a file. It makes each record durable by fsync, and
// logs which ones are durable:
//
//	/data/records  on the volume         <pod> <start> <number>
//	/acks/<pod>    on the node itself    <time> <pod> <start> <number>, after fsync returned
//
// The second file outlives pod and node, and can be read while the node is cut off. A write that failed is not
// acknowledged: the writer reports the error and tries again.
type writer struct {
	c                 *cluster.Cluster
	namespace, volume string
}

const writing = `
start=$EPOCHSECONDS
n=0
echo >>/data/records || true # a line that was torn ends here
while true; do
  n=$((n + 1))
  record="$HOSTNAME $start $n"
  if printf '%s\n' "$record" | dd of=/data/records oflag=append conv=notrunc,fsync status=none; then
    echo "$EPOCHREALTIME $record" >>"/acks/$HOSTNAME"
  else
    echo "record $n was not written"
    sleep 1
  fi
  sleep 0.02
done
`

// loading writes at random while the rest of the script runs. It starts again when it has failed.
const loading = `
while true; do
  fio --name=load --filename=/data/load --size=32M --rw=randwrite --bs=8k --ioengine=libaio --iodepth=4 --direct=1 \
      --time_based --runtime=600 --rate_iops=200 --fallocate=none >/dev/null 2>&1 || sleep 1
done &
`

// verifyingBeside writes at random while the rest of the script runs. It verifies everything that it wrote, in short
// rounds, and exits at the first error.
const verifyingBeside = `
(
  set -e
  while true; do
    fio --name=verify --filename=/data/verify --size=24M --rw=randwrite --bs=4k --ioengine=libaio --iodepth=4 --direct=1 --verify=crc32c --verify_fatal=1 \
        --do_verify=1 --rate_iops=400 --fallocate=none >/tmp/verify.log 2>&1 || { cat /tmp/verify.log; echo "not verified"; exit 1; }
    echo "verified a round"
  done
) &
`

// acksDirectory is on a node, on a file system that keeps its data when the node loses its power.
const acksDirectory = "/var/lib/kubelet/e2e-acks"

// startWriter creates a claim and a writer with it, and waits until the writer has written some records.
func startWriter(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, script string) *writer {
	t.Helper()
	return startWriterOn(ctx, t, c, namespace, script, "longhorn")
}

// startWriterOn is startWriter with a chosen StorageClass.
func startWriterOn(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, script, class string) *writer {
	t.Helper()
	w := &writer{c: c, namespace: namespace, volume: claimOf(ctx, t, c, namespace, "data", "256Mi", class)}
	indented := "              " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n              ")
	manifest := fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: writer, namespace: %s}
spec:
  replicas: 1
  strategy: {type: Recreate}
  selector: {matchLabels: {app: writer}}
  template:
    metadata: {labels: {app: writer}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: main
          image: localhost/workload:dev
          imagePullPolicy: IfNotPresent
          command:
            - bash
            - -c
            - |
%s
          volumeMounts: [{name: data, mountPath: /data}, {name: acks, mountPath: /acks}]
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: data}
        - name: acks
          hostPath: {path: %s, type: DirectoryOrCreate}
`, namespace, indented, w.acks())
	for _, node := range c.Nodes() {
		c.MustOnNode(ctx, t, node, "rm", "-rf", w.acks()) // of a failed run
	}
	require.NoError(t, c.Apply(ctx, manifest))
	waitVolume(ctx, t, c, w.volume, ".status.robustness", "healthy")
	w.waitAcked(ctx, t, time.Now(), 2*time.Minute)
	return w
}

func (w *writer) acks() string { return acksDirectory + "/" + w.namespace }

// node returns the node to which the writer's volume is attached.
func (w *writer) node(ctx context.Context, t *testing.T) string {
	t.Helper()
	v := theVolume(ctx, t, w.c, w.volume)
	require.NotEmpty(t, v.Status.CurrentNodeID, "volume %s is %s, attached nowhere", w.volume, v.Status.State)
	return v.Status.CurrentNodeID
}

// ack is a record, and the time when fsync had returned for it.
type ack struct {
	at     time.Time
	record string
}

// acked returns the acknowledgements on a node, ordered by time. The node must run.
func (w *writer) acked(ctx context.Context, node string) ([]ack, error) {
	text, err := w.c.OnNode(ctx, node, "bash", "-c", "shopt -s nullglob; cat "+w.acks()+"/* </dev/null")
	if err != nil {
		return nil, err
	}
	var acks []ack
	for line := range strings.Lines(text) {
		at, record, ok := strings.Cut(strings.TrimSpace(line), " ")
		seconds, err := strconv.ParseFloat(at, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("an acknowledgement on %s reads %q", node, line)
		}
		acks = append(acks, ack{at: time.UnixMicro(int64(seconds * 1e6)), record: record})
	}
	slices.SortFunc(acks, func(a, b ack) int { return a.at.Compare(b.at) })
	return acks, nil
}

// waitAcked waits until some records were acknowledged after a time, on any node.
func (w *writer) waitAcked(ctx context.Context, t *testing.T, after time.Time, timeout time.Duration) {
	t.Helper()
	w.waitAckedOn(ctx, t, w.c.Nodes(), after, timeout)
}

func (w *writer) waitAckedOn(ctx context.Context, t *testing.T, on []string, after time.Time, timeout time.Duration) {
	t.Helper()
	const enough = 20
	cluster.Eventually(ctx, t, timeout, fmt.Sprintf("%d records are acknowledged on %v", enough, on), func(ctx context.Context) error {
		count := 0
		var errs error
		for _, node := range on {
			acks, err := w.acked(ctx, node)
			errs = errors.Join(errs, err)
			for _, a := range acks {
				if a.at.After(after) {
					count++
				}
			}
			if count >= enough {
				return nil
			}
		}
		return errors.Join(errs, fmt.Errorf("%d were", count))
	})
}

// podUID identifies the writer's pod, including its restarts.
func (w *writer) podUID(ctx context.Context, t *testing.T) string {
	t.Helper()
	return w.c.Must(ctx, t, "-n", w.namespace, "get", "pods", "-l", "app=writer", "-o", "jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}")
}

// checkVerified fails the test if the writer saw an error, or verified nothing (verifyingBeside).
func (w *writer) checkVerified(ctx context.Context, t *testing.T) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "a round is verified", func(ctx context.Context) error {
		log, err := w.c.Kubectl(ctx, "-n", w.namespace, "logs", "deployment/writer")
		switch {
		case err != nil:
			return err
		case strings.Contains(log, "not verified"), strings.Contains(log, "was not written"):
			t.Fatalf("the writer saw an error:\n%s", log)
		case !strings.Contains(log, "verified a round"):
			return errors.New("none yet")
		}
		return nil
	})
}

// scale sets the number of writers, 0 or 1, and waits until the volume has followed.
func (w *writer) scale(ctx context.Context, t *testing.T, replicas int) {
	t.Helper()
	w.c.Must(ctx, t, "-n", w.namespace, "scale", "deployment/writer", fmt.Sprintf("--replicas=%d", replicas))
	if replicas > 0 {
		waitVolume(ctx, t, w.c, w.volume, ".status.robustness", "healthy")
		w.waitAcked(ctx, t, time.Now(), 2*time.Minute)
		return
	}
	cluster.Eventually(ctx, t, 2*time.Minute, "the writer is gone", func(ctx context.Context) error {
		left, err := w.c.Kubectl(ctx, "-n", w.namespace, "get", "pods", "-l", "app=writer", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("there is %s", left)
		}
		return err
	})
	waitVolume(ctx, t, w.c, w.volume, ".status.state", "detached")
}

// waitHealthy waits until the volume has all its members again.
func (w *writer) waitHealthy(ctx context.Context, t *testing.T, timeout time.Duration) {
	t.Helper()
	waitHealthy(ctx, t, w.c, w.volume, timeout)
}

func waitHealthy(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string, timeout time.Duration) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "volume "+volume+" is attached and healthy", func(ctx context.Context) error {
		v, err := c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, volume, metav1.GetOptions{})
		if err == nil && (v.Status.State != "attached" || v.Status.Robustness != "healthy") {
			err = fmt.Errorf("it is %s and %s", v.Status.State, v.Status.Robustness)
		}
		return err
	})
}

// finish stops the writer and checks the volume. No replica differs, and nothing of the volume remains on any node. A
// pod that mounts the volume again finds every acknowledged record.
func (w *writer) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	w.scale(ctx, t, 0)
	checkSums(ctx, t, w.c, theVolume(ctx, t, w.c, w.volume), replicasOf(ctx, t, w.c, w.volume))
	for _, node := range w.c.Nodes() {
		waitNothingLeft(ctx, t, w.c, node, w.volume)
	}
	pod(ctx, t, w.c, w.namespace, "reader", "data", idle)
	w.check(ctx, t, w.c.Must(ctx, t, "-n", w.namespace, "exec", "reader", "--", "cat", "/data/records"))
	deletePod(ctx, t, w.c, w.namespace, "reader")
	waitVolume(ctx, t, w.c, w.volume, ".status.state", "detached")
}

// check compares the file with the acknowledgements of all nodes.
func (w *writer) check(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	there := map[string]bool{}
	for line := range strings.Lines(file) {
		there[strings.TrimSpace(line)] = true
	}
	for _, node := range w.c.Nodes() {
		acks, err := w.acked(ctx, node)
		assert.NoError(t, err)
		var lost []ack
		for _, a := range acks {
			if !there[a.record] {
				lost = append(lost, a)
			}
		}
		if len(lost) > 0 {
			t.Errorf("not by chance: %d of %d records acknowledged on %s are lost; the first is %q of %s, the last %q of %s", len(lost), len(acks), node,
				lost[0].record, lost[0].at.Format(time.StampMicro), lost[len(lost)-1].record, lost[len(lost)-1].at.Format(time.StampMicro))
		}
		t.Logf("%d records were acknowledged on %s", len(acks), node)
	}
}
