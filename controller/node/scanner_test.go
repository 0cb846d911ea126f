package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

const patience = 10 * time.Second

// hangingDisks are fakeDisks in which some paths do not answer until they are released.
type hangingDisks struct {
	*fakeDisks
	hang sync.Mutex // guards all below
	gate map[string]chan struct{}
	asks map[string]int
}

func (d *hangingDisks) Scan(paths map[string]string) map[string]disk.Record {
	for _, path := range paths {
		d.hang.Lock()
		gate := d.gate[path]
		if d.asks == nil {
			d.asks = map[string]int{}
		}
		d.asks[path]++
		d.hang.Unlock()
		if gate != nil {
			<-gate
		}
	}
	return d.fakeDisks.Scan(paths)
}

func (d *hangingDisks) letGo(path string) {
	d.hang.Lock()
	defer d.hang.Unlock()
	close(d.gate[path])
	delete(d.gate, path)
}

func newHanging(paths ...string) *hangingDisks {
	d := &hangingDisks{fakeDisks: &fakeDisks{records: map[string]disk.Record{"/a": found(), "/b": found()}}, gate: map[string]chan struct{}{}}
	for _, path := range paths {
		d.gate[path] = make(chan struct{})
	}
	return d
}

// onlyHanging reports whether a scan waits only for hanging paths.
func (d *hangingDisks) onlyHanging(s *scanner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.hang.Lock()
	defer d.hang.Unlock()
	for path := range s.probes {
		if d.gate[path] == nil {
			return false
		}
	}
	return len(s.probes) > 0
}

// outwait calls run, and advances the clock when run waits for hanging paths.
func outwait[T any](clock *testclock.FakeClock, s *scanner, d *hangingDisks, run func() T) T {
	done := make(chan T)
	go func() { done <- run() }()
	for {
		select {
		case result := <-done:
			return result
		case <-time.After(time.Millisecond):
			if clock.HasWaiters() && d.onlyHanging(s) {
				clock.Step(scanWait)
			}
		}
	}
}

func scanning(clock *testclock.FakeClock, s *scanner, d *hangingDisks, paths map[string]string) scanned {
	return outwait(clock, s, d, func() scanned { return s.Scan(paths) })
}

func TestADirectoryThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	clock := testclock.NewFakeClock(testutil.Now)
	d := newHanging("/a")
	late := make(chan struct{}, 1)
	s := newScanner(d.Scan, clock, func() { late <- struct{}{} })
	paths := map[string]string{"a": "/a", "b": "/b"}

	got := scanning(clock, s, d, paths)
	require.NoError(t, got.Records["b"].Err)
	assert.Equal(t, "b", got.Records["b"].Name)
	assert.False(t, got.Late["b"], "the other")
	assert.ErrorIs(t, got.Records["a"].Err, errNotAnswered, "after %v", scanWait)
	assert.True(t, got.Late["a"], "after %v", scanWait)
	assert.Equal(t, scanPatience-scanWait, got.Again, "after %v", scanWait)

	clock.Step(scanPatience)
	for range 3 {
		got = scanning(clock, s, d, paths)
		assert.ErrorIs(t, got.Records["a"].Err, errSilent, "after %v", scanPatience)
		assert.Equal(t, "a", got.Records["a"].Name, "after %v", scanPatience)
		assert.Equal(t, "/a", got.Records["a"].Path, "after %v", scanPatience)
		assert.Zero(t, got.Again, "after %v", scanPatience)
	}
	d.hang.Lock()
	assert.Equal(t, 1, d.asks["/a"])
	assert.Equal(t, 4, d.asks["/b"], "one that hangs is asked once")
	d.hang.Unlock()

	d.letGo("/a")
	select {
	case <-late:
	case <-time.After(patience):
		t.Fatal("the late answer was not told")
	}
	got = scanning(clock, s, d, paths)
	require.NoError(t, got.Records["a"].Err)
	assert.Empty(t, got.Late, "after the answer")
}

func TestTheLastAnswerStandsInForALateOne(t *testing.T) {
	clock := testclock.NewFakeClock(testutil.Now)
	d := newHanging()
	late := make(chan struct{}, 1)
	s := newScanner(d.Scan, clock, func() { late <- struct{}{} })
	paths := map[string]string{"a": "/a"}
	got := s.Scan(paths)
	require.NoError(t, got.Records["a"].Err)
	d.hang.Lock()
	d.gate["/a"] = make(chan struct{})
	d.hang.Unlock()
	got = scanning(clock, s, d, paths)
	assert.NotNil(t, got.Records["a"].Config)
	assert.True(t, got.Late["a"])
	assert.Equal(t, scanPatience-scanWait, got.Again)
	clock.Step(scanPatience - scanWait)
	got = scanning(clock, s, d, paths)
	assert.ErrorIs(t, got.Records["a"].Err, errSilent)

	// It answers, and hangs again: it does not appear and disappear with each answer.
	d.letGo("/a")
	<-late
	d.hang.Lock()
	d.gate["/a"] = make(chan struct{})
	d.hang.Unlock()
	got = scanning(clock, s, d, paths)
	assert.ErrorIs(t, got.Records["a"].Err, errSilent, "the answer of a slow one stands in")
	d.letGo("/a")
	<-late
}

func TestADiskThatDoesNotAnswerIsNotReadyWhileOthersGoOn(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.ReadyNode("node-1", uuid1, build.WithDisk("disk-2", "/b"), build.WithDiskStatus("disk-2", uuid2)))
	d := newHanging()
	d.records["/var/lib/longhorn"] = found()
	d.records["/b"] = found(func(r *disk.Record) {
		config := disk.NewConfig("disk-2", uuid2)
		config.Claim, r.Config, r.DeviceID = 1, &config, 2
	})
	f.Controller = f.newController(d)
	f.mustSync()
	f.CatchUp()

	d.hang.Lock()
	d.gate["/b"] = make(chan struct{})
	d.hang.Unlock()
	f.Writes()
	syncing := func() time.Duration {
		t.Helper()
		return outwait(f.Clock, f.scanner, d, func() time.Duration {
			result, err := f.sync(t.Context(), "node-1")
			assert.NoError(t, err)
			return result.RequeueAfter
		})
	}
	again := syncing()
	f.ExpectWrites() // its last answer is used
	assert.Positive(t, again)
	assert.LessOrEqual(t, again, scanPatience)
	f.Clock.Step(scanPatience)
	f.disks = d.fakeDisks
	d.records["/var/lib/longhorn"] = found(withoutFile)
	syncing()
	got := f.readyOf("disk-2")
	assert.Equal(t, "NoDiskInfo", got.Reason)
	assert.Equal(t, "Disk disk-2(/b) on node node-1 is not ready: its directory does not answer; check the device or server that holds it", got.Message)
	got = f.readyOf("disk-1")
	assert.Equal(t, "DiskFilesystemChanged", got.Reason)
	d.letGo("/b")
}

func TestChangesOfMountsLeadToScansAtOnceAndNoMoreThanOneASecond(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"))
	clock := testclock.NewFakeClock(testutil.Now)
	f.deps.Clock = clock
	changed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.scanForMounts(ctx, changed); close(done) }()
	takes := func(want bool) {
		t.Helper()
		changed <- struct{}{}
		for deadline := time.After(patience); ; {
			if len(changed) == 0 == want && clock.HasWaiters() {
				return
			}
			select {
			case <-deadline:
				t.Fatalf("taken: %v, want %v", len(changed) == 0, want)
			case <-time.After(time.Millisecond):
			}
		}
	}
	takes(true)
	takes(false) // it pauses
	clock.Step(mountPause)
	for deadline := time.After(patience); len(changed) > 0; {
		select {
		case <-deadline:
			t.Fatal("the change during the pause was lost")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-done
}

func TestAWriteThatHangsHoldsUpNobody(t *testing.T) {
	clock := testclock.NewFakeClock(testutil.Now)
	late := make(chan struct{}, 1)
	w := &writes{clock: clock, late: func() { late <- struct{}{} }, paths: map[string]bool{}}
	frozen, written := make(chan struct{}), make(chan error)
	go func() {
		written <- w.do("/a", func() error {
			<-frozen
			return nil
		})
	}()
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	assert.ErrorIs(t, w.do("/a", func() error { t.Error("a second write to the path"); return nil }), errWriteHangs, "while a write hangs")
	refused := errors.New("read-only file system")
	assert.ErrorIs(t, w.do("/b", func() error { return refused }), refused, "another disk")
	clock.Step(scanPatience)
	assert.ErrorIs(t, <-written, errWriteHangs, "a write that hangs")
	close(frozen)
	<-late
	assert.NoError(t, w.do("/a", func() error { return nil }), "after it has ended")
}
