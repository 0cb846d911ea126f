package mountwatch

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

const patience = 10 * time.Second

func TestEveryChangeOfTheMountTableIsTold(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() { done <- Watch(ctx, func() { told <- struct{}{} }) }()

	expect := func(what string) {
		t.Helper()
		select {
		case <-told:
		case <-time.After(patience):
			t.Fatalf("%s was not told", what)
		}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	expect("the start")
	do("mount", unix.Mount("none", dir, "tmpfs", 0, ""))
	expect("a mount")
	do("mount over it", unix.Mount("none", dir, "tmpfs", 0, ""))
	expect("a mount over another")
	do("unmount lazily", unix.Unmount(dir, unix.MNT_DETACH))
	expect("a lazy unmount")
	do("unmount", unix.Unmount(dir, 0))
	expect("an unmount")

	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Watch did not return when its context ended")
	}
	select {
	case <-told:
		t.Error("told of a change when there was none")
	default:
	}
}

func TestAChangeDuringTheCallIsToldByAnother(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	calls := 0
	err := Watch(ctx, func() {
		switch calls++; calls {
		case 1:
			if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
				t.Error(err)
			}
		case 2:
			cancel()
		}
	})
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	if err != nil || calls != 2 {
		t.Errorf("%d calls, %v; want 2", calls, err)
	}
}

func TestAnEndedContextIsNotWatchedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Watch(ctx, func() { t.Error("called") }); err != nil {
		t.Error(err)
	}
}
