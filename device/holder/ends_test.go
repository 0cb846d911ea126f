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

	"golang.org/x/sys/unix"
)

// Holder and serving process die at once, with data in the page cache of the device, and in the middle of a removal that writes such data
// back: nothing hangs, and the loop device is free.
func TestNothingHangsWhenHolderAndServingProcessDieAtOnce(t *testing.T) {
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
			must(t, err)
			_, err = file.Write(make([]byte, 8<<20))
			must(t, err)
			must(t, file.Close()) // the holder has it open as well, so this writes nothing back
			if removing {
				must(t, syscall.Kill(s.PID, syscall.SIGTERM))
				awaitThreadsInKernel(t, r.holder.Process.Pid)
			}
			must(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGSTOP)) // it sees nothing of the other's death
			must(t, syscall.Kill(s.PID, syscall.SIGKILL))
			must(t, syscall.Kill(r.holder.Process.Pid, syscall.SIGKILL))
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
		must(t, err)
		for _, path := range states {
			b, _ := os.ReadFile(path)
			if _, after, _ := strings.Cut(string(b), ") "); strings.HasPrefix(after, "D") {
				return
			}
		}
		time.Sleep(10 * time.Millisecond) // there is nothing to wait on
	}
	t.Fatal("the removal does not write back")
}

// The serving process dies at a step of an operation. The next one has the device, or makes it, and nothing is left of what was half made.
func TestTheServingProcessMayDieAtAnyStep(t *testing.T) {
	for _, step := range []string{"start", "before-attach", "during-attach", "after-attach"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, "die-"+step)
			s := r.serving(0)
			if s.Restarts != 1 {
				t.Errorf("%d restarts", s.Restarts)
			}
			r.expectWorks()
			must(t, r.terminate())
			r.expectNothingLeft(s.Devices[0], false)
		})
	}
	for _, step := range []string{"start", "before-adopt", "during-adopt", "after-adopt"} {
		t.Run(step+" of a successor", func(t *testing.T) {
			r := newRig(t)
			s := r.serving(0)
			r.flag("die-" + step)
			must(t, syscall.Kill(s.PID, syscall.SIGKILL))
			s = r.until("the second successor", func(s Status) bool { return s.Ready && s.Restarts == 2 })
			r.expectWorks()
			must(t, r.terminate())
			r.expectNothingLeft(s.Devices[0], false)
		})
	}
	for _, step := range []string{"before-detach", "during-detach", "after-detach"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t)
			s := r.serving(0)
			r.flag("die-" + step)
			must(t, syscall.Kill(s.PID, syscall.SIGTERM)) // it ends in order, and the holder does not
			next := r.serving(s.PID)
			r.expectWorks()
			must(t, r.terminate())
			r.expectNothingLeft(next.Devices[0], false)
		})
	}
}

// expectWorks writes and reads the device.
func (r *rig) expectWorks() {
	r.t.Helper()
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	must(r.t, err)
	defer unix.Close(fd)
	page, err := unix.Mmap(-1, 0, blockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must(r.t, err)
	u := &user{t: r.t, fd: fd, seqs: make([]uint64, 1), page: page}
	_, err = unix.Pwrite(fd, page, 0)
	must(r.t, err)
	u.check(0)
}

// A thread of the serving process waits for an answer that this process would have to give. It is killed, and its devices are aborted, or
// it would never end.
func TestAProcessThatHangsInItsOwnDeviceLosesItAndASuccessorStarts(t *testing.T) {
	r := newRig(t, "write-own-device")
	resume := r.disk.pause()
	defer resume()
	s := r.serving(0)
	awaitThreadsInKernel(t, s.PID)
	must(t, os.Remove(filepath.Join(r.dir, "write-own-device")))
	must(t, syscall.Kill(s.PID, syscall.SIGKILL))
	next := r.serving(s.PID) // with a new device
	resume()
	r.expectWorks()
	if !strings.Contains(r.holder.Stderr.(*logWriter).String(), "hangs in the kernel") {
		t.Error("the holder does not say why")
	}
	must(t, r.terminate())
	r.expectNothingLeft(next.Devices[0], false)
}

// A replacement serves when it is ready and stays; one that is not is taken back. Nobody who uses the device notices either.
func TestReplace(t *testing.T) {
	r := newRig(t)
	s := r.serving(0)
	fd, err := unix.Open(r.path(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0) // a user throughout
	must(t, err)
	defer unix.Close(fd)
	replace := func(executable, sum string) error {
		f, err := os.Open(executable)
		must(t, err)
		defer f.Close()
		if sum == "" {
			h := sha256.New()
			_, err = io.Copy(h, f)
			must(t, err)
			sum = hex.EncodeToString(h.Sum(nil))
		}
		return Replace(t.Context(), r.control(), f, "two", sum)
	}
	must(t, replace(os.Args[0], ""))
	next := r.serving(s.PID)
	if next.Version != "two" || next.Restarts != 0 || !strings.Contains(next.Replacement, "two serves") {
		t.Errorf("after a replacement: %+v", next)
	}
	r.expectWorks()

	script := filepath.Join(r.dir, "script")
	for _, tc := range []struct{ name, text, sum, want string }{
		{"its sum is another", "", strings.Repeat("0", 64), "SHA-256"},
		{"it fails the check", "#!/bin/sh\nexit 1\n", "", "try the executable"},
		{"it dies young", "#!/bin/sh\n[ \"$1\" = check ]\n", "", "failed: exit status 1"},
		{"it does not become ready", "#!/bin/sh\n[ \"$1\" = check ] || exec sleep 100\n", "", "not ready in time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, os.WriteFile(script, []byte(tc.text), 0o700))
			if err := replace(script, tc.sum); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			s := r.serving(0)
			if s.Version != "two" || s.Restarts != 0 {
				t.Errorf("got %+v", s)
			}
			r.expectWorks()
		})
	}
	t.Run("another is on trial", func(t *testing.T) {
		must(t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = check ] || exec sleep 100\n"), 0o700))
		outcomes := make(chan error, 2)
		for range 2 {
			go func() { outcomes <- replace(script, "") }()
		}
		busy, other := <-outcomes, <-outcomes
		if !errors.Is(busy, ErrBusy) || errors.Is(other, ErrBusy) || other == nil {
			t.Errorf("got %v and %v", busy, other)
		}
		r.expectWorks()
	})
	if left, _ := filepath.Glob(filepath.Join(r.dir, "programs", "serve-*")); len(left) != 1 {
		t.Errorf("executables left: %v", left)
	}
	if info, err := os.Stat(r.control()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket: %v, %v", info.Mode(), err)
	}
	_ = unix.Close(fd)
	must(t, r.terminate())
}

// A process that dies again and again is given up, and the holder ends with its code.
func TestAProcessThatDiesTooOftenIsGivenUp(t *testing.T) {
	err := Run(t.Context(), Options{Command: []string{"/bin/sh", "-c", "exit 7"}, limits: limits{deaths: 3, backoff: time.Millisecond}})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 7 || !strings.Contains(exit.Why, "too often") {
		t.Errorf("got %v", err)
	}
}
