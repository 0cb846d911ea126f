package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

// fakeServer exits when it gets a signal.
type fakeServer struct {
	done     chan struct{}
	signals  []syscall.Signal
	stubborn bool // does not exit on request
	stuck    bool // does not even exit when killed
	hangs    atomic.Bool
	halted   atomic.Bool // its process is suspended
	half     atomic.Bool // it answers NULL, and no lookup
	busy     atomic.Bool // it answers a lookup with NFS4ERR_DELAY
}

func (f *fakeServer) Ended() <-chan struct{} { return f.done }
func (f *fakeServer) Why() error             { return errors.New("it was told to") }

func (f *fakeServer) IsSuspended() bool { return f.halted.Load() }

func (f *fakeServer) Terminate() error {
	f.signals = append(f.signals, syscall.SIGTERM)
	if !f.stubborn {
		close(f.done)
	}
	return nil
}

func (f *fakeServer) Kill() error {
	f.signals = append(f.signals, syscall.SIGKILL)
	if !f.stuck {
		close(f.done)
	}
	return nil
}

// world is everything that a supervisor controls.
type world struct {
	*supervisor
	servers  []*fakeServer
	current  atomic.Pointer[fakeServer] // the last of servers
	startErr error
	failing  atomic.Pointer[error]
	sized    atomic.Int64
	grown    atomic.Int64
	// lastGrown is the reported result of the last growth.
	lastGrown atomic.Pointer[error]
	mu        sync.Mutex
	served    []bool       // guarded by mu
	skipped   atomic.Int64 // time in which this process was paused
}

func newWorld() *world {
	w := &world{}
	begin := time.Now()
	ask := func(context.Context) error {
		if w.current.Load().hangs.Load() {
			time.Sleep(2 * time.Second)
			return errTest
		}
		return nil
	}
	lookup := func(ctx context.Context) error {
		switch f := w.current.Load(); {
		case f.half.Load():
			time.Sleep(2 * time.Second)
			return errTest
		case f.busy.Load():
			return fmt.Errorf("asking: %w", nfsclient.StatusDelay)
		}
		return ask(ctx)
	}
	w.supervisor = &supervisor{
		watch: watch{t: defaultTiming(15 * time.Second)},
		now:   func() time.Duration { return time.Hour + time.Since(begin) + time.Duration(w.skipped.Load()) },
		start: func() (server, error) {
			if w.startErr != nil {
				return nil, w.startErr
			}
			f := &fakeServer{done: make(chan struct{})}
			w.servers = append(w.servers, f)
			w.current.Store(f)
			return f, nil
		},
		lookup: lookup, null: ask,
		check: func(bool) error {
			if err := w.failing.Load(); err != nil {
				return *err
			}
			return nil
		},
		size:  func() (int64, error) { return w.sized.Load(), nil },
		grown: func(err error) { w.lastGrown.Store(&err) },
		grow: func() error {
			w.grown.Add(1)
			return nil
		},
		serving:   w.serves,
		afterStep: func() {},
		log:       quiet(),
	}
	return w
}

// serves stores the reported or observed values.
func (w *world) serves(served bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served = append(w.served, served)
}

// during runs the supervisor while f acts, and returns its result.
func (w *world) during(t *testing.T, f func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	f()
	cancel()
	return <-ended
}

func TestSupervisor(t *testing.T) {
	for _, c := range []struct {
		name    string
		during  func(w *world)
		err     error
		servers int
		served  []bool
	}{
		{"all is well → one server", func(*world) { time.Sleep(time.Minute) }, nil, 1, []bool{true, false}},
		{"the server dies → another one", func(w *world) {
			time.Sleep(time.Minute)
			_ = w.current.Load().Kill()
			time.Sleep(time.Minute)
		}, nil, 2, []bool{true, false, true, false}},
		{"the server dies young → another one, and it is one death", func(w *world) {
			time.Sleep(2 * time.Second)
			_ = w.current.Load().Kill()
			time.Sleep(time.Minute)
		}, nil, 2, []bool{true, false, true, false}},
		{"the server hangs → it is killed, another one", func(w *world) {
			time.Sleep(time.Minute)
			w.current.Load().hangs.Store(true)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			w.serves(len(w.servers) == 2)
		}, nil, 2, []bool{true, false, true, true, false}},
		{"the server is suspended → it is killed at once, another one", func(w *world) {
			time.Sleep(time.Minute)
			w.current.Load().halted.Store(true)
			time.Sleep(350 * time.Millisecond)
			synctest.Wait()
			w.serves(len(w.servers) == 2)
			time.Sleep(time.Second)
		}, nil, 2, []bool{true, false, true, true, false}},
		{"the server is suspended for a moment → it is left alone", func(w *world) {
			for range 60 {
				time.Sleep(905 * time.Millisecond)
				w.current.Load().halted.Store(true)
				time.Sleep(99 * time.Millisecond)
				w.current.Load().halted.Store(false)
			}
		}, nil, 1, []bool{true, false}},
		{"the server answers NULL and no lookup → it is killed, another one", func(w *world) {
			time.Sleep(time.Minute)
			w.current.Load().half.Store(true)
			time.Sleep(11 * time.Second)
			synctest.Wait()
			w.serves(len(w.servers) == 2)
		}, nil, 2, []bool{true, false, true, true, false}},
		{"the server that has answered is busy → it is left alone", func(w *world) {
			time.Sleep(time.Minute)
			w.current.Load().busy.Store(true)
			time.Sleep(time.Minute)
		}, nil, 1, []bool{true, false}},
		{"the volume fails → the end", func(w *world) {
			time.Sleep(time.Minute)
			err := error(syscall.EIO)
			w.failing.Store(&err)
			time.Sleep(4 * time.Second)
		}, syscall.EIO, 1, []bool{true, false}},
		{"this process stood still → the end", func(w *world) {
			time.Sleep(time.Minute)
			w.skipped.Store(int64(16 * time.Second))
			time.Sleep(time.Second)
		}, ErrStalled, 1, []bool{true, false}},
		{"it stood still for less than the lease → it goes on", func(w *world) {
			time.Sleep(time.Minute)
			w.skipped.Store(int64(13 * time.Second))
			time.Sleep(time.Second)
		}, nil, 1, []bool{true, false}},
		{"it stood still and was told to end meanwhile → no orderly end", func(w *world) {
			time.Sleep(time.Minute)
			w.skipped.Store(int64(16 * time.Second))
		}, ErrStalled, 1, []bool{true, false}},
		{"the server cannot be started → the end", func(w *world) {}, errTest, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				if c.servers == 0 {
					w.startErr = errTest
					c.during = func(*world) { synctest.Wait() }
				}
				err := w.during(t, func() { c.during(w) })
				assert.ErrorIs(t, err, c.err)
				assert.Len(t, w.servers, c.servers)
				assert.Equal(t, c.served, w.served)
			})
		})
	}
}

func TestTheFileSystemGrowsOnceForEachSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.sizeBytes = 100
		w.sized.Store(100)
		require.NoError(t, w.during(t, func() {
			time.Sleep(time.Minute)
			assert.Zero(t, w.grown.Load())
			w.sized.Store(200)
			time.Sleep(time.Minute)
			assert.EqualValues(t, 1, w.grown.Load())
		}))
	})
}

// A failed growth is tried again until it succeeds, at a pace that harms no other work.
func TestAFileSystemThatCouldNotGrowIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var failures atomic.Int64
		failures.Store(3)
		w.grow = func() error {
			w.grown.Add(1)
			if failures.Add(-1) >= 0 {
				return errTest
			}
			return nil
		}
		w.sized.Store(200)
		require.NoError(t, w.during(t, func() {
			time.Sleep(growRetry / 2)
			assert.EqualValues(t, 1, w.grown.Load(), "no sooner")
			assert.Error(t, *w.lastGrown.Load())
			time.Sleep(10 * growRetry)
			assert.EqualValues(t, 4, w.grown.Load(), "until it has grown")
			assert.NoError(t, *w.lastGrown.Load())
		}))
		assert.EqualValues(t, 200, w.sizeBytes)
	})
}

func TestStop(t *testing.T) {
	for _, c := range []struct {
		name            string
		stubborn, stuck bool
		request         time.Duration
		signals         []syscall.Signal
		took            time.Duration
	}{
		{"a server that ends when asked → asked", false, false, 10 * time.Second, []syscall.Signal{syscall.SIGTERM}, 0},
		{"one that does not → killed", true, false, 10 * time.Second, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, 10 * time.Second},
		{"one that cannot even be killed → left", true, true, 10 * time.Second, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, 12 * time.Second},
		{"no time to ask → killed", false, false, 0, []syscall.Signal{syscall.SIGKILL}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{done: make(chan struct{}), stubborn: c.stubborn, stuck: c.stuck}
				s := &supervisor{server: server, log: quiet()}
				begin := time.Now()
				s.stop(c.request, 2*time.Second)
				assert.Equal(t, c.signals, server.signals)
				assert.Equal(t, c.took, time.Since(begin))
			})
		})
	}
	(&supervisor{log: quiet()}).stop(time.Second, time.Second) // no server
}
