package ganesha

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheStateOfAProcess(t *testing.T) {
	for text, suspended := range map[string]bool{
		"17 (ganesha.nfsd) S 1 17":    false,
		"17 (ganesha.nfsd) D 1 17":    false,
		"17 (ganesha.nfsd) Z 1 17":    false,
		"17 (ganesha.nfsd) T 1 17":    true,
		"17 (ganesha.nfsd) t 1 17":    true,
		"17 (a) T (b\n) S 1 17":       false,
		"17 (a) S (b) T 1 17":         true,
		"17 (ganesha.nfsd)":           false,
		"17 (ganesha.nfsd) ":          false,
		"17 (ganesha.nfsd":            false,
		"":                            false,
		"17 (ganesha.nfsd) I 1 17 17": false,
	} {
		assert.Equal(t, suspended, isSuspended([]byte(text)), text)
	}
}

// sleeper is a server that is only a process.
func sleeper(t testing.TB) *Server {
	cmd := exec.Command("sleep", "3600")
	require.NoError(t, cmd.Start())
	s := &Server{process: cmd.Process, state: openState(cmd.Process.Pid, logrus.NewEntry(logrus.New())), done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.Kill()
		<-s.done
		_ = s.state.Close()
	})
	return s
}

func TestAProcessIsSuspendedUntilItContinues(t *testing.T) {
	s := sleeper(t)
	is := func(suspended bool) {
		t.Helper()
		require.Eventually(t, func() bool { return s.IsSuspended() == suspended }, time.Minute, time.Millisecond)
	}
	is(false)
	require.NoError(t, s.signal(syscall.SIGSTOP))
	is(true)
	require.NoError(t, s.signal(syscall.SIGCONT))
	is(false)
	require.NoError(t, s.signal(syscall.SIGSTOP))
	is(true)
	require.NoError(t, s.Kill(), "it ends all the same")
	<-s.done
	assert.False(t, s.IsSuspended(), "the process is gone")
}

func TestAServerWithoutAStateCountsAsRunning(t *testing.T) {
	assert.False(t, (&Server{state: openState(os.Getpid(), nil)}).IsSuspended())
	assert.False(t, (&Server{}).IsSuspended())
}

// BenchmarkIsSuspended measures what a share manager does four times a second.
func BenchmarkIsSuspended(b *testing.B) {
	s := sleeper(b)
	for b.Loop() {
		if s.IsSuspended() {
			b.Fatal("it is suspended")
		}
	}
}
