package node

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/disk"
)

const (
	// scanWait is how long a sync waits for directories to answer; nearly all do at once.
	scanWait = time.Second
	// scanPatience is how long a directory may take to answer before it counts as not answering.
	scanPatience = 5 * time.Second
	// scanMemory is the greatest age of an answer that replaces a late one.
	scanMemory = scanInterval + scanPatience
)

var (
	errSilent      = errors.New("its directory does not answer; check the device or server that holds it")
	errNotAnswered = errors.New("its directory has not answered yet")
)

// scanner examines directories, each in its own goroutine, because the kernel may block a goroutine that accesses a
// dead mount forever. A path has at most one such goroutine, however often callers ask about it:
//
//	asked about   the path's goroutine        result
//	              answers within scanWait     the answer
//	              takes longer                the last answer; ask again in a while
//	              takes over scanPatience     the disk does not answer
//	              answers at last             (late is called; ask again)
//
// No caller waits for a goroutine that hangs in the kernel: nothing can stop it. It occupies one thread, writes only
// its answer here, and exits with the process.
type scanner struct {
	scan  func(paths map[string]string) map[string]disk.Record
	clock clock.WithTicker
	late  func() // called when an answer came that a scan did not wait for

	mu      sync.Mutex // guards all fields below
	probes  map[string]*probe
	answers map[string]answer
}

// probe is one path that is being examined.
type probe struct {
	since time.Time
	done  chan struct{}
	given bool // a scan has returned without it
}

type answer struct {
	record disk.Record
	at     time.Time
	slow   bool // it took longer than scanPatience
}

// scanned is the result of a scan.
type scanned struct {
	Records map[string]disk.Record // by disk name
	// Late names the disks without a record, or with an earlier one.
	Late map[string]bool
	// Again, if positive, is when a late disk must be examined again.
	Again time.Duration
}

func newScanner(scan func(map[string]string) map[string]disk.Record, c clock.WithTicker, late func()) *scanner {
	return &scanner{scan: scan, clock: c, late: late, probes: map[string]*probe{}, answers: map[string]answer{}}
}

// Scan examines directories, by disk name. It blocks for scanWait at the most.
func (s *scanner) Scan(paths map[string]string) scanned {
	probes := make(map[string]*probe, len(paths))
	for _, path := range paths {
		if probes[path] == nil {
			probes[path] = s.ask(path)
		}
	}
	timer := s.clock.NewTimer(scanWait)
	defer timer.Stop()
	for _, p := range probes {
		select {
		case <-p.done:
			continue
		case <-timer.C():
		}
		break // the other probes are checked below, answered or not
	}

	found := scanned{Records: make(map[string]disk.Record, len(paths)), Late: map[string]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for path, a := range s.answers {
		if now.Sub(a.at) > scanMemory {
			delete(s.answers, path)
		}
	}
	for name, path := range paths {
		record, again := s.recordLocked(path, probes[path], now)
		record.Name, record.Path = name, path
		found.Records[name] = record
		if s.probes[path] != nil {
			found.Late[name] = true
		}
		if again > 0 && (found.Again == 0 || again < found.Again) {
			found.Again = again
		}
	}
	return found
}

// recordLocked is the present knowledge about a path. It also returns when to ask again, if the knowledge may change
// without an answer. The caller holds mu.
func (s *scanner) recordLocked(path string, p *probe, now time.Time) (disk.Record, time.Duration) {
	last, known := s.answers[path]
	if s.probes[path] == nil {
		return last.record, 0
	}
	p.given = true
	left := scanPatience - now.Sub(p.since)
	switch {
	case left <= 0:
		return disk.Record{Err: errSilent}, 0
	case known && last.slow: // otherwise a disk that is always slow would appear and disappear
		return disk.Record{Err: errSilent}, left
	case known:
		return last.record, left
	}
	return disk.Record{Err: errNotAnswered}, left
}

// ask returns the probe of a path that is under way, or starts one.
func (s *scanner) ask(path string) *probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.probes[path]; p != nil {
		return p
	}
	p := &probe{since: s.clock.Now(), done: make(chan struct{})}
	s.probes[path] = p
	go s.examine(path, p)
	return p
}

func (s *scanner) examine(path string, p *probe) {
	record := s.scan(map[string]string{path: path})[path]
	s.mu.Lock()
	now := s.clock.Now()
	s.answers[path] = answer{record, now, now.Sub(p.since) > scanPatience}
	delete(s.probes, path)
	given := p.given
	s.mu.Unlock()
	close(p.done)
	if given {
		s.late()
	}
}

// patientDisks are Disks that never block for long: neither in a scan nor in a write.
type patientDisks struct {
	Disks
	scanner *scanner
	writes  *writes
}

func (d patientDisks) Scan(paths map[string]string) map[string]disk.Record {
	return d.scanner.Scan(paths).Records
}

func (d patientDisks) CreateConfig(record disk.Record, config disk.Config) error {
	return d.writes.do(record.Path, func() error { return d.Disks.CreateConfig(record, config) })
}

func (d patientDisks) WriteClaim(record disk.Record, claim int64) error {
	return d.writes.do(record.Path, func() error { return d.Disks.WriteClaim(record, claim) })
}

// writes are the writes of UUID files. A frozen disk may answer a scan but not a write. Then the caller leaves the
// write running, as it leaves a scan, and no second write starts before the first has returned. The first may still
// succeed, which the next scan shows. The same applies to the write of a process that was killed.
type writes struct {
	clock clock.WithTicker
	late  func() // called when a write has returned for which no caller waited

	mu    sync.Mutex
	paths map[string]bool // guarded by mu; the paths with a running write
}

var errWriteHangs = errors.New("a write to the disk has not returned yet; check whether its device hangs")

// do waits for a write, for scanPatience at the most.
func (w *writes) do(path string, write func() error) error {
	if !w.begin(path) {
		return errWriteHangs
	}
	done, left := make(chan error), make(chan struct{})
	go func() {
		err := write()
		w.end(path)
		select {
		case done <- err:
		case <-left:
			w.late()
		}
	}()
	timer := w.clock.NewTimer(scanPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C():
		close(left)
		return errWriteHangs
	}
}

// begin reports whether no write to the path is under way, and if so records this one.
func (w *writes) begin(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paths[path] {
		return false
	}
	w.paths[path] = true
	return true
}

func (w *writes) end(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.paths, path)
}
