package holder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy says that a replacement was not started, because another one is still on trial.
var ErrBusy = errors.New("another replacement has not finished")

// checkTimeout limits the check of an executable.
const checkTimeout = 30 * time.Second

// replace replaces the serving executable and waits for the outcome. Nothing has changed until the holder tells the
// serving process to leave.
func (h *holder) replace(ctx context.Context, m message, fds []int) error {
	if len(fds) != 1 {
		return fmt.Errorf("the request to replace the executable has %d file descriptors, expected 1: %w", len(fds), unix.EINVAL)
	}
	if held, err := h.devices.List(ctx); err != nil || len(held) > 0 && !h.successions {
		return errors.Join(err, errors.New("with this kernel, no other process can take over devices"))
	}
	next, err := h.take(fds[0], m)
	if err != nil {
		return err
	}
	if err := h.check(ctx, next); err != nil {
		next.remove()
		return err
	}
	t := &trial{next: next, done: make(chan error, 1)}
	select {
	case h.replaces <- t:
	case <-ctx.Done():
		next.remove()
		return fmt.Errorf("the holder is stopping: %w", ctx.Err())
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the holder is stopping: %w", ctx.Err())
	}
}

// refuse ends a replacement that was not started.
func (t *trial) refuse(err error) {
	t.next.remove()
	t.done <- err
}

func (p program) remove() {
	if p.own {
		_ = os.Remove(p.path)
	}
}

// copies is the pattern of the names of the executables that the holder copied.
const copies = "serve-*"

// removeCopies removes the copies that a dead holder left in a directory. Only the holder uses this directory.
func removeCopies(dir string) {
	if dir == "" {
		return
	}
	left, _ := filepath.Glob(filepath.Join(dir, copies))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// take copies an executable to a file of the holder, and compares the checksum of the copy. The copy neither changes
// nor disappears with an image.
func (h *holder) take(fd int, m message) (program, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return program{}, fmt.Errorf("copy the executable: %w", err)
	}
	source := os.NewFile(uintptr(own), "executable")
	defer source.Close()
	if h.opts.Dir != "" {
		err = os.MkdirAll(h.opts.Dir, 0o700)
	}
	if err != nil {
		return program{}, fmt.Errorf("copy the executable: %w", err)
	}
	file, err := os.CreateTemp(h.opts.Dir, copies)
	if err != nil {
		return program{}, fmt.Errorf("copy the executable: %w", err)
	}
	p := program{path: file.Name(), version: m.Version, own: true}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, sum), io.NewSectionReader(source, 0, 1<<40))
	err = errors.Join(err, file.Chmod(0o700), file.Close())
	p.sum = hex.EncodeToString(sum.Sum(nil))
	if err == nil && p.sum != m.SHA256 {
		err = fmt.Errorf("its SHA-256 is %s, expected %s", p.sum, m.SHA256)
	}
	if err == nil {
		p.path, err = filepath.Abs(p.path)
	}
	if err != nil {
		p.remove()
		return program{}, fmt.Errorf("copy the executable: %w", err)
	}
	return p, nil
}

// check runs an executable without devices.
func (h *holder) check(ctx context.Context, p program) error {
	if len(h.opts.Check) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, h.opts.Check...)
	if err := children.start(cmd); err != nil {
		return fmt.Errorf("check the executable: %w", err)
	}
	if err := children.wait(cmd); err != nil {
		return fmt.Errorf("check the executable: %w", err)
	}
	return nil
}
