package mountwatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

const patience = 10 * time.Second

func TestEveryChangeOfTheMountTableIsReported(t *testing.T) {
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
		require.NoError(t, err, what)
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
		assert.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("Watch did not return when its context ended")
	}
	select {
	case <-told:
		t.Error("told of a change when there was none")
	default:
	}
}

func TestAChangeDuringACallCausesAnotherCall(t *testing.T) {
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
			assert.NoError(t, unix.Mount("none", dir, "tmpfs", 0, ""))
		case 2:
			cancel()
		}
	})
	_ = unix.Unmount(dir, unix.MNT_DETACH)
	require.NoError(t, err)
	assert.Equal(t, 2, calls)
}

func TestADoneContextEndsTheWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, Watch(ctx, func() { t.Error("called") }))
}
