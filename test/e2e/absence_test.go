package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Limits for the time after the API server was away, or after a node was cut off from it.
const (
	worksWithin    = 10 * time.Second // daemons and disks are ready, and no process waits for a device
	attachesWithin = 15 * time.Second // a new claim is attached
)

// absence is a time in which the API server, or a node, was away.
type absence struct {
	c         *cluster.Cluster
	namespace string
	node      string // the node that was cut off; any node if the API server was away
	restarts  map[string]int32
	rebooted  map[string]int32 // the restarts of pods whose machine was started; their kubelet counts that, sooner or later
	api       restAPI
	volume    string // detached during the absence, and attached to the node afterwards
}

// startAbsence records what must not change. Call it before the absence starts.
func startAbsence(ctx context.Context, t *testing.T, c *cluster.Cluster, namespace, node string) *absence {
	t.Helper()
	a := &absence{c: c, namespace: namespace, node: node, restarts: allRestarts(ctx, t, c), api: restOf(ctx, t, c), volume: namespace}
	a.api.do(ctx, t, http.MethodPost, "/volumes", v1.VolumeCreate{Name: a.volume, Size: "67108864"}, http.StatusCreated, nil)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		a.api.do(ctx, t, http.MethodPost, "/volumes/"+a.volume+"?action=detach", v1.DetachInput{ForceDetach: true}, http.StatusOK, nil)
		a.api.deleteDetached(ctx, t, a.volume)
	})
	return a
}

// allRestarts is restartsOn of all nodes.
func allRestarts(ctx context.Context, t *testing.T, c *cluster.Cluster) map[string]int32 {
	t.Helper()
	all := map[string]int32{}
	for _, node := range c.Nodes() {
		maps.Copy(all, restartsOn(ctx, t, c, node))
	}
	return all
}

// aim is something that must be true soon after an absence.
type aim struct {
	what   string
	within time.Duration
	check  func(context.Context) error
}

// over checks that everything works soon after the absence has ended, and prints the times. others are additional aims
// of this absence.
func (a *absence) over(ctx context.Context, t *testing.T, ended time.Time, others ...aim) {
	t.Helper()
	startClaim(ctx, t, a.c, a.namespace, "after", "64Mi", "longhorn")
	startPodOn(ctx, t, a.c, a.node, a.namespace, "after", "after", idle)
	aims := append([]aim{
		{"daemons, disks and a leader are ready", worksWithin, func(ctx context.Context) error { return a.works(ctx, ended) }},
		{"no process waits for a device", worksWithin, func(ctx context.Context) error { return noneStuck(ctx, a.c) }},
		{"a volume is attached to " + a.node, attachesWithin, a.attach},
		{"a new claim is attached there", attachesWithin, func(ctx context.Context) error { return attachedTo(ctx, a.c, a.namespace, "after", a.node) }},
	}, others...)
	reach(ctx, t, ended, aims)
	a.c.Must(ctx, t, "-n", a.namespace, "wait", "--for=condition=Ready", "pod/after", "--timeout=60s")
	restarts := allRestarts(ctx, t, a.c)
	for pod, before := range a.rebooted {
		assert.LessOrEqual(t, restarts[pod], before+1, "pod %s started more than once with its machine", pod)
		delete(restarts, pod)
		delete(a.restarts, pod)
	}
	assert.Equal(t, a.restarts, restarts, "containers of ours restarted")
	deletePod(ctx, t, a.c, a.namespace, "after")
	a.c.Must(ctx, t, "-n", a.namespace, "delete", "pvc", "after", "--timeout=60s")
}

// reach checks all aims at the same time, each until it is reached, and prints when it was reached.
func reach(ctx context.Context, t *testing.T, ended time.Time, aims []aim) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var looks sync.WaitGroup
	for _, a := range aims {
		looks.Go(func() {
			var last error
			for {
				err := a.check(ctx)
				took := time.Since(ended)
				if err == nil {
					t.Logf("FIGURES %s: %.1f s after the end; before: %v", a.what, took.Seconds(), last)
					assert.LessOrEqual(t, took, a.within, a.what)
					return
				}
				last = err
				select {
				case <-ctx.Done():
					t.Errorf("%s: not within %.0f s: %v", a.what, took.Seconds(), err)
					return
				case <-time.After(cluster.Interval / 2):
				}
			}
		})
	}
	looks.Wait()
}

// attach asks the REST API to attach the volume. It returns nil when the volume is attached.
func (a *absence) attach(ctx context.Context) error {
	v, err := a.c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, a.volume, metav1.GetOptions{})
	if err != nil || v.Status.State == longhorn.VolumeStateAttached {
		return err
	}
	body, err := json.Marshal(v1.AttachInput{HostID: a.node})
	if err != nil {
		return err
	}
	if status, answer, err := a.api.once(ctx, http.MethodPost, "/volumes/"+a.volume+"?action=attach", body); err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("the answer is %d: %s", status, answer))
	}
	return fmt.Errorf("it is %s", v.Status.State)
}

// works returns an error that names what does not work yet.
func (a *absence) works(ctx context.Context, ended time.Time) error {
	daemons, err := a.c.Kube.AppsV1().DaemonSets(types.Namespace).Get(ctx, "longhorn-manager", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := daemons.Status; s.NumberReady < s.DesiredNumberScheduled || int(s.NumberReady) < len(a.c.Nodes()) {
		return fmt.Errorf("%d of %d daemons are ready", s.NumberReady, s.DesiredNumberScheduled)
	}
	for _, node := range a.c.Nodes() {
		n, err := longhornNode(ctx, a.c, node)
		if err != nil {
			return err
		}
		if ready := types.FindCondition(n.Status.Conditions, types.ConditionReady); ready.Status != longhorn.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %s: %s", node, ready.Reason, ready.Message)
		}
		for name, disk := range n.Status.DiskStatus {
			if place := types.FindCondition(disk.Conditions, types.ConditionSchedulable); place.Status != longhorn.ConditionTrue {
				return fmt.Errorf("disk %s of node %s is not schedulable: %s: %s", name, node, place.Reason, place.Message)
			}
		}
	}
	lease, err := a.c.Kube.CoordinationV1().Leases(types.Namespace).Get(ctx, types.LeaderLease, metav1.GetOptions{})
	if err == nil && (lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(ended)) {
		err = fmt.Errorf("nobody has renewed the lease %s since then", types.LeaderLease)
	}
	return err
}

// stuckScript prints the processes that are in state D at two times, half a second apart. A process that writes is in
// this state only for a moment.
const stuckScript = `
look() { for p in /proc/[0-9]*; do read -r -d '' s <"$p/stat" || true; s=${s##*) }; [ "${s%% *}" != D ] || echo "${p#/proc/} $(cat "$p/comm")"; done 2>/dev/null | sort; }
before=$(look)
sleep 0.5
comm -12 <(echo "$before") <(look) | grep . || true`

// noneStuck returns an error while a process on a node waits in the kernel.
func noneStuck(ctx context.Context, c *cluster.Cluster) error {
	for _, node := range c.Nodes() {
		out, err := c.OnNode(ctx, node, "bash", "-c", stuckScript)
		if err != nil {
			return err
		}
		if out != "" {
			return fmt.Errorf("on %s there are in state D: %q", node, strings.Split(out, "\n"))
		}
	}
	return nil
}

// attachedTo returns an error while the volume of a claim is not attached to a node.
func attachedTo(ctx context.Context, c *cluster.Cluster, namespace, claim, node string) error {
	volume, err := c.Kubectl(ctx, "-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return err
	}
	if volume == "" {
		return errors.New("the claim has no volume yet")
	}
	v, err := c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, volume, metav1.GetOptions{})
	if err == nil && (v.Status.State != longhorn.VolumeStateAttached || v.Status.CurrentNodeID != node) {
		err = fmt.Errorf("volume %s is %s, on node %q", volume, v.Status.State, v.Status.CurrentNodeID)
	}
	return err
}

// podsProcesses returns the processes of a pod that still run on a node, with their states. The pod's object may be
// gone.
func podsProcesses(ctx context.Context, c *cluster.Cluster, node, uid string) (string, error) {
	return c.OnNode(ctx, node, "bash", "-c", `
for p in /proc/[0-9]*; do
  if grep -qs "pod$1" $p/cgroup; then echo "${p#/proc/} $(cat $p/comm) $(grep State: $p/status)"; fi
done 2>/dev/null`, "-", uid)
}

// longestGap returns the longest time between two consecutive acknowledgements, of which the second came after a time.
func longestGap(acks []ack, after time.Time) time.Duration {
	var longest time.Duration
	for i := 1; i < len(acks); i++ {
		if acks[i].at.After(after) {
			longest = max(longest, acks[i].at.Sub(acks[i-1].at))
		}
	}
	return longest
}

func TestLongestGap(t *testing.T) {
	at := func(seconds ...int64) (acks []ack) {
		for _, s := range seconds {
			acks = append(acks, ack{at: time.Unix(s, 0)})
		}
		return acks
	}
	assert.Equal(t, 4*time.Second, longestGap(at(1, 9, 12, 16), time.Unix(10, 0)))
	assert.Equal(t, 8*time.Second, longestGap(at(1, 9), time.Unix(1, 0)), "a gap that began before counts")
	assert.Zero(t, longestGap(at(1), time.Unix(0, 0)))
}

// tellAPIServer runs `devcluster api-server` with an order, and makes the API server run again when the test ends.
func tellAPIServer(ctx context.Context, t *testing.T, c *cluster.Cluster, order string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
		defer cancel()
		_, err := c.Devcluster(ctx, "api-server", "run")
		assert.NoError(t, err)
	})
	_, err := c.Devcluster(ctx, "api-server", order)
	require.NoError(t, err)
}
