package mount

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
)

// kernel is a fake mounter with an unmount that waits, and Files that record detached paths.
type kernel struct {
	*mountutils.FakeMounter
	fakeFiles
	release chan struct{} // nil: unmounting does not wait
	probe   func() error
	detach  error
	lazily  []string
}

func (k *kernel) Unmount(path string) error {
	if k.release != nil {
		<-k.release
	}
	return k.FakeMounter.Unmount(path)
}

func (k *kernel) Probe(string) error { return k.probe() }

func (k *kernel) Detach(path string) error {
	k.lazily = append(k.lazily, path)
	if k.detach != nil {
		return k.detach
	}
	return k.FakeMounter.Unmount(path)
}

func TestIsDead(t *testing.T) {
	never := make(chan struct{})
	for _, c := range []struct {
		name  string
		probe func() error
		want  bool
	}{
		{"a read succeeds → alive", func() error { return nil }, false},
		{"an I/O error → dead", func() error { return &os.PathError{Op: "read", Err: syscall.EIO} }, true},
		{"no process behind it → dead", func() error { return syscall.ENOTCONN }, true},
		{"gone meanwhile → dead", func() error { return syscall.ENOENT }, true},
		{"the read itself is refused → not known to be dead", func() error { return syscall.EINVAL }, false},
		{"no answer → not known to be dead", func() error { <-never; return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never = make(chan struct{})
				defer close(never)
				s := NewWith(nil, nil, &kernel{probe: c.probe})
				assert.Equal(t, c.want, s.IsDead("/dev/longhorn/pvc-1"))
			})
		})
	}
}

func TestUnmountOfALiveDeviceThatFlushesForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		k := &kernel{FakeMounter: mountutils.NewFakeMounter([]mountutils.MountPoint{{Device: "/dev/loop7", Path: dir}}), release: make(chan struct{})}
		s := NewWith(k, nil, k)
		start := time.Now()
		err := s.Unmount(dir)
		assert.ErrorIs(t, err, ErrStuck)
		assert.Equal(t, 80*time.Second, time.Since(start))
		start = time.Now()
		err = s.Unmount(dir)
		assert.ErrorIs(t, err, ErrStuck)
		assert.Zero(t, time.Since(start), "a second try")
		assert.Empty(t, k.lazily, "a live device's mount was detached")
		close(k.release)
		synctest.Wait()
		assert.NoError(t, s.Unmount(dir), "after the flush ended")
	})
}

func TestDetach(t *testing.T) {
	hung := func(k *kernel) { k.release = make(chan struct{}) }
	refused := func(k *kernel) { k.UnmountFunc = func(string) error { return syscall.EBUSY } }
	for _, c := range []struct {
		name   string
		layers int
		change func(k *kernel)
		lazily int
		fail   bool
	}{
		{"nothing mounted → nothing done", 0, func(*kernel) {}, 0, false},
		{"an unmount that works → not by force", 2, func(*kernel) {}, 0, false},
		{"an unmount that hangs → by force", 1, hung, 1, false},
		{"the kernel refuses even that → an error", 1, func(k *kernel) { refused(k); k.detach = syscall.EPERM }, 16, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path, err := filepath.EvalSymlinks(dir)
				require.NoError(t, err)
				k := &kernel{FakeMounter: mountutils.NewFakeMounter(nil)}
				// Access to the path would hang, so the code must not access it.
				k.errs = map[string]error{path: errors.New("was looked at")}
				for range c.layers {
					require.NoError(t, k.Mount("/dev/loop7", path, "ext4", nil))
				}
				c.change(k)
				s := NewWith(k, nil, k)
				start := time.Now()
				err = s.Detach(path)
				assert.Equal(t, c.fail, err != nil, err)
				assert.LessOrEqual(t, time.Since(start), 30*time.Second)
				points, _ := k.List()
				assert.Equal(t, c.fail, len(points) != 0, "mounted %v", points)
				assert.Len(t, k.lazily, c.lazily)
				if k.release != nil {
					close(k.release)
				}
			})
		})
	}
}
