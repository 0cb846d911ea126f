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

// ErrStuck means that a call did not return from the kernel in time. The call continues, and may yet succeed.
var ErrStuck = errors.New("the call did not return in time")

// limits are how long calls on one path may take. The kubelet gives a whole request two minutes.
type limits struct {
	// look and probe only read. unmount flushes written data. detach flushes nothing, because no device can take the
	// data.
	look, probe, unmount, detach time.Duration
	// mount is for a network file system; connect is the part of it until a server answers.
	mount, connect time.Duration
}

var defaultLimits = limits{
	look: 10 * time.Second, probe: 5 * time.Second, unmount: 80 * time.Second, detach: 10 * time.Second,
	mount: 60 * time.Second, connect: 5 * time.Second,
}

// deadErrnos are the errors of a device without a server: its process has exited, or its backing file is gone.
var deadErrnos = []error{syscall.EIO, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.ENOENT}

// IsDead reports whether a block device certainly returns errors from reads. A device that does not answer in time is
// not dead: it may be waiting for something.
func (s *System) IsDead(device string) bool {
	_, err := runBounded(&s.stuck, "probing "+device, s.limits.probe, func() (struct{}, error) { return struct{}{}, s.files.Probe(device) })
	for _, errno := range deadErrnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Detach removes all mounts at a path, although their device is dead. If the kernel refuses to unmount (a process still
// has a file open) or hangs, Detach removes the mount from the table nevertheless. It must not be used on a live
// device: written data could be flushed after the caller believes that the device is unmounted. It reads only the mount
// table, because access to the path may hang, too.
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
		_, last = runBounded(&s.stuck, "detaching "+path, s.limits.detach, func() (struct{}, error) { return struct{}{}, s.files.Detach(path) })
	}
	return fmt.Errorf("detaching %s: still mounted after %d attempts: %w", path, maxStacked, last)
}

// isListed reports whether the mount table has a mount at a path. It follows links in the path except in its last
// element, where the mount is.
func (s *System) isListed(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // without the directory there cannot be a mount in it
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
	_, err := runBounded(&s.stuck, "unmounting "+path, limit, func() (struct{}, error) { return struct{}{}, s.mounter.Unmount(path) })
	if err != nil {
		return fmt.Errorf("unmounting %s: %w", path, err)
	}
	return nil
}

// stuckCalls are the calls that have not returned from the kernel. There is at most one for each text: the next call
// with the same text learns at once that the first one has not returned.
type stuckCalls struct {
	mu sync.Mutex
	// calls is guarded by mu.
	calls map[string]bool
}

// runBounded lets act take no longer than limit. A thread that waits in the kernel cannot be stopped, so no caller
// waits for the goroutine of a late act. stuck remembers it until it returns, and its result is dropped.
func runBounded[T any](stuck *stuckCalls, what string, limit time.Duration, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if stuck.holds(what) {
		return none, fmt.Errorf("%s: an earlier attempt has not returned: %w", what, ErrStuck)
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
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
	case r := <-done: // it has just returned, and may have been forgotten already
		return r.value, r.err
	default:
	}
	if stuck.calls == nil {
		stuck.calls = map[string]bool{}
	}
	stuck.calls[what] = true
	return none, fmt.Errorf("%s: %w: the limit is %s", what, ErrStuck, limit)
}

// holds reports whether an act has not returned from the kernel.
func (s *stuckCalls) holds(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[what]
}

func (s *stuckCalls) forget(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, what)
}
