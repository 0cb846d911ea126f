package queue

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var resource = schema.GroupResource{Group: "longhorn.io", Resource: "volumes"}

func TestErrorsAreClassified(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	alive := context.Background()
	cases := []struct {
		name string
		ctx  context.Context
		err  error
		want class
	}{
		{"nil → done", alive, nil, classDone},
		{"wrapped not found → missing", alive, fmt.Errorf("get: %w", apierrors.NewNotFound(resource, "v")), classMissing},
		{"not found, and the Sync says that this is the end → done", alive, fmt.Errorf("get: %w", Gone(apierrors.NewNotFound(resource, "v"))), classDone},
		{"an error that Gone was given in vain → failed", alive, Gone(io.EOF), classFailed},
		{"a conflict that Gone was given in vain → stale", alive, Gone(apierrors.NewConflict(resource, "v", nil)), classStale},
		{"conflict → stale", alive, fmt.Errorf("update: %w", apierrors.NewConflict(resource, "v", nil)), classStale},
		{"already exists → stale", alive, apierrors.NewAlreadyExists(resource, "v"), classStale},
		{"wrapped ErrStale → stale", alive, fmt.Errorf("volume v: %w", ErrStale), classStale},
		{"permanent → permanent", alive, fmt.Errorf("place: %w", Permanent(io.EOF)), classPermanent},
		{"permanent not found → permanent", alive, Permanent(apierrors.NewNotFound(resource, "v")), classPermanent},
		{"anything else → failed", alive, io.EOF, classFailed},
		{"a deadline inside a living context → failed", alive, context.DeadlineExceeded, classFailed},
		{"anything after the context ended → stopped", cancelled, io.EOF, classStopped},
		{"not found after the context ended → stopped", cancelled, apierrors.NewNotFound(resource, "v"), classStopped},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, classify(c.ctx, c.err))
		})
	}
	require.NoError(t, Permanent(nil))
	assert.False(t, IsPermanent(io.EOF))
	assert.ErrorIs(t, Permanent(io.EOF), io.EOF, "Permanent does not wrap, or invents an error")
}

// TestAQueueThatNeverWorkedEnds: a leader loses its lease before its caches are filled. TestMain detects leaked
// goroutines.
func TestAQueueThatNeverWorkedEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log, hook := logrustest.NewNullLogger()
	q := New(Options[string]{Name: "test", Env: Env{Clock: clock.RealClock{}, Log: logrus.NewEntry(log)}, Sync: func(context.Context, string) (Result, error) {
		t.Error("it syncs")
		return Result{}, nil
	}})
	q.Add("key")
	require.NoError(t, q.Run(ctx))
	assert.Empty(t, hook.AllEntries(), "it says that it began")
}

// bench runs a queue with syncs that report here and return the results that the test chooses.
type bench struct {
	t       *testing.T
	queue   *Queue[string]
	clock   *testclock.FakeClock
	synced  chan string
	answers chan answer
	logs    *logrustest.Hook
	stop    func()
}

type answer struct {
	result Result
	err    error
}

func newBench(t *testing.T, metrics *Metrics) *bench {
	logger, hook := logrustest.NewNullLogger()
	b := &bench{
		t: t, clock: testclock.NewFakeClock(time.Unix(0, 0)), logs: hook,
		synced: make(chan string), answers: make(chan answer),
	}
	b.queue = New(Options[string]{
		Name: "volume", Env: Env{Clock: b.clock, Log: logrus.NewEntry(logger), Metrics: metrics},
		Sync: func(ctx context.Context, key string) (Result, error) {
			b.synced <- key
			a := <-b.answers
			return a.result, a.err
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.queue.Run(ctx) }()
	b.stop = func() {
		cancel()
		assert.NoError(t, <-done)
		b.stop = func() {}
	}
	t.Cleanup(func() { b.stop() })
	return b
}

// expect waits for the next sync and answers it.
func (b *bench) expect(key string, result Result, err error) {
	b.t.Helper()
	select {
	case got := <-b.synced:
		require.Equal(b.t, key, got)
		b.answers <- answer{result, err}
	case <-time.After(10 * time.Second):
		b.t.Fatalf("%s was not synced", key)
	}
}

// expectOnlyAfter lets time pass up to just before d, then to d. The queue's own timer must be the next waiter of the
// clock.
//
// The delaying queue reads the clock and then sets a timer for the remaining time. If time passes in between, its timer
// is late by that. So time continues until the key comes.
func (b *bench) expectOnlyAfter(d time.Duration, key string, result Result, err error) {
	b.t.Helper()
	b.waitForTimer()
	b.clock.Step(d - 1)
	// A key added now is synced at once. If the other key had become ready, it would be first.
	b.queue.Add("probe")
	b.expect("probe", Result{}, nil)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		b.clock.Step(1)
		select {
		case got := <-b.synced:
			require.Equal(b.t, key, got)
			b.answers <- answer{result, err}
			return
		case <-time.After(time.Millisecond):
		}
	}
	b.t.Fatalf("%s was not synced", key)
}

// waitForTimer waits until the delaying queue has set the timer of a waiting key. The queue has a heartbeat ticker from
// the start, so the clock has two waiters then.
func (b *bench) waitForTimer() {
	b.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for b.clock.Waiters() < 2 {
		require.False(b.t, time.Now().After(deadline), "no key is waiting for its time")
		time.Sleep(time.Millisecond) // the fake clock has no event to wait for
	}
}

func TestAFailingKeyIsNeverGivenUpAndItsBackoffIsCapped(t *testing.T) {
	b := newBench(t, nil)
	b.queue.Add("v")
	b.expect("v", Result{}, io.EOF)
	backoff := 5 * time.Millisecond
	for range 16 {
		b.expectOnlyAfter(backoff, "v", Result{}, io.EOF)
		backoff = min(2*backoff, 30*time.Second)
	}
	require.Equal(t, 30*time.Second, backoff, "the test ended before the cap")
	b.expectOnlyAfter(30*time.Second, "v", Result{}, nil)
	// Success resets the failures: the next failure counts as the first.
	b.queue.Add("v")
	b.expect("v", Result{}, io.EOF)
	b.expectOnlyAfter(5*time.Millisecond, "v", Result{}, nil)
	b.stop()
	assert.Equal(t, 18, count(b.logs, logrus.ErrorLevel), "one per failure")
}

func TestStaleAndConflictComeBackQuietly(t *testing.T) {
	b := newBench(t, nil)
	b.queue.Add("v")
	b.expect("v", Result{}, ErrStale)
	b.expectOnlyAfter(5*time.Millisecond, "v", Result{}, apierrors.NewConflict(resource, "v", nil))
	b.expectOnlyAfter(10*time.Millisecond, "v", Result{}, nil)
	b.stop()
	assert.Zero(t, count(b.logs, logrus.ErrorLevel)+count(b.logs, logrus.WarnLevel), "errors and warnings logged")
}

func TestWhatIsMissingIsLookedForAgainQuietlyAtFirst(t *testing.T) {
	b := newBench(t, nil)
	missing := fmt.Errorf("read the engine: %w", apierrors.NewNotFound(resource, "v"))
	b.queue.Add("v")
	b.expect("v", Result{}, missing)
	backoff := 5 * time.Millisecond
	for range 5 {
		b.expectOnlyAfter(backoff, "v", Result{}, missing)
		backoff *= 2
	}
	b.expectOnlyAfter(backoff, "v", Result{}, Gone(missing))
	b.queue.Add("after")
	b.expect("after", Result{}, nil)
	b.stop()
	assert.Equal(t, 1, count(b.logs, logrus.ErrorLevel), "the sixth miss")
}

func TestAPermanentErrorRestsUntilTheNextEvent(t *testing.T) {
	b := newBench(t, nil)
	b.queue.Add("v")
	b.expect("v", Result{}, Permanent(io.EOF))
	b.queue.Add("after")
	b.expect("after", Result{}, nil)
	b.clock.Step(time.Hour)
	b.queue.Add("v")
	b.expect("v", Result{}, nil)
	b.stop()
	assert.Equal(t, 1, count(b.logs, logrus.ErrorLevel))
}

func TestAResultSetsTheNextVisit(t *testing.T) {
	b := newBench(t, nil)
	b.queue.Add("v")
	b.expect("v", Result{RequeueAfter: time.Minute}, nil)
	b.expectOnlyAfter(time.Minute, "v", Result{}, nil)
	b.queue.AddAfter("w", time.Second)
	b.expectOnlyAfter(time.Second, "w", Result{}, nil)
}

func TestAKeyAddedDuringItsSyncIsSyncedOnceMore(t *testing.T) {
	b := newBench(t, nil)
	b.queue.Add("v")
	require.Equal(t, "v", <-b.synced)
	b.queue.Add("v")
	b.queue.Add("v")
	b.answers <- answer{}
	b.expect("v", Result{}, nil)
	b.queue.Add("end")
	b.expect("end", Result{}, nil)
}

func TestShutdownWaitsForTheSyncUnderWayAndDropsTheRest(t *testing.T) {
	logger, _ := logrustest.NewNullLogger()
	entered, synced := make(chan struct{}), []string{}
	q := New(Options[string]{
		Name: "volume", Env: Env{Clock: testclock.NewFakeClock(time.Unix(0, 0)), Log: logrus.NewEntry(logger)},
		Sync: func(ctx context.Context, key string) (Result, error) {
			close(entered) // a second sync would panic
			<-ctx.Done()
			synced = append(synced, key)
			return Result{}, ctx.Err()
		},
	})
	q.Add("v")
	q.Add("w")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	<-entered
	cancel()
	err := <-done
	require.NoError(t, err)
	assert.Equal(t, []string{"v"}, synced)
}

func TestSyncsAreCountedByOutcome(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	require.NoError(t, err)
	_, err = NewMetrics(registry)
	assert.Error(t, err, "registering twice is no error")
	b := newBench(t, metrics)
	b.queue.Add("v")
	b.expect("v", Result{}, Permanent(io.EOF))
	b.queue.Add("v")
	b.expect("v", Result{}, nil)
	b.queue.Add("v")
	b.expect("v", Result{}, nil)
	b.stop()
	for outcome, want := range map[string]float64{"done": 2, "permanent": 1, "failed": 0} {
		assert.Equal(t, want, syncsCounted(t, registry, outcome), "syncs with outcome %s", outcome)
	}
}

func syncsCounted(t *testing.T, registry prometheus.Gatherer, outcome string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "longhorn_controller_syncs_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["controller"] == "volume" && labels["outcome"] == outcome {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func count(hook *logrustest.Hook, level logrus.Level) int {
	n := 0
	for _, entry := range hook.AllEntries() {
		if entry.Level == level {
			n++
		}
	}
	return n
}
