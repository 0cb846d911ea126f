package fuse

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxWaiting is the largest number of readers that wait. A reader serves the request that it read, so another reader
// must wait for the next request at that time. With two, the other reader usually waits already, and need not be
// started.
const maxWaiting = 2

// warm is how long a reader waits in a thread of its own. This wait is cheaper than Go's poller, which is used for an
// idle connection.
const warm = 10 * time.Millisecond

// read is a reader. It takes a request, ensures that another reader waits, and serves the request. Then it repeats
// this, unless enough other readers wait by then. So a request that hangs does not prevent the reading of another
// request. A reader takes a buffer when there is something to read, and returns it if the request was short. So an idle
// connection has neither a buffer nor a thread.
//
// A reader waits warm after it has served a request. A new reader starts warm if the reader that started it was waiting
// warm, because then requests come one after the other. When the first request comes to a connection at rest, the
// second reader rests in Go's poller.
func (s *Server) read(w *waiter, isWarm bool) {
	for w != nil {
		r, wasWarm, ok := s.next(w, isWarm)
		if !ok {
			break
		}
		s.handOver(w, wasWarm)
		if left := s.handle(r); left {
			return // another goroutine answers, and takes the place of this one in the count
		}
		w, isWarm = s.takeWaiter(), true
	}
	s.readers.Done()
}

// next returns the next request, and whether the reader was warm when it came. If ok is false, the reader must end.
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
			// Only one reader at a time comes here: a new reader, or the last reader that waits.
			if err := s.poll.awaitAtRest(); err != nil {
				s.stopFor(fmt.Errorf("wait for a FUSE request: %w", err))
			}
			isWarm, wasWarm = true, false
		case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ECONNABORTED):
			s.stopFor(nil)
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOENT): // ENOENT: its caller abandoned it before it was read
		case errors.Is(err, unix.ENOMEM): // no buffer at present; the kernel keeps the request
			time.Sleep(100 * time.Millisecond)
		default:
			s.stopFor(fmt.Errorf("read a FUSE request: %w", err))
		}
	}
	return request{}, false, false
}

// waitWarm waits for something to read. It returns false if no reader has taken a request for some time.
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

// takeWaiter turns the caller into a reader that waits. It returns nil if enough other readers wait.
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

// retire returns a waiter, unless no other reader waits.
func (s *Server) retire(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.spare) == maxWaiting-1 {
		return false
	}
	s.spare = append(s.spare, w)
	return true
}

// handOver is called by a reader that has taken a request. It returns the reader's waiter, or gives it to a new reader
// if no other reader waits.
func (s *Server) handOver(w *waiter, isWarm bool) {
	s.taken.Add(1)
	if s.retire(w) {
		return
	}
	s.readers.Add(1)
	go s.read(w, isWarm)
}
