package fuse

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxWaiting is how many readers wait at most. A reader serves the request that it read, so another must wait for the next one meanwhile.
// With two, that one is usually there, and need not be started.
const maxWaiting = 2

// warm is how long a reader waits in a thread of its own. That is cheaper than Go's poller, to which an idle connection is left.
const warm = 10 * time.Millisecond

// read is a reader. It takes a request, sees to it that another reader waits, serves the request, and begins again, unless enough others
// wait by then. So no request that hangs keeps another one from being read. A buffer is taken when there is something to read, and given
// back when that was short: an idle connection has neither a buffer nor a thread.
//
// A reader waits warm after it has served a request, and begins so when another that waited warm needs it: then requests come one after the
// other. When the first request comes to a connection at rest, the second reader takes the place there.
func (s *Server) read(w *waiter, isWarm bool) {
	for w != nil {
		r, wasWarm, ok := s.next(w, isWarm)
		if !ok {
			break
		}
		s.handOver(w, wasWarm)
		if left := s.handle(r); left {
			return // another goroutine answers, and is counted in its place
		}
		w, isWarm = s.takeWaiter(), true
	}
	s.readers.Done()
}

// next returns the next request, and whether it was waited for warm, if at all; not ok: the reader is to end.
func (s *Server) next(w *waiter, isWarm bool) (r request, wasWarm, ok bool) {
	wasWarm = isWarm
	for !s.isStopping() {
		r, err := s.receive()
		switch {
		case err == nil:
			return r, wasWarm, true
		case errors.Is(err, unix.EAGAIN):
			if isWarm && s.waitWarm(w) {
				wasWarm = true
				continue
			}
			if isWarm && s.retire(w) {
				return request{}, false, false
			}
			// One reader at a time: a new one, or the last that waits.
			if err := s.poll.awaitAtRest(); err != nil {
				s.stopFor(fmt.Errorf("wait for a FUSE request: %w", err))
			}
			isWarm, wasWarm = true, false
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ECONNABORTED):
			s.stopFor(nil)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: given up by its caller before it was read
		case errors.Is(err, unix.ENOMEM): // no buffer, for now; the kernel keeps the request
			time.Sleep(100 * time.Millisecond)
		default:
			s.stopFor(fmt.Errorf("read a FUSE request: %w", err))
		}
	}
	return request{}, false, false
}

// waitWarm waits for something to read. It returns false when no reader has taken a request for some time.
func (s *Server) waitWarm(w *waiter) bool {
	for taken := s.taken.Load(); !w.wait(s.warm); {
		now := s.taken.Load()
		if now == taken {
			return false
		}
		taken = now
	}
	return true
}

// takeWaiter makes the caller a reader that waits; nil: enough others do.
func (s *Server) takeWaiter() *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.spare) - 1
	if last < 0 {
		return nil
	}
	w := s.spare[last]
	s.spare = s.spare[:last]
	return w
}

// retire gives a waiter back, unless no other reader waits.
func (s *Server) retire(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) == maxWaiting-1 {
		return false
	}
	s.spare = append(s.spare, w)
	return true
}

// handOver gives the waiter of a reader that has taken a request back, or to a new reader when no other waits.
func (s *Server) handOver(w *waiter, isWarm bool) {
	s.taken.Add(1)
	if s.retire(w) {
		return
	}
	s.readers.Add(1)
	go s.read(w, isWarm)
}
