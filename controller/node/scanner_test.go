package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

const patience = 10 * time.Second

// hangingDisks are fakeDisks of which some paths do not answer until they are let go.
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

// onlyHanging tells whether a scan waits for nothing but what hangs.
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

// outwait runs what scans, and has the clock run on when it waits for what hangs.
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
	if got.Records["b"].Err != nil || got.Records["b"].Name != "b" || got.Late["b"] {
		t.Errorf("the other: %+v", got.Records["b"])
	}
	if !errors.Is(got.Records["a"].Err, errNotAnswered) || !got.Late["a"] || got.Again != scanPatience-scanWait {
		t.Errorf("after %v: %+v, again in %v", scanWait, got.Records["a"], got.Again)
	}

	clock.Step(scanPatience)
	for range 3 {
		got = scanning(clock, s, d, paths)
		if !errors.Is(got.Records["a"].Err, errSilent) || got.Records["a"].Name != "a" || got.Records["a"].Path != "/a" || got.Again != 0 {
			t.Errorf("after %v: %+v, again in %v", scanPatience, got.Records["a"], got.Again)
		}
	}
	d.hang.Lock()
	if d.asks["/a"] != 1 || d.asks["/b"] != 4 {
		t.Errorf("asked %v: one that hangs is asked once", d.asks)
	}
	d.hang.Unlock()

	d.letGo("/a")
	select {
	case <-late:
	case <-time.After(patience):
		t.Fatal("the late answer was not told")
	}
	if got = scanning(clock, s, d, paths); got.Records["a"].Err != nil || len(got.Late) > 0 {
		t.Errorf("after the answer: %+v", got)
	}
}

func TestTheLastAnswerStandsInForALateOne(t *testing.T) {
	clock := testclock.NewFakeClock(testutil.Now)
	d := newHanging()
	late := make(chan struct{}, 1)
	s := newScanner(d.Scan, clock, func() { late <- struct{}{} })
	paths := map[string]string{"a": "/a"}
	if got := s.Scan(paths); got.Records["a"].Err != nil {
		t.Fatalf("%+v", got)
	}
	d.hang.Lock()
	d.gate["/a"] = make(chan struct{})
	d.hang.Unlock()
	got := scanning(clock, s, d, paths)
	if got.Records["a"].Config == nil || !got.Late["a"] || got.Again != scanPatience-scanWait {
		t.Errorf("%+v", got)
	}
	clock.Step(scanPatience - scanWait)
	if got = scanning(clock, s, d, paths); !errors.Is(got.Records["a"].Err, errSilent) {
		t.Errorf("%+v", got)
	}

	// It answers, and hangs again: it does not come and go with each answer.
	d.letGo("/a")
	<-late
	d.hang.Lock()
	d.gate["/a"] = make(chan struct{})
	d.hang.Unlock()
	if got = scanning(clock, s, d, paths); !errors.Is(got.Records["a"].Err, errSilent) {
		t.Errorf("the answer of a slow one stands in: %+v", got)
	}
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
			if err != nil {
				t.Error(err)
			}
			return result.RequeueAfter
		})
	}
	again := syncing()
	f.ExpectWrites() // its last answer stands in
	if again <= 0 || again > scanPatience {
		t.Errorf("looked at again in %v", again)
	}
	f.Clock.Step(scanPatience)
	f.disks = d.fakeDisks
	d.records["/var/lib/longhorn"] = found(withoutFile)
	syncing()
	if got := f.readyOf("disk-2"); got.Reason != "NoDiskInfo" || got.Message != "Disk disk-2(/b) on node node-1 is not ready: its directory does not answer; is the device or server behind it gone?" {
		t.Errorf("disk-2: %+v", got)
	}
	if got := f.readyOf("disk-1"); got.Reason != "DiskFilesystemChanged" {
		t.Errorf("disk-1: %+v", got)
	}
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
	if err := w.do("/a", func() error { t.Error("a second write to the path"); return nil }); !errors.Is(err, errWriteHangs) {
		t.Errorf("while a write hangs: %v", err)
	}
	refused := errors.New("read-only file system")
	if err := w.do("/b", func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("another disk: %v", err)
	}
	clock.Step(scanPatience)
	if err := <-written; !errors.Is(err, errWriteHangs) {
		t.Errorf("a write that hangs: %v", err)
	}
	close(frozen)
	<-late
	if err := w.do("/a", func() error { return nil }); err != nil {
		t.Errorf("after it has ended: %v", err)
	}
}
