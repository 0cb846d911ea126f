package fsys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// everyHost runs a test on the host's file system, directly and through Aside: both must behave the same.
func everyHost(t *testing.T, test func(t *testing.T, fs FS, dir string)) {
	for _, name := range []string{"host", "aside"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var st unix.Stat_t
			require.NoError(t, unix.Stat(dir, &st))
			served := map[uint64]bool{st.Dev: true}
			if name == "host" {
				served = nil
			}
			test(t, Aside{Served: func() map[uint64]bool { return served }}, dir)
		})
	}
}

func TestFilesAndDirectories(t *testing.T) {
	everyHost(t, func(t *testing.T, fs FS, path string) {
		d, err := fs.OpenDir(path)
		require.NoError(t, err)
		require.NoError(t, d.Mkdir("sub"))
		sub, err := d.OpenDir("sub")
		require.NoError(t, err)
		f, err := sub.OpenFile("data", CreateNew)
		require.NoError(t, err)
		_, err = sub.OpenFile("data", CreateNew)
		require.ErrorIs(t, err, unix.EEXIST)
		require.NoError(t, f.Truncate(1<<20))
		require.NoError(t, f.WriteAt([]byte("bytes"), 100<<10-2))
		read := make([]byte, 9)
		require.NoError(t, f.ReadAt(read, 100<<10-4))
		assert.Equal(t, "\x00\x00bytes\x00\x00", string(read))
		require.ErrorIs(t, f.ReadAt(read, 1<<20-1), io.EOF)
		size, err := f.Size()
		require.NoError(t, err)
		assert.EqualValues(t, 1<<20, size)
		for _, sync := range []func() error{f.WriteBack, f.WriteError, f.Datasync, f.Sync, sub.Sync, d.Sync} {
			require.NoError(t, sync())
		}
		allocated, err := f.AllocatedBytes()
		require.NoError(t, err)
		assert.Positive(t, allocated)
		id, err := f.ID()
		require.NoError(t, err)
		looked, err := sub.Lookup("data")
		require.NoError(t, err)
		assert.Equal(t, id, looked)
		require.NoError(t, sub.Rename("data", "other"))
		require.NoError(t, d.Mkdir("more"))
		names, err := d.Names()
		require.NoError(t, err)
		assert.Equal(t, []string{"more", "sub"}, names)
		require.NoError(t, d.Rmdir("more"))
		require.ErrorIs(t, d.Rmdir("sub"), unix.ENOTEMPTY)
		_, err = d.OpenFile("sub", ReadOnly)
		require.ErrorIs(t, err, ErrNotRegular)
		require.NoError(t, os.Symlink("other", filepath.Join(path, "sub", "link")))
		_, err = sub.OpenFile("link", ReadOnly)
		require.ErrorIs(t, err, ErrNotRegular)
		_, err = sub.OpenFile("../x", ReadOnly)
		require.ErrorIs(t, err, unix.EINVAL)

		require.NoError(t, d.Close())
		require.ErrorIs(t, d.Mkdir("late"), os.ErrClosed)
		require.NoError(t, sub.Close())
		require.NoError(t, f.ReadAt(read, 0), "a file stays open without its directory")
		require.NoError(t, f.Close())
		require.ErrorIs(t, f.ReadAt(read, 0), os.ErrClosed)
		require.ErrorIs(t, f.Close(), os.ErrClosed)
	})
}

func TestADirectoryIsLockedUntilItIsClosed(t *testing.T) {
	everyHost(t, func(t *testing.T, fs FS, path string) {
		first, err := fs.OpenDir(path)
		require.NoError(t, err)
		require.NoError(t, first.TryLock())
		second, err := fs.OpenDir(path)
		require.NoError(t, err)
		require.ErrorIs(t, second.TryLock(), ErrLocked)
		bystander, err := fs.OpenDir(path) // opened while the first is open: it must not keep the lock of the first
		require.NoError(t, err)
		require.NoError(t, first.Close())
		require.NoError(t, second.TryLock())
		require.NoError(t, second.Close())
		require.NoError(t, bystander.Close())
	})
}

// A thread ends with its last descriptor, whichever descriptor that is, even if the opening of a descriptor failed
// before.
func TestAThreadAsideEndsWithItsLastDescriptor(t *testing.T) {
	path := t.TempDir()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	fs := Aside{Served: func() map[uint64]bool { return map[uint64]bool{st.Dev: true} }}
	awaitThreadsAside(t, 0) // threads of other tests
	d, err := fs.OpenDir(path)
	require.NoError(t, err)
	require.NoError(t, d.Mkdir("sub"))
	_, err = d.OpenDir("missing")
	require.ErrorIs(t, err, unix.ENOENT)
	_, err = d.OpenFile("missing", ReadOnly)
	require.ErrorIs(t, err, unix.ENOENT)
	sub, err := d.OpenDir("sub")
	require.NoError(t, err)
	f, err := sub.OpenFile("data", CreateNew)
	require.NoError(t, err)
	awaitThreadsAside(t, 2)

	require.NoError(t, sub.Close())
	awaitThreadsAside(t, 2) // the file is still open
	require.NoError(t, f.Close())
	awaitThreadsAside(t, 1)
	require.NoError(t, d.Close())
	awaitThreadsAside(t, 0)
}

// asideOf returns the thread's descriptor of a file or directory, for calls that hang.
func asideOf(t *testing.T, d any) *aside {
	t.Helper()
	switch d := d.(type) {
	case *hostDir:
		return d.descriptor.(*aside)
	case *hostFile:
		return d.descriptor.(*aside)
	}
	t.Fatalf("%T is not aside", d)
	return nil
}

// A call on one file hangs. The first close of another file of its directory waits for a moment. The later closes,
// including the directory's, do not wait. When the call has ended, and not before, everything is closed, including the
// lock.
func TestACallThatHangsDelaysNoClose(t *testing.T) {
	path := t.TempDir()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	fs := Aside{Served: func() map[uint64]bool { return map[uint64]bool{st.Dev: true} }}
	d, err := fs.OpenDir(path)
	require.NoError(t, err)
	require.NoError(t, d.TryLock())
	files := []File{}
	for _, name := range []string{"a", "b", "c"} {
		f, err := d.OpenFile(name, CreateNew)
		require.NoError(t, err)
		files = append(files, f)
	}
	begun, answer, answered := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		answered <- asideOf(t, files[0]).control(func(int) error {
			close(begun)
			<-answer
			return nil
		})
	}()
	<-begun
	closed := make(chan error)
	began := time.Now()
	go func() {
		for _, f := range files {
			closed <- f.Close()
		}
		closed <- d.Close()
	}()
	for range 4 {
		select {
		case err := <-closed:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			close(answer)
			t.Fatal("a close waits for the call")
		}
	}
	assert.GreaterOrEqual(t, time.Since(began), closeTimeout, "nothing was waited for")
	require.ErrorIs(t, files[1].Close(), os.ErrClosed)
	other, err := fs.OpenDir(path)
	require.NoError(t, err)
	require.ErrorIs(t, other.TryLock(), ErrLocked, "the call goes on beneath the directory")
	thread := asideOf(t, d).thread
	assert.True(t, thread.isLate())

	close(answer)
	require.NoError(t, <-answered)
	<-thread.Ended()
	assert.False(t, thread.isLate())

	require.Eventually(t, func() bool { return other.TryLock() == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, other.Close())
	awaitThreadsAside(t, 0)
}

// A directory on a served device is opened in a thread of its own or not at all. After any error, the process never
// uses the directory that it sees itself under the same path.
func TestAServedDirectoryIsOpenedOnlyInAThread(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	place := t.TempDir()
	here, there := filepath.Join(place, "here"), filepath.Join(place, "there")
	for _, dir := range []string{here, there} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	kept, err := thread.New(thread.Options{OwnMounts: true})
	require.NoError(t, err)
	defer kept.Close()
	mounts := fmt.Sprintf("/proc/self/task/%d/ns/mnt", kept.ID())
	tmpfs := func(dir string) (dev uint64, err error) {
		var st unix.Stat_t
		err = errors.Join(unix.Mount("none", dir, "tmpfs", 0, "size=64k"), unix.Stat(dir, &st))
		return st.Dev, err
	}
	served := map[uint64]bool{}
	dev, err := tmpfs(here)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unix.Unmount(here, 0)) }()
	served[dev] = true
	require.NoError(t, kept.Do(func() error {
		dev, err := tmpfs(there)
		served[dev] = true
		return err
	}))
	fs := Aside{Mounts: mounts, Served: func() map[uint64]bool { return served }}

	d, err := fs.OpenDir(there) // mounted only in the kept namespace
	require.NoError(t, err)
	asideOf(t, d)
	id, err := d.ID()
	require.NoError(t, err)
	assert.True(t, served[id.Device])
	require.NoError(t, d.Close())

	_, err = fs.OpenDir(here) // mounted only in the namespace of the process
	require.ErrorIs(t, err, ErrNotAside)

	d, err = fs.OpenDir(place)
	require.NoError(t, err)
	assert.IsType(t, direct{}, d.(*hostDir).descriptor, "what is on no served device is opened as ever")
	require.NoError(t, d.Close())

	_, err = fs.OpenDir(filepath.Join(place, "missing"))
	require.ErrorIs(t, err, unix.ENOENT)

	// A loop of links in the kept namespace: an error that proves nothing about the directory there.
	require.NoError(t, kept.Do(func() error {
		return errors.Join(unix.Unmount(there, 0), unix.Mount("none", place, "tmpfs", 0, "size=64k"), os.Symlink("there", there))
	}))
	_, err = fs.OpenDir(there)
	require.ErrorIs(t, err, unix.ELOOP)
}

// threadsAside lists the threads of this process that are named thread.Aside.
func threadsAside(t *testing.T) (ids []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/comm")
	require.NoError(t, err)
	for _, comm := range tasks {
		if name, _ := os.ReadFile(comm); strings.TrimSpace(string(name)) == thread.Aside {
			ids = append(ids, filepath.Base(filepath.Dir(comm)))
		}
	}
	return ids
}

// awaitThreadsAside waits until the number of such threads is want: a thread ends a moment after its last work.
func awaitThreadsAside(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(threadsAside(t)) == want }, 10*time.Second, time.Millisecond, "%d threads do not become %d", len(threadsAside(t)), want)
}

func TestFilesAreClosedWhileTheyAreUsed(t *testing.T) {
	everyHost(t, func(t *testing.T, fs FS, path string) {
		for range 20 {
			d, err := fs.OpenDir(path)
			require.NoError(t, err)
			f, err := d.OpenFile("data", ReadWrite)
			if errors.Is(err, unix.ENOENT) {
				f, err = d.OpenFile("data", CreateNew)
			}
			require.NoError(t, err)
			var users sync.WaitGroup
			for range 4 {
				users.Go(func() {
					for {
						err := f.WriteAt([]byte("x"), 0)
						if err != nil {
							assert.ErrorIs(t, err, os.ErrClosed)
							return
						}
					}
				})
			}
			require.NoError(t, d.Close())
			require.NoError(t, f.Close())
			users.Wait()
		}
	})
}
