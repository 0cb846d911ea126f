package trim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/manager"
)

// rig has trims whose duration a test sets, in the simulated time of synctest.
type rig struct {
	*Trims
	began atomic.Int32
	mu    sync.Mutex
	ended []string // guarded by mu; the arguments of Ended
}

// told returns the arguments of the calls of Ended.
func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// newRig returns trims that call run; it must be called in a bubble of synctest.
func newRig(t *testing.T, run func(ctx context.Context) (int64, error)) *rig {
	t.Helper()
	r := &rig{}
	told := make(chan string)
	r.Trims = New(Options{
		Node: "node-1", Clock: clock.RealClock{},
		Run: func(ctx context.Context, _ string) (int64, error) {
			r.began.Add(1)
			return run(ctx)
		},
		Ended: func(_ context.Context, volume string, bytes int64, err error) {
			told <- fmt.Sprintf("%s %d %v", volume, bytes, err)
		},
	})
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for text := range told {
			r.mu.Lock()
			r.ended = append(r.ended, text)
			r.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		r.Close()
		r.running.Wait()
		close(told)
		<-collected
	})
	return r
}

// after returns a trim that takes this long, unless it is canceled.
func after(d time.Duration, n int64, err error) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		select {
		case <-time.After(d):
			return n, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func TestACallerGetsTheOutcome(t *testing.T) {
	refusal := &manager.Problem{Class: manager.ErrConflict, Text: "no"}
	for name, c := range map[string]struct {
		n    int64
		err  error
		told string
	}{
		"it succeeds": {4096, nil, "v 4096 <nil>"},
		"it fails":    {0, refusal, "v 0 no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, after(time.Second, c.n, c.err))
				isDone, err := r.Trim(t.Context(), "v")
				assert.True(t, isDone)
				assert.Equal(t, c.err, err)
				synctest.Wait()
				assert.Equal(t, []string{c.told}, r.told())
				assert.Empty(t, r.underWay)
			})
		})
	}
}

func TestALongTrimContinuesWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, after(10*time.Minute, 1, nil))
		isDone, err := r.Trim(t.Context(), "v")
		require.NoError(t, err)
		assert.False(t, isDone)
		leaving, leave := context.WithCancel(t.Context())
		leave()
		isDone, err = r.Trim(leaving, "v")
		require.NoError(t, err)
		assert.False(t, isDone, "a caller that leaves ends nothing")
		time.Sleep(10*time.Minute - Wait - time.Second)
		isDone, err = r.Trim(t.Context(), "v")
		require.NoError(t, err)
		assert.True(t, isDone, "a later caller is told of the one that is under way")
		synctest.Wait()
		assert.Equal(t, []string{"v 1 <nil>"}, r.told())
		assert.EqualValues(t, 1, r.began.Load(), "one trim for three callers")
	})
}

func TestTrimsAreBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, after(10*time.Minute, 1, nil))
		for i := range Limit {
			_, err := r.Trim(t.Context(), fmt.Sprint("v-", i))
			require.NoError(t, err)
		}
		_, err := r.Trim(t.Context(), "more")
		require.ErrorIs(t, err, manager.ErrUnavailable)
		assert.ErrorContains(t, err, `node "node-1" already trims 4 file systems`)
		_, err = r.Trim(t.Context(), "v-0")
		require.NoError(t, err, "one that is under way is no new one")
	})
}

func TestATrimThatTakesTooLongIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, after(2*Bound, 1, nil))
		_, err := r.Trim(t.Context(), "v")
		require.NoError(t, err)
		time.Sleep(Bound - Wait - time.Second)
		isDone, err := r.Trim(t.Context(), "v")
		assert.True(t, isDone)
		require.ErrorIs(t, err, manager.ErrUnavailable)
		assert.EqualError(t, err, `the trim of volume "v" did not finish within 1h0m0s and was stopped; the blocks that it trimmed stay trimmed`)
		synctest.Wait()
		assert.Empty(t, r.underWay)
	})
}

// TestATrimStuckInTheKernelBlocksNoCaller: a volume that does not answer blocks only its own process.
func TestATrimStuckInTheKernelBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		r := newRig(t, func(context.Context) (int64, error) { <-answers; return 0, errors.New("killed") })
		isDone, err := r.Trim(t.Context(), "v")
		require.NoError(t, err)
		assert.False(t, isDone)
		time.Sleep(Bound + grace)
		for range 2 {
			isDone, err = r.Trim(t.Context(), "v")
			assert.True(t, isDone)
			require.ErrorIs(t, err, manager.ErrUnavailable)
		}
		assert.EqualValues(t, 1, r.began.Load(), "no process waits beside it")
		assert.Len(t, r.told(), 1)
		began := time.Now()
		r.Close()
		assert.Equal(t, grace, time.Since(began), "nor does the daemon's end wait for the kernel")
		_, err = r.Trim(t.Context(), "other")
		require.ErrorIs(t, err, manager.ErrUnavailable, "the daemon is ending")
		close(answers)
		synctest.Wait()
		assert.Empty(t, r.underWay)
	})
}

func TestCloseEndsTrims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, after(10*time.Minute, 1, nil))
		_, err := r.Trim(t.Context(), "v")
		require.NoError(t, err)
		r.Close()
		synctest.Wait()
		assert.Equal(t, []string{`v 0 the daemon of node "node-1" is shutting down; try again`}, r.told())
	})
}

// TestErrorsOfAProcess: any output is handled.
func TestErrorsOfAProcess(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		n      int64
		class  error // nil: no Problem
		text   string
	}{
		"trimmed":                  {`echo '{"trimmedBytes":512}'`, 512, nil, ""},
		"nothing is mounted":       {`echo '{"trimmedBytes":0,"reason":"NotMounted","message":"m"}'`, 0, manager.ErrConflict, `volume "v" cannot be trimmed: no file system of the volume is mounted on node "node-1": either no pod uses the volume, or a pod uses it as a block device`},
		"there is no device":       {`echo '{"reason":"NoDevice","message":"m"}'`, 0, manager.ErrConflict, `volume "v" cannot be trimmed: it has no block device on node "node-1"`},
		"it cannot be trimmed":     {`echo '{"reason":"Unsupported","message":"m"}'`, 0, manager.ErrConflict, `volume "v" cannot be trimmed: its file system or its device does not support a trim`},
		"it is a block device":     {`echo '{"reason":"Bound","message":"m"}'`, 0, manager.ErrConflict, `volume "v" cannot be trimmed: pods on node "node-1" use it as a block device, so only these pods know its content`},
		"the device fails":         {`echo '{"message":"input/output error"}'`, 0, manager.ErrUnavailable, `volume "v" was not trimmed on node "node-1": input/output error`},
		"a reason of a later one":  {`echo '{"reason":"Moon","message":"full"}'`, 0, manager.ErrUnavailable, `volume "v" was not trimmed on node "node-1": full`},
		"the process fails":        {`echo why >&2; exit 3`, 0, nil, "trim volume v in a process: exit status 3: why\n"},
		"it says what is not JSON": {`echo ok`, 0, nil, "parse the output of the trim of volume v: invalid character 'o' looking for beginning of value"},
	} {
		t.Run(name, func(t *testing.T) {
			run := Process("node-1", "/host", func(volume string) string { return "/dev/longhorn/" + volume },
				"sh", "-c", `test "$1 $2" = "/host /dev/longhorn/v" || exit 9; `+c.script, "sh")
			n, err := run(t.Context(), "v")
			assert.Equal(t, c.n, n)
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.text)
			if c.class != nil {
				assert.ErrorIs(t, err, c.class)
			}
		})
	}
}

// TestAProcessEndsWithItsContext tests a process that ignores the request to stop.
func TestAProcessEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	run := Process("node-1", "/host", func(string) string { return "" },
		"sh", "-c", fmt.Sprintf("trap '' TERM INT; echo >/proc/%d/fd/%d; exec sleep 1000", os.Getpid(), write.Fd()), "sh")
	result := make(chan error, 1)
	go func() {
		_, err := run(ctx, "v")
		result <- err
	}()
	_, err = read.Read(make([]byte, 1)) // the process has started
	require.NoError(t, err)
	cancel()
	require.ErrorContains(t, <-result, "signal: killed")
	require.NoError(t, write.Close())
}

// TestProcessReadsTheOutputOfMain tests both ends of the pipe.
func TestProcessReadsTheOutputOfMain(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Main(&out, "/", "/dev/null"))
	assert.JSONEq(t, `{"trimmedBytes":0,"reason":"NoDevice","message":"the block device does not exist"}`, out.String())
}
