package thread

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAThreadHasOnlyWhatWasOpenedThere(t *testing.T) {
	ours, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer ours.Close()
	var stat unix.Stat_t
	require.NoError(t, unix.Fstat(int(ours.Fd()), &stat))

	th, err := New(Options{Name: "a-test"})
	require.NoError(t, err)
	defer th.Close()
	theirs := -1
	require.NoError(t, th.Do(func() (err error) {
		assert.Equal(t, th.ID(), unix.Gettid())
		var there unix.Stat_t
		if err := unix.Fstat(int(ours.Fd()), &there); err == nil {
			assert.NotEqual(t, stat.Ino, there.Ino, "the process's directory is open in the thread")
		}
		theirs, err = unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}))
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", theirs))
	assert.False(t, strings.HasSuffix(link, "/status"), "the thread's file is open in the process")
	link, err = os.Readlink(fmt.Sprintf("/proc/self/task/%d/fd/%d", th.ID(), theirs))
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(link, "/status"), link)
	name, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", th.ID()))
	require.NoError(t, err)
	assert.Equal(t, "a-test\n", string(name))
}

// A kept descriptor may have a high number. Descriptors above it are not copied to the thread's table. Descriptors
// below it are copied, and closed there.
func TestAThreadHasNothingBelowWhatItKeeps(t *testing.T) {
	ours, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer ours.Close()
	dup := func(lowest int) int {
		fd, err := unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, lowest)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	others := []int{dup(60), dup(100), dup(300)}
	keep := dup(400)
	others = append(others, dup(500))
	th, err := New(Options{Keep: []int{keep}})
	require.NoError(t, err)
	defer th.Close()
	open := func(fd int) bool {
		_, err := os.Readlink(fmt.Sprintf("/proc/self/task/%d/fd/%d", th.ID(), fd))
		return err == nil
	}
	for _, fd := range others {
		assert.False(t, open(fd), "descriptor %d of the process is open in the thread", fd)
	}
	assert.True(t, open(keep), "the descriptor that it keeps is closed")
}

func TestAClosedThreadRunsNothing(t *testing.T) {
	th, err := New(Options{})
	require.NoError(t, err)
	failed := errors.New("failed")
	require.ErrorIs(t, th.Do(func() error { return failed }), failed)
	th.Close()
	th.Close()
	<-th.Ended()
	require.ErrorIs(t, th.Do(func() error {
		t.Error("it does something")
		return nil
	}), ErrEnded)
}

// A mount in a thread's own namespace is visible there, and to another thread that enters the namespace, but not to the
// process.
func TestAThreadHasMountsOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	place := t.TempDir()
	owner, err := New(Options{OwnMounts: true})
	require.NoError(t, err)
	defer owner.Close()
	require.NoError(t, owner.Do(func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return err
		}
		return unix.Mount("none", place, "tmpfs", 0, "size=64k")
	}))
	isMounted := func() (bool, error) {
		var s unix.Statfs_t
		err := unix.Statfs(place, &s)
		return s.Type == unix.TMPFS_MAGIC, err
	}
	before, err := isMounted()
	require.NoError(t, err)
	guest, err := New(Options{Mounts: fmt.Sprintf("/proc/self/task/%d/ns/mnt", owner.ID())})
	require.NoError(t, err)
	defer guest.Close()
	require.NoError(t, guest.Do(func() error {
		mounted, err := isMounted()
		assert.True(t, mounted)
		return err
	}))
	now, err := isMounted()
	require.NoError(t, err)
	assert.Equal(t, before, now)
}
