package trust

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"
)

// server answers reads of a cachedRead with the value after a delay, or never if the delay is negative.
type server struct {
	takes time.Duration
	value string
	err   error
	reads int
}

func (s *server) cell() *cachedRead[string] {
	return &cachedRead[string]{
		clock: clock.RealClock{}, exists: func(v string) bool { return v != "" },
		read: func(ctx context.Context) (string, error) {
			s.reads++
			if s.takes < 0 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			select {
			case <-time.After(s.takes):
				return s.value, s.err
			case <-ctx.Done():
				return "", ctx.Err()
			}
		},
	}
}

// answer is the result that a caller got, and the time it took.
type answer struct {
	value string
	err   error
	took  time.Duration
}

// ask calls get of a cachedRead, and returns a channel for the answer.
func ask(ctx context.Context, c *cachedRead[string], fresh bool) <-chan answer {
	began, out := time.Now(), make(chan answer, 1)
	go func() {
		value, err := c.get(ctx, fresh)
		out <- answer{value, err, time.Since(began)}
	}()
	synctest.Wait()
	return out
}

// TestConcurrentCallersShareOneRead: concurrent callers share one read.
func TestConcurrentCallersShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: -1}
		c := s.cell()
		var waiting []<-chan answer
		for range 5 {
			waiting = append(waiting, ask(t.Context(), c, false))
		}
		for _, w := range waiting {
			assert.Equal(t, answer{"", context.DeadlineExceeded, readTimeout}, <-w)
		}
		assert.Equal(t, 1, s.reads)
		assert.Equal(t, answer{"", context.DeadlineExceeded, 0}, <-ask(t.Context(), c, false), "the failed read has only just ended")
		s.takes, s.value = time.Second, "value"
		time.Sleep(retryEvery)
		assert.Equal(t, answer{"value", nil, time.Second}, <-ask(t.Context(), c, false))
		assert.Equal(t, 2, s.reads)
	})
}

// TestTheOldValueIsReturnedDuringARead: the old value is also valid after a failed read, except for callers that
// request a fresh value.
func TestTheOldValueIsReturnedDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{value: "old"}
		c := s.cell()
		assert.Equal(t, answer{"old", nil, 0}, <-ask(t.Context(), c, false))
		time.Sleep(readEvery - time.Nanosecond)
		<-ask(t.Context(), c, false)
		assert.Equal(t, 1, s.reads, "it is recent")
		<-ask(t.Context(), c, true)
		assert.Equal(t, 2, s.reads, "it is not fresh")
		time.Sleep(retryEvery - time.Nanosecond)
		<-ask(t.Context(), c, true)
		assert.Equal(t, 2, s.reads, "it is fresh")
		time.Sleep(readEvery - retryEvery + time.Nanosecond)
		s.takes, s.value = -1, ""
		first, fresh := ask(t.Context(), c, false), ask(t.Context(), c, true)
		assert.Equal(t, answer{"old", nil, 0}, <-ask(t.Context(), c, false))
		assert.Equal(t, answer{"old", nil, readTimeout}, <-first)
		assert.Equal(t, answer{"old", nil, readTimeout}, <-fresh)
		assert.Equal(t, 3, s.reads)

		time.Sleep(retryEvery)
		assert.Equal(t, answer{"old", nil, 0}, <-ask(t.Context(), c, false), "the last read failed")
		assert.Equal(t, 4, s.reads, "it is tried again all the same")
		time.Sleep(readTimeout + retryEvery)
		s.takes, s.value = 0, "new"
		assert.Equal(t, answer{"new", nil, 0}, <-ask(t.Context(), c, true))
		assert.Equal(t, 5, s.reads)
		s.err = errors.New("broken")
		time.Sleep(readEvery)
		assert.Equal(t, answer{"new", nil, 0}, <-ask(t.Context(), c, false))
		assert.Equal(t, 6, s.reads)
	})
}

// TestACancelledCallerDoesNotCancelTheRead: other callers wait for the read.
func TestACancelledCallerDoesNotCancelTheRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 5 * time.Second, value: "value"}
		c := s.cell()
		leaving, leave := context.WithCancel(t.Context())
		first, second := ask(leaving, c, false), ask(t.Context(), c, false)
		time.Sleep(time.Second)
		leave()
		assert.Equal(t, answer{"", context.Canceled, time.Second}, <-first)
		assert.Equal(t, answer{"value", nil, 5 * time.Second}, <-second)
		assert.Equal(t, 1, s.reads)
	})
}
