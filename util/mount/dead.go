package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// ErrStuck means that the kernel did not come back from an act in time. The act goes
// on, and may yet succeed.
var ErrStuck = errors.New("no answer in time")

// limits are how long acts on one path may take. The kubelet gives a whole call two
// minutes.
type limits struct {
	// look and probe only read; unmount flushes what was written; detach flushes
	// nothing, because there is nowhere to flush to.
	look, probe, unmount, detach time.Duration
	// mount is for a network file system; connect is the part of it until a server is found.
	mount, connect time.Duration
}

var defaultLimits = limits{
	look: 10 * time.Second, probe: 5 * time.Second, unmount: 80 * time.Second, detach: 10 * time.Second,
	mount: 60 * time.Second, connect: 5 * time.Second,
}

// deadErrnos are what a device answers that nothing serves any more: its process has
// ended, or its backing file went away.
var deadErrnos = []error{syscall.EIO, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.ENOENT}

// IsDead tells whether a block device answers reads with errors, for certain. A device
// that does not answer in time is not dead: it may be waiting for something.
func (s *System) IsDead(device string) bool {
	_, err := bounded(&s.stuck, "probing "+device, s.limits.probe, func() (struct{}, error) { return struct{}{}, s.files.Probe(device) })
	for _, errno := range deadErrnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Detach removes whatever is mounted at a path, however often, although its device is
// dead: where the kernel refuses to unmount (a process still has a file open) or hangs,
// Detach takes the mount out of the table all the same. It must not be used on a live
// device: what was written could be flushed after the caller believes it unmounted. It
// looks at the mount table alone, for looking at the path may hang too.
func (s *System) Detach(path string) error {
	var last error
	for range maxStacked {
		listed, err := s.isListed(path)
		if err != nil || !listed {
			return err
		}
		if last = s.unmountOnce(path, s.limits.detach); last == nil {
			continue
		}
		_, last = bounded(&s.stuck, "detaching "+path, s.limits.detach, func() (struct{}, error) { return struct{}{}, s.files.Detach(path) })
	}
	return fmt.Errorf("detaching %s: still mounted after %d times: %w", path, maxStacked, last)
}

// isListed tells whether the mount table has a mount at a path. It follows links in the
// path except in its last element, where the mount is.
func (s *System) isListed(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // without the directory there is no mount in it
	case err != nil:
		return false, fmt.Errorf("looking for %s in the mount table: %w", path, err)
	}
	resolved := filepath.Join(parent, filepath.Base(path))
	points, err := s.mounter.List()
	if err != nil {
		return false, fmt.Errorf("reading the mount table: %w", err)
	}
	for _, p := range points {
		if p.Path == resolved {
			return true, nil
		}
	}
	return false, nil
}

func (s *System) unmountOnce(path string, limit time.Duration) error {
	_, err := bounded(&s.stuck, "unmounting "+path, limit, func() (struct{}, error) { return struct{}{}, s.mounter.Unmount(path) })
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}

// stuckActs are the acts that the kernel holds on to. There is one at most for each
// text: the next call with it learns at once that the first one has not returned.
type stuckActs struct {
	mu sync.Mutex
	// acts is guarded by mu.
	acts map[string]bool
}

// bounded lets act take no longer than limit. Nothing can end a thread that the kernel
// holds, so nothing waits for the goroutine of a late act: stuck remembers it until it
// returns, and its result is dropped.
func bounded[T any](stuck *stuckActs, what string, limit time.Duration, act func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if stuck.holds(what) {
		return none, fmt.Errorf("%s: an earlier try has not returned: %w", what, ErrStuck)
	}
	done := make(chan result, 1)
	go func() {
		value, err := act()
		done <- result{value, err}
		stuck.forget(what)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
	}
	stuck.mu.Lock()
	defer stuck.mu.Unlock()
	select {
	case r := <-done: // it has just come back, and may have been forgotten already
		return r.value, r.err
	default:
	}
	if stuck.acts == nil {
		stuck.acts = map[string]bool{}
	}
	stuck.acts[what] = true
	return none, fmt.Errorf("%s for %s: %w", what, limit, ErrStuck)
}

// holds tells whether the kernel holds on to an act.
func (s *stuckActs) holds(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acts[what]
}

func (s *stuckActs) forget(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.acts, what)
}
