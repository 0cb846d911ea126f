package holder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Holder and serving process die at once, with data in the page cache of the device, and in the middle of a removal
// that writes such data back. Nothing hangs, and the loop device is free. For NBD devices,
// TestTheNextHolderEndsWhatOneThatDiedHasLeft tests this: the holder does not have them open.
func TestADeviceIsFreedWhenHolderAndServingProcessDieTogether(t *testing.T) {
	for _, removing := range []bool{false, true} {
		name := "in peace"
		if removing {
			name = "during a removal"
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.serving(0)
			resume := r.disk.pause() // so that the data stays in the cache
			defer resume()
			file, err := os.OpenFile(r.path(), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.Write(make([]byte, 8<<20))
			require.NoError(t, err)
			require.NoError(t, file.Close()) // the holder also has it open, so this writes nothing back
			if removing {
				require.NoError(t, syscall.Kill(s.PID, syscall.SIGTERM))
				awaitThreadsInKernel(t, r.holder.Process.Pid)
			}
			// The holder does not notice the death of the serving process.
			require.NoError(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGSTOP))
			require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
			require.NoError(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGKILL))
			r.awaitEnd()
			r.expectNothingLeft(s.Devices[0], true)
		})
	}
}

// awaitThreadsInKernel waits until a thread of a process waits for I/O.
func awaitThreadsInKernel(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		states, err := filepath.Glob(filepath.Join("/proc", itoa(pid), "task/*/stat"))
		require.NoError(t, err)
		for _, path := range states {
			b, _ := os.ReadFile(path)
			if _, after, _ := strings.Cut(string(b), ") "); strings.HasPrefix(after, "D") {
				return
			}
		}
		time.Sleep(10 * time.Millisecond) // there is no event to wait for
	}
	t.Fatal("the removal does not write back")
}

// The serving process dies at a step of an operation. The next one gets the device, or creates it, and no incomplete
// parts are left.
func TestTheServingProcessMayDieAtAnyStep(t *testing.T) {
	for _, step := range []string{"start", "before-attach", "during-attach", "after-attach"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, "die-"+step)
			s := r.serving(0)
			assert.Equal(t, 1, s.Restarts)
			r.expectWorks()
			require.NoError(t, r.terminate())
			r.expectNothingLeft(s.Devices[0], false)
		})
	}
	for _, step := range []string{"start", "before-adopt", "during-adopt", "after-adopt"} {
		t.Run(step+" of a successor", func(t *testing.T) {
			r := newRig(t)
			s := r.serving(0)
			r.flag("die-" + step)
			require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
			s = r.until("the second successor", func(s Status) bool { return s.Ready && s.Restarts == 2 })
			r.expectWorks()
			require.NoError(t, r.terminate())
			r.expectNothingLeft(s.Devices[0], false)
		})
	}
	for _, step := range []string{"before-detach", "during-detach", "after-detach"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t)
			s := r.serving(0)
			r.flag("die-" + step)
			require.NoError(t, syscall.Kill(s.PID, syscall.SIGTERM)) // it exits in order, and the holder continues
			next := r.serving(s.PID)
			r.expectWorks()
			require.NoError(t, r.terminate())
			r.expectNothingLeft(next.Devices[0], false)
		})
	}
}

// expectWorks writes and reads the device.
func (r *rig) expectWorks() {
	r.t.Helper()
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	require.NoError(r.t, err)
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, blockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(r.t, err)
	u := &user{t: r.t, fd: fd, seqs: make([]uint64, 1), page: page}
	_, err = unix.Pwrite(fd, page, 0)
	require.NoError(r.t, err)
	u.check(0)
}

// A thread of the serving process waits for an answer that this process would have to give. The process is killed. Its
// devices are aborted, because it would never exit otherwise.
func TestAProcessThatHangsInItsOwnDeviceLosesItAndASuccessorStarts(t *testing.T) {
	r := newRig(t, "write-own-device")
	resume := r.disk.pause()
	defer resume()
	s := r.serving(0)
	awaitThreadsInKernel(t, s.PID)
	require.NoError(t, os.Remove(filepath.Join(r.dir, "write-own-device")))
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	next := r.serving(s.PID) // with a new device
	resume()
	r.expectWorks()
	assert.Contains(t, r.holder.Stderr.(*logWriter).String(), "hangs in the kernel", "the holder does not say why")
	require.NoError(t, r.terminate())
	r.expectNothingLeft(next.Devices[0], false)
}

// A separate thread, with none of the device's descriptors, waits for the device of its own process. That process is
// killed. Its successor gets the same device, and answers the thread.
func TestAThreadAsideWaitsForTheSuccessor(t *testing.T) {
	r := newRig(t, "write-own-device-aside")
	resume := r.disk.pause()
	defer resume()
	s := r.serving(0)
	awaitThreadsInKernel(t, s.PID)
	require.NoError(t, os.Remove(filepath.Join(r.dir, "write-own-device-aside")))
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	next := r.serving(s.PID)
	assert.Equal(t, next.Devices[0].Connection, s.Devices[0].Connection, "another device")
	_, err := os.Stat(filepath.Join("/proc", itoa(s.PID), "task"))
	assert.NoError(t, err, "the thread did not wait")
	resume()
	r.expectWorks()
	awaitReaped(t, s.PID)
	require.NoError(t, r.terminate())
	r.expectNothingLeft(next.Devices[0], false)
}

// awaitReaped waits until nothing is left of a process that was killed: each of its threads has its answer, and the
// holder has reaped it.
func awaitReaped(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if _, err := os.Stat(filepath.Join("/proc", itoa(pid))); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond) // another process is its parent
	}
	t.Errorf("process %d is never reaped", pid)
}

// The same test, with the holder killed as well: no process will answer, and the kernel reports this to the thread.
func TestAThreadAsideEndsWithHolderAndServingProcess(t *testing.T) {
	r := newRig(t, "write-own-device-aside")
	resume := r.disk.pause()
	defer resume()
	s := r.serving(0)
	awaitThreadsInKernel(t, s.PID)
	require.NoError(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGKILL))
	r.awaitEnd()
	r.expectNothingLeft(s.Devices[0], true)
}

// A replacement serves when it is ready, and stays. The holder undoes a replacement that does not become ready. Users
// of the device notice neither.
func TestReplace(t *testing.T) {
	r := newRig(t)
	s := r.serving(0)
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0) // a user throughout
	require.NoError(t, err)
	defer unix.Close(fd)
	replace := func(executable, sum string) error {
		f, err := os.Open(executable)
		require.NoError(t, err)
		defer f.Close()
		if sum == "" {
			h := sha256.New()
			_, err = io.Copy(h, f)
			require.NoError(t, err)
			sum = hex.EncodeToString(h.Sum(nil))
		}
		return Replace(t.Context(), r.control(), f, "two", sum)
	}
	require.NoError(t, replace(os.Args[0], ""))
	next := r.serving(s.PID)
	assert.Equal(t, "two", next.Version)
	assert.Zero(t, next.Restarts)
	assert.Contains(t, next.Replacement, "two is serving", "after a replacement")
	r.expectWorks()

	script := filepath.Join(r.dir, "script")
	for _, tc := range []struct{ name, text, sum, want string }{
		{"its sum is another", "", strings.Repeat("0", 64), "SHA-256"},
		{"it fails the check", "#!/bin/sh\nexit 1\n", "", "check the executable"},
		{"it dies young", "#!/bin/sh\n[ \"$1\" = check ]\n", "", "failed: exit status 1"},
		{"it does not become ready", "#!/bin/sh\n[ \"$1\" = check ] || exec sleep 100\n", "", "not ready in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(script, []byte(tc.text), 0o700))
			assert.ErrorContains(t, replace(script, tc.sum), tc.want)
			s := r.serving(0)
			assert.Equal(t, "two", s.Version)
			assert.Zero(t, s.Restarts)
			r.expectWorks()
		})
	}
	t.Run("another is on trial", func(t *testing.T) {
		require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = check ] || exec sleep 100\n"), 0o700))
		outcomes := make(chan error, 2)
		for range 2 {
			go func() { outcomes <- replace(script, "") }()
		}
		busy, other := <-outcomes, <-outcomes
		assert.ErrorIs(t, busy, ErrBusy)
		assert.NotErrorIs(t, other, ErrBusy)
		assert.Error(t, other)
		r.expectWorks()
	})
	left, _ := filepath.Glob(filepath.Join(r.dir, "programs", "serve-*"))
	assert.Len(t, left, 1)
	info, err := os.Stat(r.control())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the control socket: %v", info.Mode())
	_ = unix.Close(fd)
	require.NoError(t, r.terminate())
}

// At first a successor cannot even be started. The device waits with its users until a start succeeds.
func TestASuccessorThatCannotBeStartedIsTriedAgain(t *testing.T) {
	r := newRig(t)
	s := r.serving(0)
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0) // a user throughout
	require.NoError(t, err)
	defer unix.Close(fd)
	program := filepath.Join(r.dir, "program")
	require.NoError(t, os.Rename(program, program+".away"))
	require.NoError(t, syscall.Kill(s.PID, syscall.SIGKILL))
	r.until("a second try", func(now Status) bool { return now.PID == 0 && now.Restarts > s.Restarts+2 })
	require.NoError(t, os.Rename(program+".away", program))
	next := r.serving(s.PID)
	assert.Equal(t, next.Devices[0].Connection, s.Devices[0].Connection, "another device")
	r.expectWorks()
	assert.Contains(t, r.holder.Stderr.(*logWriter).String(), "start of the serving process failed", "the holder does not say why")
	_ = unix.Close(fd)
	require.NoError(t, r.terminate())
	r.expectNothingLeft(next.Devices[0], false)
}

// The executable of a replacement has disappeared when the holder must start it again. Then the program before the
// replacement serves.
func TestAReplacementWhoseExecutableIsGoneIsFollowedByTheFirst(t *testing.T) {
	r := newRig(t)
	s := r.serving(0)
	f, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	require.NoError(t, err)
	require.NoError(t, Replace(t.Context(), r.control(), f, "two", hex.EncodeToString(sum.Sum(nil))))
	two := r.serving(s.PID)
	require.Equal(t, "two", two.Version)
	removeCopies(filepath.Join(r.dir, "programs"))
	require.NoError(t, syscall.Kill(two.PID, syscall.SIGKILL))
	next := r.serving(two.PID)
	assert.Equal(t, "one", next.Version)
	assert.Equal(t, s.Devices[0].Connection, next.Devices[0].Connection)
	r.expectWorks()
	require.NoError(t, r.terminate())
}

func TestRestartsOfAProcess(t *testing.T) {
	dir := t.TempDir()
	once := filepath.Join(dir, "once")
	require.NoError(t, os.WriteFile(once, []byte("#!/bin/sh\nrm "+once+"\nexit 7\n"), 0o700))
	for _, tc := range []struct {
		name, program string
		deaths        int
	}{
		{"the first cannot be started → given up at once", filepath.Join(dir, "missing"), 1 << 30},
		{"a later one cannot be started → given up when that came too often", once, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Run(t.Context(), Options{Command: []string{tc.program}, limits: limits{deaths: tc.deaths, backoff: time.Millisecond}})
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// A process dies repeatedly. The holder stops starting it, and exits with its code.
func TestAProcessThatDiesTooOftenEndsTheHolder(t *testing.T) {
	err := Run(t.Context(), Options{Command: []string{"/bin/sh", "-c", "exit 7"}, limits: limits{deaths: 3, backoff: time.Millisecond}})
	var exit *ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.Code)
	assert.Contains(t, exit.Reason, "too often")
}
