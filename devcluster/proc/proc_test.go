package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 98765 111 222"
	for name, c := range map[string]struct {
		line  string
		ticks uint64
		state byte
		fails bool
	}{
		"plain command → fields 3 and 22":                  {line: "17 (sleep)" + tail, ticks: 98765, state: 'S'},
		"command with space and parenthesis → same fields": {line: "17 (a) b (c)" + tail, ticks: 98765, state: 'S'},
		"line without command → error":                     {line: "17 sleep S 1", fails: true},
		"line cut off → error":                             {line: "17 (sleep) S 1 2", fails: true},
		"start time that is no number → error":             {line: "17 (x) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 later 1", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			ticks, state, err := parseStat(c.line)
			require.Equal(t, c.fails, err != nil, err)
			assert.Equal(t, c.ticks, ticks)
			assert.Equal(t, c.state, state)
		})
	}
}

func startSleep(t *testing.T) (*exec.Cmd, Record) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	r, err := Of(cmd.Process.Pid)
	require.NoError(t, err)
	return cmd, r
}

func TestKillEndsTheRecordedProcess(t *testing.T) {
	_, r := startSleep(t)
	require.True(t, r.IsAlive(), "a started process is not alive")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, r.Kill(ctx))
	assert.False(t, r.IsAlive(), "alive after kill")
	assert.NoError(t, r.Kill(ctx), "second kill")
}

func TestKillSparesAProcessThatDoesNotMatch(t *testing.T) {
	cmd, r := startSleep(t)
	ctx := context.Background()
	for name, other := range map[string]Record{
		"another start time → spared": {PID: r.PID, StartTicks: r.StartTicks + 1, BootID: r.BootID},
		"another boot → spared":       {PID: r.PID, StartTicks: r.StartTicks, BootID: "before"},
		"no process → nothing":        {},
	} {
		t.Run(name, func(t *testing.T) {
			assert.False(t, other.IsAlive(), "record of another process is alive")
			assert.NoError(t, other.Kill(ctx))
			assert.True(t, r.IsAlive(), "killed a process that the record does not name")
		})
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// An id stays in use while a group or a thread has it, even if no process does.
func TestKillOfAnIDThatIsNoProcess(t *testing.T) {
	t.Run("the leader of a group ended, its child did not → done", func(t *testing.T) {
		leader := exec.Command("sh", "-c", "sleep 60 & echo $!")
		leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := leader.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, leader.Start())
		r, err := Of(leader.Process.Pid)
		require.NoError(t, err)
		var child int
		_, err = fmt.Fscan(out, &child)
		require.NoError(t, err)
		_ = leader.Wait()
		assert.NoError(t, r.Kill(t.Context()))
		require.NoError(t, syscall.Kill(child, 0), "killed the child of the process that is gone")
		require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
	})
	t.Run("a thread has the id → done", func(t *testing.T) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ids := make(chan int)
		end := make(chan struct{})
		defer close(end)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ids <- syscall.Gettid()
			<-end
		}()
		id := <-ids
		if id == os.Getpid() {
			t.Skip("the runtime gave its first thread")
		}
		assert.NoError(t, Record{PID: id, StartTicks: 1, BootID: "before"}.Kill(t.Context()))
	})
}

func TestKillOfAProcessThatDoesNotEnd(t *testing.T) {
	r, err := Of(os.Getpid())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fdErr := waitGoneOfSelf(ctx, r)
	assert.ErrorIs(t, fdErr, ErrStillRunning)
}

func TestWaitForReturnsTheLastError(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	cause := errors.New("not yet")
	err := WaitFor(ctx, time.Millisecond, "a thing", func() error { return cause })
	assert.ErrorIs(t, err, cause)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}
