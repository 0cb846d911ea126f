package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// podReport is a pod's own report after a failure.
type podReport struct {
	gap     time.Duration // the longest time between two acknowledgements, of which the second came after the failure
	durable int           // the last durable record
}

// look reads the report of a pod, and checks that it saw no error. A single command finds everything, because each
// command takes a second on a node with its own kernel.
func (s *shareSeries) look(ctx context.Context, t *testing.T, pod string) podReport {
	t.Helper()
	out := s.exec(ctx, t, pod, fmt.Sprintf(`awk -v after=%.6f '
NR > 1 && $1 > after && $1 - last > max { max = $1 - last }
{ last = $1; durable = written; written = $2 }                   # the last line may be being written
END { printf "%%.6f %%d\n", max, durable }' /tmp/acks
cat /tmp/failed 2>/dev/null || true`, float64(s.failed.UnixMicro())/1e6))
	first, failed, _ := strings.Cut(out, "\n")
	assert.Empty(t, failed, "pod %s saw errors", pod)
	var gap float64
	var now podReport
	_, err := fmt.Sscan(first, &gap, &now.durable)
	require.NoError(t, err, "pod %s says %q", pod, out)
	now.gap = time.Duration(gap * float64(time.Second))
	return now
}

// gapAfter returns the longest time without an acknowledgement after a given time, which need not be the time of a
// failure.
func (s *shareSeries) gapAfter(ctx context.Context, t *testing.T, pod string, after time.Time) time.Duration {
	t.Helper()
	return (&shareSeries{share: s.share, failed: after}).look(ctx, t, pod).gap
}

// checkPods checks that the pods are still the original ones.
func (s *shareSeries) checkPods(ctx context.Context, t *testing.T) {
	t.Helper()
	// The pods are never restarted: one that has exited has failed.
	states := s.c.Must(ctx, t, append([]string{
		"-n", s.namespace, "get", "pods", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.status.phase} {.status.containerStatuses[0].restartCount};{end}`,
	}, sharers...)...)
	var want string
	for _, pod := range sharers {
		want += pod + "=Running 0;"
	}
	assert.Equal(t, want, states)
}

// checkFiles checks that another pod reads all records that a pod has made durable. The sequence of records has no gap
// and no duplicate, and the register is never behind.
func (s *shareSeries) checkFiles(ctx context.Context, t *testing.T, pod, reader string, durable int) {
	t.Helper()
	out := strings.Fields(s.exec(ctx, t, reader, fmt.Sprintf(
		`awk '$0 != NR "" { print "line " NR " reads " $0; exit 1 } END { print NR }' /data/%[1]s; cat /data/%[1]s.register`, pod)))
	require.Len(t, out, 2)
	last, err := strconv.Atoi(out[0])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, last, durable, "not by chance: records of pod %s after %d are lost", pod, last)
	register, err := strconv.Atoi(strings.TrimLeft(out[1], "0"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, register, durable/5*5, "not by chance: the register of pod %s went back", pod)
}

// checkLock checks that the pods never held the lock at the same time, and that each held it.
func (s *shareSeries) checkLock(ctx context.Context, t *testing.T) {
	t.Helper()
	lines := s.exec(ctx, t, sharers[0], "cat /data/lock")
	turns, err := turnsOf(lines)
	if !assert.NoError(t, err, "not by chance: two pods had the lock at the same time, or what they wrote then is lost") {
		t.Logf("under the lock:\n%s", lines)
		for _, pod := range sharers {
			t.Logf("pod %s got the lock at\n%s", pod, s.exec(ctx, t, pod, "cat /tmp/grants"))
		}
	}
	for _, pod := range sharers {
		assert.Positive(t, turns[pod], "pod %s never got the lock", pod)
	}
}

// sayLock is checkLock for failures after which locks may be lost. The network of a node on which nothing runs still
// acknowledges the clients' packets. So they wait for the old server until it is gone, and the successor does not wait
// that long for them.
func (s *shareSeries) sayLock(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := turnsOf(s.exec(ctx, t, sharers[0], "cat /data/lock")); err != nil {
		t.Logf("FIGURES the lock went to the other pod while its holder waited for the old server, now or before: %v", err)
	}
}

// turnsOf reads what contending wrote under the lock, and counts how often each pod held it. The last turn may be
// unfinished.
func turnsOf(text string) (map[string]int, error) {
	turns := map[string]int{}
	holder := ""
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest is being written
		}
		fields := append(strings.Fields(line), "", "", "")
		pod, what, turn := fields[0], fields[1], fields[2]
		if what == "got" && holder == "" {
			turns[pod]++
			holder = pod
		}
		if holder != pod || turn != strconv.Itoa(turns[pod]) || !slices.Contains([]string{"got", "has", "end"}, what) {
			return turns, fmt.Errorf("in turn %d of pod %s there is %q", turns[holder], holder, line)
		}
		if what == "end" {
			holder = ""
		}
	}
	return turns, nil
}

// TestTurnsOf: turnsOf detects the lines of pods that held the lock at the same time.
func TestTurnsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want map[string]int
		fail bool
	}{
		"one after the other":          {"a got 1\na has 1\na end 1\nb got 1\nb end 1\na got 2\n", map[string]int{"a": 2, "b": 1}, false},
		"one between the other's":      {"a got 1\nb got 1\na end 1\n", map[string]int{"a": 1}, true},
		"one over the other's":         {"a got 1\na has 1\nb end 1\n", map[string]int{"a": 1}, true},
		"a turn is lost":               {"a got 1\na end 1\na got 3\n", map[string]int{"a": 2}, true},
		"a turn's beginning is lost":   {"a got 1\na end 1\nb has 1\n", map[string]int{"a": 1}, true},
		"what was written is a hole":   {"a got 1\n\x00\x00\x00\na end 1\n", map[string]int{"a": 1}, true},
		"the last line is half a line": {"a got 1\na h", map[string]int{"a": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			turns, err := turnsOf(tc.text)
			assert.Equal(t, tc.want, turns)
			assert.Equal(t, tc.fail, err != nil, "%v", err)
		})
	}
}
