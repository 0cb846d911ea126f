package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Interval is how often Eventually calls its check. If `kubectl wait` can wait for a single field, prefer it: it
// watches.
const Interval = 500 * time.Millisecond

// slack is the factor by which every wait may be longer than a test says. Tests say what two idle processors need. The
// processors of a rented machine can be three times slower for an hour. A test that passes takes no longer.
const slack = 3

// Eventually returns when check returns no error. When check has failed for slack times the time-out, Eventually fails
// the test with the last error of check.
func Eventually(ctx context.Context, t *testing.T, timeout time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	timeout *= slack
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	last := errors.New("never asked")
	for {
		began := time.Now()
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil { // otherwise the time-out interrupted check, and the previous error says more
			last = err
		}
		select {
		case <-time.After(pause(time.Since(began))):
		case <-ctx.Done():
			fatal(t, fmt.Errorf("waited %s until %s: %w", timeout, what, last))
		}
	}
}

// pause returns the wait after a check that took so long. A check that starts programs uses a processor, and the
// awaited components need most of the time. A check that had to wait itself is repeated soon.
func pause(took time.Duration) time.Duration { return min(max(Interval, 2*took), 4*Interval) }

// withSlack makes kubectl wait longer if it runs a command that waits. A drain is not one of these commands: some tests
// expect it to fail.
func withSlack(args []string) []string {
	const flag = "--timeout="
	waits := func(arg string) bool { return arg == "wait" || arg == "rollout" || arg == "delete" }
	if !slices.ContainsFunc(args, waits) {
		return args
	}
	longer := slices.Clone(args)
	for i, arg := range longer {
		if limit, err := time.ParseDuration(strings.TrimPrefix(arg, flag)); err == nil && strings.HasPrefix(arg, flag) {
			longer[i] = flag + (slack * limit).String()
		}
	}
	return longer
}

// Must fails the test unless kubectl succeeds, and returns its output.
func (c *Cluster) Must(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(ctx, args...)
	if err != nil {
		fatal(t, err)
	}
	return out
}

// MustOnNode fails the test unless the command succeeds, and returns its output.
func (c *Cluster) MustOnNode(ctx context.Context, t *testing.T, node string, command ...string) string {
	t.Helper()
	out, err := c.OnNode(ctx, node, command...)
	if err != nil {
		fatal(t, err)
	}
	return out
}

// failures are the reasons of failed tests, in order. DumpIfFailed repeats them at the end of its output. A test can
// fail more than once, because its cleanup can fail too.
var failures struct {
	sync.Mutex
	all []failure
}

type failure struct {
	test string
	err  error
}

func (f failure) String() string { return fmt.Sprintf("%s: %v", f.test, f.err) }

func noteFailure(test string, err error) {
	failures.Lock()
	defer failures.Unlock()
	failures.all = append(failures.all, failure{test, err})
}

func fatal(t *testing.T, err error) {
	t.Helper()
	noteFailure(t.Name(), err)
	t.Fatal(err)
}

// DumpIfFailed prints the cluster's last state and logs at the end of a failed test. If a wait or a command of this
// package made the test fail, it prints that reason last.
func (c *Cluster) DumpIfFailed(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, what := range dumps {
			out, err := c.Kubectl(ctx, what...)
			if err != nil {
				out = err.Error()
			}
			t.Logf("--- kubectl %s\n%s", fmt.Sprint(what), tail(out, 12000))
		}
		for _, reason := range reasons(t.Name()) {
			t.Log("failed because: " + reason)
		}
	})
}

// reasons removes and returns the reasons why a test and its subtests failed.
func reasons(test string) (all []string) {
	failures.Lock()
	defer failures.Unlock()
	failures.all = slices.DeleteFunc(failures.all, func(f failure) bool {
		of := f.test == test || strings.HasPrefix(f.test, test+"/")
		if of { // a repeated run of the test has its own reasons
			all = append(all, f.String())
		}
		return of
	})
	return all
}

var dumps = [][]string{
	{"get", "pods", "-A", "-o", "wide"},
	{"get", "pvc,pv", "-A"},
	{"-n", "longhorn-system", "get", "volumes.longhorn.io,engines.longhorn.io,replicas.longhorn.io,volumeattachments.longhorn.io,nodes.longhorn.io", "-o", "wide"},
	{"-n", "longhorn-system", "get", "volumes.longhorn.io,engines.longhorn.io,replicas.longhorn.io", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.status}{\"\\n\"}{end}"},
	{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	{"-n", "longhorn-system", "logs", "-l", "app=longhorn-manager", "--tail=60", "--prefix"},
	{"-n", "longhorn-system", "logs", "-l", "longhorn.io/component=instance-manager", "--tail=40", "--prefix"},
	{"-n", "longhorn-system", "logs", "-l", "app=longhorn-csi-controller", "--tail=40", "--prefix"},
	{"-n", "longhorn-system", "logs", "-l", "app=longhorn-csi-plugin", "--tail=40", "--prefix"},
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}
