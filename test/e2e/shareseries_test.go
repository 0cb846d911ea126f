package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// contending makes records durable as appending does, and overwrites a register in place with every fifth number. It
// contends with the other pod for a lock all the time:
//
//	/data/HOSTNAME           1, 2, 3 and so on, a line each
//	/data/HOSTNAME.register  the last number that five divides
//	/tmp/acks                <time> <number>, after it is durable
//	/data/lock               HOSTNAME got <turn>, HOSTNAME has <turn>, HOSTNAME end <turn>: by the lock's holder
//	/tmp/grants              when this pod got the lock, a line each
//	/tmp/failed              everything that failed
//	/tmp/leave               while it exists, this pod does not try to get the lock
//
// A late write of a replaced server makes the register smaller, or damages the sequence of records. Two pods that hold
// the lock at the same time write over each other's lines, or between them.
const contending = `
pause() { read -r -t "$1" -u 8 || true; }
say() { echo "$HOSTNAME $*" >&9 || echo "under the lock: $*" >>/tmp/failed; }
contend() {
  exec 9>>/data/lock
  turn=0
  while true; do
    if [ -e /tmp/leave ]; then pause 0.1; continue; fi
    rc=0
    flock -n 9 || rc=$?
    case $rc in
    0)
      turn=$((turn + 1))
      echo "$EPOCHREALTIME" >>/tmp/grants
      say got $turn
      for ((i = RANDOM % 8 + 4; i > 0; i--)); do
        pause 1
        say has $turn
      done
      say end $turn
      flock -u 9 || echo "unlock" >>/tmp/failed
      pause 1
      ;;
    1) pause 0.4 ;;
    *) echo "lock: $rc" >>/tmp/failed; pause 1 ;;
    esac
  done
}
exec 8<> <(:) # nothing ever comes from it: a pause that starts no program
contend &
n=0
while true; do
  n=$((n + 1))
  if printf '%s\n' "$n" | dd of="/data/$HOSTNAME" oflag=append conv=notrunc,fsync status=none &&
     { ((n % 5)) || printf '%020d' "$n" | dd of="/data/$HOSTNAME.register" conv=notrunc,fsync status=none; }; then
    echo "$EPOCHREALTIME $n" >>/tmp/acks
  else
    echo "record $n" >>/tmp/failed
    pause 1
  fi
  pause 0.05
done
`

// numbersOf reads numbers from an environment variable, which has one number for each kind. Without the variable, the
// test is skipped.
func numbersOf(t *testing.T, variable string, kinds ...string) []int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		t.Skipf("%s is not set: a long run that gives figures", variable)
	}
	var numbers []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		require.NoError(t, err, "%s=%s: give a number of each of %v, with commas between", variable, text, kinds)
		numbers = append(numbers, n)
	}
	require.Len(t, numbers, len(kinds), "%s=%s: give a number of each of %v, with commas between", variable, text, kinds)
	return numbers
}

// shareSeries is a share whose server fails again and again.
type shareSeries struct {
	*share
	kinds  []string // in the order in which they were first seen
	gaps   map[string][]time.Duration
	failed time.Time // when the server failed last
}

func (s *shareSeries) failsNow() { s.failed = time.Now() }

// sharers are the pods that use the share of a series.
var sharers = []string{"one", "two"}

// aFailure is a way in which the server of a series fails.
type aFailure struct {
	word string // its word in LONG_SHARE
	name string
	fail func(s *shareSeries, ctx context.Context, t *testing.T)
	lock func(s *shareSeries, ctx context.Context, t *testing.T)
}

// allFailures are all ways, in the order in which a series goes through them.
var allFailures = []aFailure{
	{"kills", "its server is killed", (*shareSeries).killServer, (*shareSeries).checkLock},
	{"halts", "its server's process is halted (SIGSTOP)", (*shareSeries).haltServer, (*shareSeries).checkLock},
	{"hangs", "its server hangs", (*shareSeries).hangServer, (*shareSeries).checkLock},
	{"idle", "its server is killed while a third node is idle", (*shareSeries).killServerBesideIdle, (*shareSeries).checkLock},
	{"drains", "its node is drained", (*shareSeries).drainNode, (*shareSeries).checkLock},
	{"deaths", "its node dies", (*shareSeries).killNode, (*shareSeries).checkLock},
	{"leaderdeaths", "its node dies, which also leads", (*shareSeries).killLeader, (*shareSeries).checkLock},
	{"clientdeaths", "its node dies, and a pod on that node that uses it", (*shareSeries).killNodeOfClient, (*shareSeries).checkLock},
	{"cuts", "its node is cut off, with a pod that takes the lock", (*shareSeries).cutNode, (*shareSeries).checkLock},
	{"outages", "no node's pods have a network for 3 s", (*shareSeries).loseNetwork, (*shareSeries).checkLock},
	{"lonelyleaders", "the leader reaches nothing but the API server", (*shareSeries).cutLeaderFromNodes, (*shareSeries).checkLock},
	{"deafleaders", "the leader reaches all but the API server", (*shareSeries).cutLeaderFromAPI, (*shareSeries).checkLock},
	{"stops", "its pod stands still", (*shareSeries).stopPod, (*shareSeries).checkLock},
	{"kubeletstops", "its pod and its node's kubelet stand still, and go on", (*shareSeries).stopPodAndKubelet, (*shareSeries).sayLock},
}

// timesOf reads how often each failure is requested: "kills=30,deaths=20".
func timesOf(text string) (map[string]int, error) {
	times := map[string]int{}
	for field := range strings.SplitSeq(text, ",") {
		word, number, _ := strings.Cut(field, "=")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || !slices.ContainsFunc(allFailures, func(f aFailure) bool { return f.word == word }) {
			return nil, fmt.Errorf("LONG_SHARE=%s: %q is not WORD=TIMES with one of the words of allFailures", text, field)
		}
		times[word] = n
	}
	return times, nil
}

func TestTimesOf(t *testing.T) {
	times, err := timesOf("kills=30,cuts=2")
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"kills": 30, "cuts": 2}, times)
	for _, text := range []string{"", "30,20", "kills", "kills=x", "kills=-1", "kicks=1", "kills=1,"} {
		_, err := timesOf(text)
		assert.Error(t, err, "%q", text)
	}
}

// series is a cluster only for long runs. Three nodes have an NFS client, so that one of them can die or be cut off
// while the other two keep running.
var series = &shared{install: true, options: named("-series", cluster.Options{
	Nodes: 2, Guests: 3,
	Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
})}

// TestSharedVolumeSeries: a shared volume's server fails in many ways, each as often as LONG_SHARE says. After each
// failure every durable record is there, two pods never held the lock at the same time, and no pod was restarted. At
// the end the test logs how long pods could not write.
func TestSharedVolumeSeries(t *testing.T) {
	text := os.Getenv("LONG_SHARE")
	if text == "" {
		t.Skip("LONG_SHARE is not set: a long run that gives figures")
	}
	times, err := timesOf(text)
	require.NoError(t, err)
	total := 0
	for _, n := range times {
		total += n
	}
	t.Parallel()
	turnOfKernels(t)
	ctx, c := series.get(t, long)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Minute+time.Duration(total)*5*time.Minute)
	t.Cleanup(cancel)
	s := &shareSeries{share: newShare(ctx, t, c, "e2e-share-series", contending), gaps: map[string][]time.Duration{}}
	defer s.report(t)
	t.Run("the guests' kernel has what their shares need", s.checkGuestKernel)
	for _, f := range allFailures {
		for n := range times[f.word] {
			ok := t.Run(fmt.Sprintf("%s, %d of %d", f.name, n+1, times[f.word]), func(t *testing.T) {
				c.DumpIfFailed(t)
				s.round(ctx, t, f)
				f.lock(s, ctx, t)
			})
			if !ok {
				return // the next steps would start from the state that the failed step left
			}
		}
	}
	s.finish(ctx, t)
}

// newShare creates a shared volume on this machine's nodes. It lets pods one and two, on the nodes with an NFS client,
// run a script with the volume.
func newShare(ctx context.Context, t *testing.T, c *cluster.Cluster, ns, script string) *share {
	t.Helper()
	require.NoError(t, c.Apply(ctx, shareClass("shared", "ext4")))
	return newShareOf(ctx, t, c, ns, "shared", "256Mi", script)
}

// newShareOf is newShare with a chosen StorageClass and size.
func newShareOf(ctx context.Context, t *testing.T, c *cluster.Cluster, ns, class, size, script string) *share {
	t.Helper()
	labelForShares(ctx, t, c)
	s := &share{c: c, namespace: namespace(ctx, t, c, ns)}
	s.volume = s.claim(ctx, t, "shared", class, size)
	for i, pod := range sharers {
		startPodOn(ctx, t, c, fmt.Sprintf("guest-%d", i+1), s.namespace, pod, "shared", script)
	}
	for _, pod := range sharers {
		c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=240s")
	}
	waitHealthy(ctx, t, c, s.volume, time.Minute)
	return s
}

// round makes the server fail once while the pods write and contend. A failure that needs preparation calls failsNow
// when it happens.
func (s *shareSeries) round(ctx context.Context, t *testing.T, f aFailure) {
	s.waitAcked(ctx, t, time.Minute)
	s.failsNow()
	f.fail(s, ctx, t)
	s.waitAcked(ctx, t, 3*time.Minute)
	waitHealthy(ctx, t, s.c, s.volume, 5*time.Minute)
	if !slices.Contains(s.kinds, f.name) {
		s.kinds = append(s.kinds, f.name)
	}
	s.checkPods(ctx, t)
	one, two := s.look(ctx, t, sharers[0]), s.look(ctx, t, sharers[1])
	s.gaps[f.name] = append(s.gaps[f.name], one.gap, two.gap)
	t.Logf("FIGURES %s: from the last good write to the next: %.2f s (pod %s), %.2f s (pod %s)", f.word, one.gap.Seconds(), sharers[0], two.gap.Seconds(), sharers[1])
	s.checkFiles(ctx, t, sharers[0], sharers[1], one.durable)
	s.checkFiles(ctx, t, sharers[1], sharers[0], two.durable)
	s.expectServed(ctx, t)
}

// report logs how long pods could not write.
func (s *shareSeries) report(t *testing.T) {
	t.Logf("FIGURES from the last good write of a pod to the next, in seconds:\n%s", gapTable(s.kinds, s.gaps))
}

// gapTable has a row for each kind of failure. With fewer than a hundred samples, the p99 is the longest.
func gapTable(kinds []string, gaps map[string][]time.Duration) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "samples\tp50\tp99\tlongest\t  failure")
	for _, kind := range kinds {
		sorted := slices.Sorted(slices.Values(gaps[kind]))
		fmt.Fprintf(w, "%d\t%.1f\t%.1f\t%.1f\t  %s\n", len(sorted),
			rank(sorted, 50).Seconds(), rank(sorted, 99).Seconds(), sorted[len(sorted)-1].Seconds(), kind)
	}
	_ = w.Flush() // writes to memory
	return out.String()
}

func TestGapTable(t *testing.T) {
	gaps := map[string][]time.Duration{"it dies": {3 * time.Second, time.Second, 12500 * time.Millisecond, 2 * time.Second}}
	assert.Equal(t, `
  samples  p50   p99  longest  failure
        4  2.0  12.5     12.5  it dies
`, "\n"+gapTable([]string{"it dies"}, gaps))
}

// rank returns the smallest of the sorted durations that this percentage of them does not exceed.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// finish deletes the pods and checks the volume: the copies are equal, the file system is intact, and a pod that mounts
// the volume again finds everything.
func (s *shareSeries) finish(ctx context.Context, t *testing.T) {
	durable := map[string]int{}
	for _, pod := range sharers {
		_, records := s.acked(ctx, t, pod)
		require.NotEmpty(t, records)
		last, err := strconv.Atoi(records[len(records)-1])
		require.NoError(t, err)
		durable[pod] = last
		deletePod(ctx, t, s.c, s.namespace, pod)
	}
	waitVolume(ctx, t, s.c, s.volume, ".status.state", "detached")
	checkSums(ctx, t, s.c, theVolume(ctx, t, s.c, s.volume), replicasOf(ctx, t, s.c, s.volume))
	s.checkFileSystem(ctx, t)
	startPodOn(ctx, t, s.c, "guest-1", s.namespace, "reader", "shared", idle)
	s.c.Must(ctx, t, "-n", s.namespace, "wait", "--for=condition=Ready", "pod/reader", "--timeout=240s")
	for _, pod := range sharers {
		s.checkFiles(ctx, t, pod, "reader", durable[pod])
		t.Logf("pod %s made %d records durable", pod, durable[pod])
	}
	deletePod(ctx, t, s.c, s.namespace, "reader")
	waitVolume(ctx, t, s.c, s.volume, ".status.state", "detached")
}

// checkFileSystem runs e2fsck on a copy of the detached volume, which changes nothing.
func (s *shareSeries) checkFileSystem(ctx context.Context, t *testing.T) {
	t.Helper()
	r := replicasOf(ctx, t, s.c, s.volume)[0]
	uri := "nbd+unix:///ro/" + r.Name + "?socket=" + types.ToolSocket()
	out, err := s.c.OnNode(ctx, r.Spec.NodeID, "bash", "-c", "nbdcopy '"+uri+"' /tmp/e2e-fsck && e2fsck -fn /tmp/e2e-fsck 2>&1; rc=$?; rm -f /tmp/e2e-fsck; exit $rc")
	assert.NoError(t, err, "the file system has errors: %s", out)
}
