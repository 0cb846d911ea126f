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
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// sharing has two nodes whose kernels have an NFS client, and two nodes with this machine's kernel, on which shares
// run.
var sharing = &shared{install: true, options: named("-share", cluster.Options{
	Nodes: 2, Guests: 2,
	Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
})}

// shareClass is for shares on the nodes with this machine's kernel.
func shareClass(name, fsType string) string {
	return fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: driver.longhorn.io
allowVolumeExpansion: true
parameters: {numberOfReplicas: "2", dataLocality: best-effort, staleReplicaTimeout: "30", fsType: %s, shareManagerNodeSelector: "e2e/shares:yes"}
`, name, fsType)
}

// labelForShares lets the shares of shareClass run on the nodes with this machine's kernel.
func labelForShares(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, node := range []string{"node-1", "node-2"} {
		c.Must(ctx, t, "label", "node", node, "e2e/shares=yes", "--overwrite")
	}
}

// appending makes records durable, each pod in its own file, and logs in /tmp/acks which ones are durable, and since
// when. While /tmp/pause exists, it does nothing.
const appending = `
n=0
while true; do
  while [ -e /tmp/pause ]; do sleep 0.1; done
  n=$((n + 1))
  if printf '%s\n' "$n" | dd of="/data/$HOSTNAME" oflag=append conv=notrunc,fsync status=none; then
    echo "$EPOCHREALTIME $n" >>/tmp/acks
  else
    echo "$n" >>/tmp/failed
    sleep 1
  fi
  sleep 0.05
done
`

// share is a shared volume, used by pods one and two on the two nodes with an NFS client.
type share struct {
	c                 *cluster.Cluster
	namespace, volume string
}

// TestSharedVolume follows a shared volume from its claim to its use by pods of two nodes. Then its server fails in
// several ways, and each time the pods must be able to use it again. No record that a pod made durable is lost, no pod
// is restarted, and the address stays.
func TestSharedVolume(t *testing.T) {
	t.Parallel()
	afterHanging()
	turnOfKernels(t)
	ctx, c := sharing.get(t, apart)
	require.NoError(t, c.Apply(ctx, shareClass("shared", "ext4")))
	labelForShares(ctx, t, c)
	s := &share{c: c, namespace: namespace(ctx, t, c, "e2e-share")}
	s.volume = s.claim(ctx, t, "shared", "shared", "256Mi")
	states := followShare(ctx, t, c, s.volume)
	startPodOn(ctx, t, c, "guest-1", s.namespace, "one", "shared", appending)
	startPodOn(ctx, t, c, "guest-2", s.namespace, "two", "shared", appending)
	for _, pod := range []string{"one", "two"} {
		c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=240s")
	}
	s.expectServed(ctx, t)
	endpoint := s.status(ctx, t).Endpoint
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"two pods on two nodes see each other's files", s.seeEachOther},
		{"its server has a record of each node's client, which names the node", s.clientsNameTheirNodes},
		{"a lock of one pod keeps the other out", s.lock},
		{"beside each other", s.besideEachOther},
		{"its server is killed → it starts again in its pod", s.serverIsKilled},
		{"its server is killed while a node is idle → it starts again in its pod", s.serverIsKilledBesideAnIdleNode},
		{"its server hangs → it starts again in its pod", s.serverHangs},
		{"its pod is deleted → another one serves", s.podIsDeleted},
		{"its node is drained → it moves", s.nodeIsDrained},
		{"another claim asks for more → its file system grows under the pod", s.grows},
		{"its node loses its power → another node serves", s.nodeDies},
		{"a pod on a node without an NFS client → is told so", s.noClient},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			c.DumpIfFailed(t)
			tc.run(ctx, t)
		})
		if !ok {
			return // the next steps would start from the state that the failed step left
		}
		assert.Equal(t, endpoint, s.status(ctx, t).Endpoint, "the address stays")
	}
	s.check(ctx, t)
	t.Run("a node needs it no more → no server waits for that", func(t *testing.T) {
		c.DumpIfFailed(t)
		deletePod(ctx, t, c, s.namespace, "one")
		s.waitClients(ctx, t, 1)
	})
	deletePod(ctx, t, c, s.namespace, "two")
	t.Run("no pod uses it → it is detached, and starts anew with its data", func(t *testing.T) {
		c.DumpIfFailed(t)
		s.stopsAndStarts(ctx, t)
	})
	t.Run("its records are lost → pods that had files open are made anew, once", func(t *testing.T) {
		c.DumpIfFailed(t)
		s.recordsAreLost(ctx, t)
	})
	states.expect(t, "starting running error starting running", "stopping stopped")
}

// claim creates a claim of a class, and returns the name of its volume.
func (s *share) claim(ctx context.Context, t *testing.T, name, class, size string) string {
	t.Helper()
	require.NoError(t, s.c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec:
  storageClassName: %s
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: %s}}
`, name, s.namespace, class, size)))
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/"+name, "--timeout=120s")
	return s.c.Must(ctx, t, "-n", s.namespace, "get", "pvc", name, "-o", "jsonpath={.spec.volumeName}")
}

func (s *share) status(ctx context.Context, t *testing.T) longhorn.ShareManagerStatus {
	t.Helper()
	sm, err := s.c.Longhorn.LonghornV1beta2().ShareManagers(types.Namespace).Get(ctx, s.volume, metav1.GetOptions{})
	require.NoError(t, err)
	return sm.Status
}

// waitClients waits until the share has records of this many clients: its next server would wait for all of them.
func (s *share) waitClients(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	cluster.Eventually(ctx, t, time.Minute, "what the server knows of its clients", func(ctx context.Context) error {
		records, err := s.c.Kubectl(ctx, "-n", types.Namespace, "exec", types.ShareManagerPodName(s.volume), "--",
			"ls", "-1", "/run/longhorn-share/recovery/v4recov/node0/")
		if err == nil && len(strings.Fields(strings.ReplaceAll(records, " ", "_"))) != want {
			err = fmt.Errorf("there are records of %q", records)
		}
		return err
	})
}

// expectServed checks that volume, share manager, Service and pod agree.
func (s *share) expectServed(ctx context.Context, t *testing.T) {
	t.Helper()
	v := theVolume(ctx, t, s.c, s.volume)
	assert.Equal(t, longhorn.AccessModeReadWriteMany, v.Spec.AccessMode)
	assert.Equal(t, longhorn.ShareManagerStateRunning, v.Status.ShareState)
	ip := s.c.Must(ctx, t, "-n", types.Namespace, "get", "service", s.volume, "-o", "jsonpath={.spec.clusterIP}")
	assert.Equal(t, "nfs://"+ip+"/"+s.volume, v.Status.ShareEndpoint)
	assert.Equal(t, v.Status.ShareEndpoint, s.status(ctx, t).Endpoint)
	assert.Equal(t, v.Status.CurrentNodeID, nodeOf(ctx, t, s.c, types.Namespace, types.ShareManagerPodName(s.volume)), "the volume is where its pod is")
}

// waitRunning waits until a share runs in another pod than before.
func (s *share) waitRunning(ctx context.Context, t *testing.T, before string, timeout time.Duration) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "another pod serves", func(ctx context.Context) error {
		uid, err := s.podUID(ctx)
		if err != nil {
			return err
		}
		if uid == before {
			return errors.New("the same pod is there")
		}
		state, err := s.c.Kubectl(ctx, "-n", types.Namespace, "get", "lhsm", s.volume, "-o", "jsonpath={.status.state}")
		if err == nil && state != "running" {
			err = fmt.Errorf("its state is %s", state)
		}
		return err
	})
}

func (s *share) podUID(ctx context.Context) (string, error) {
	return s.c.Kubectl(ctx, "-n", types.Namespace, "get", "pod", types.ShareManagerPodName(s.volume), "-o", "jsonpath={.metadata.uid}")
}

func (s *share) exec(ctx context.Context, t *testing.T, pod, script string) string {
	t.Helper()
	return s.c.Must(ctx, t, "-n", s.namespace, "exec", pod, "--", "bash", "-ec", script)
}

// inServer runs a script in the server's container.
func (s *share) inServer(ctx context.Context, t *testing.T, script string) {
	t.Helper()
	s.c.Must(ctx, t, "-n", types.Namespace, "exec", types.ShareManagerPodName(s.volume), "--", "bash", "-ec", script)
}

// signal sends a signal to the NFS server only.
func (s *share) signal(ctx context.Context, t *testing.T, signal string) {
	t.Helper()
	s.inServer(ctx, t, `for p in /proc/[0-9]*; do if [ "$(cat $p/comm 2>/dev/null)" = ganesha.nfsd ]; then kill -`+signal+` "${p#/proc/}"; found=1; fi; done; [ -n "$found" ]`)
}

func (s *share) seeEachOther(ctx context.Context, t *testing.T) {
	s.exec(ctx, t, "one", "mkdir -p /data/dir && echo from-one >/data/dir/file && sync -f /data")
	cluster.Eventually(ctx, t, 30*time.Second, "two sees it", func(ctx context.Context) error {
		_, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", "two", "--", "grep", "-q", "from-one", "/data/dir/file")
		return err
	})
	s.exec(ctx, t, "two", "echo from-two >>/data/dir/file && sync -f /data")
	assert.Equal(t, "from-one\nfrom-two", s.exec(ctx, t, "one", "cat /data/dir/file"))
}

// tryLock reports whether a pod gets the lock.
func (s *share) tryLock(ctx context.Context, pod string) (bool, error) {
	out, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", pod, "--", "bash", "-c", "if flock -n /data/lock true; then echo got; else echo held; fi")
	return out == "got", err
}

func (s *share) expectLock(ctx context.Context, t *testing.T, pod string, want bool) {
	t.Helper()
	got, err := s.tryLock(ctx, pod)
	require.NoError(t, err)
	assert.Equal(t, want, got, "pod %s gets the lock", pod)
}

// hold lets pod one hold the lock until the test releases it.
func (s *share) hold(ctx context.Context, t *testing.T) {
	t.Helper()
	s.exec(ctx, t, "one", "flock /data/lock bash -c 'echo held >/tmp/holder; exec sleep 3600' >/dev/null 2>&1 </dev/null & while [ ! -s /tmp/holder ]; do sleep 0.1; done")
}

func (s *share) letGo(ctx context.Context, t *testing.T) {
	t.Helper()
	s.exec(ctx, t, "one", "for p in /proc/[0-9]*; do if [ \"$(tr '\\0' ' ' <$p/cmdline 2>/dev/null)\" = 'sleep 3600 ' ]; then kill ${p#/proc/}; fi; done; rm -f /tmp/holder")
}

func (s *share) lock(ctx context.Context, t *testing.T) {
	s.expectLock(ctx, t, "two", true)
	s.hold(ctx, t)
	s.expectLock(ctx, t, "two", false)
	s.letGo(ctx, t)
	cluster.Eventually(ctx, t, 30*time.Second, "two gets the lock", func(ctx context.Context) error {
		got, err := s.tryLock(ctx, "two")
		if err == nil && !got {
			err = errors.New("it is held")
		}
		return err
	})
}

// through causes a failure while pod one holds a lock, and logs how long the pods could not write.
func (s *share) through(ctx context.Context, t *testing.T, timeout time.Duration, fail func()) {
	t.Helper()
	s.hold(ctx, t)
	began := time.Now()
	fail()
	s.waitAcked(ctx, t, timeout)
	s.expectLock(ctx, t, "two", false)
	s.letGo(ctx, t)
	for _, pod := range []string{"one", "two"} {
		t.Logf("pod %s: the longest time without an acknowledgement was %v", pod, s.longestGap(ctx, t, pod, began).Round(time.Millisecond))
		assert.Empty(t, s.exec(ctx, t, pod, "cat /tmp/failed 2>/dev/null || true"), "pod %s saw errors", pod)
		assert.Equal(t, "0", s.c.Must(ctx, t, "-n", s.namespace, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"))
	}
	s.expectServed(ctx, t)
}

// waitAcked waits until both pods make new records durable.
func (s *share) waitAcked(ctx context.Context, t *testing.T, timeout time.Duration) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "pods one and two write", func(ctx context.Context) error {
		var both errgroup.Group
		for _, pod := range []string{"one", "two"} {
			both.Go(func() error { return s.writes(ctx, pod) })
		}
		return both.Wait()
	})
}

func (s *share) waitAckedBy(ctx context.Context, t *testing.T, pod string, timeout time.Duration) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "pod "+pod+" writes", func(ctx context.Context) error { return s.writes(ctx, pod) })
}

// writes waits up to 10 s for a pod to make records durable.
func (s *share) writes(ctx context.Context, pod string) error {
	_, err := s.c.Kubectl(ctx, "-n", s.namespace, "exec", pod, "--", "bash", "-ec",
		"before=$(wc -l </tmp/acks); for i in {1..20}; do sleep 0.5; [ $(wc -l </tmp/acks) -le $((before + 2)) ] || exit 0; done; exit 1")
	if err != nil {
		return fmt.Errorf("pod %s: %w", pod, err)
	}
	return nil
}

// acked returns the times and numbers of a pod's durable records.
func (s *share) acked(ctx context.Context, t *testing.T, pod string) (times []time.Time, records []string) {
	t.Helper()
	for line := range strings.Lines(s.exec(ctx, t, pod, "cat /tmp/acks")) {
		at, record, ok := strings.Cut(strings.TrimSpace(line), " ")
		seconds, err := strconv.ParseFloat(at, 64)
		if !ok || err != nil {
			continue // the last line may be read while it is written
		}
		times, records = append(times, time.UnixMicro(int64(seconds*1e6))), append(records, record)
	}
	return times, records
}

func (s *share) longestGap(ctx context.Context, t *testing.T, pod string, after time.Time) time.Duration {
	t.Helper()
	times, _ := s.acked(ctx, t, pod)
	var longest time.Duration
	for i := 1; i < len(times); i++ {
		if times[i].After(after) {
			longest = max(longest, times[i].Sub(times[i-1]))
		}
	}
	return longest
}

// check checks that every record that was made durable is there, and that the other pod sees it.
func (s *share) check(ctx context.Context, t *testing.T) {
	t.Helper()
	for pod, other := range map[string]string{"one": "two", "two": "one"} {
		_, records := s.acked(ctx, t, pod)
		there := strings.Fields(s.exec(ctx, t, other, "cat /data/"+pod))
		slices.Sort(there)
		for _, r := range records {
			if _, found := slices.BinarySearch(there, r); !found {
				t.Errorf("not by chance: record %s of pod %s is lost", r, pod)
			}
		}
		t.Logf("pod %s made %d records durable", pod, len(records))
	}
}

func (s *share) stopsAndStarts(ctx context.Context, t *testing.T) {
	waitVolume(ctx, t, s.c, s.volume, ".status.state", "detached")
	waitVolume(ctx, t, s.c, s.volume, ".status.shareState", "stopped")
	assert.Empty(t, theVolume(ctx, t, s.c, s.volume).Status.ShareEndpoint)
	startPodOn(ctx, t, s.c, "guest-1", s.namespace, "three", "shared", idle)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/three", "--timeout=240s")
	assert.Equal(t, "from-one\nfrom-two", s.exec(ctx, t, "three", "cat /data/dir/file"))
	s.expectServed(ctx, t)
	deletePod(ctx, t, s.c, s.namespace, "three")
	waitVolume(ctx, t, s.c, s.volume, ".status.state", "detached")
}

// shareStates are the states that a share manager had, in their order.
type shareStates struct {
	stop func()
	seen chan []string // receives one value, after stop was called
}

// expect checks that the states contain these sequences, one after the other.
func (s *shareStates) expect(t *testing.T, sequences ...string) {
	t.Helper()
	s.stop()
	all := strings.Join(<-s.seen, " ")
	t.Logf("the states of the share were %s", all)
	rest := all
	for _, sequence := range sequences {
		_, after, found := strings.Cut(rest, sequence)
		if !assert.True(t, found, "after what was found before, %q is not in %q", sequence, all) {
			return
		}
		rest = after
	}
}

// followShare starts to follow the states of a share manager, until the test reads them.
func followShare(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) *shareStates {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	w, err := c.Longhorn.LonghornV1beta2().ShareManagers(types.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + volume})
	require.NoError(t, err)
	s := &shareStates{stop: w.Stop, seen: make(chan []string, 1)}
	go func() {
		var states []string
		for e := range w.ResultChan() {
			sm, ok := e.Object.(*longhorn.ShareManager)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			if state := string(sm.Status.State); state != "" && (len(states) == 0 || states[len(states)-1] != state) {
				states = append(states, state)
			}
		}
		s.seen <- states
	}()
	t.Cleanup(func() { w.Stop(); cancel() })
	return s
}
