package share

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// fill uses all inodes of a file system except those of the reserve.
func fill(t *testing.T, dir string) {
	t.Helper()
	for i := 0; ; i++ {
		err := unix.Mkdir(filepath.Join(dir, "filler"+strings.Repeat("x", i%7)+time.Duration(i).String()), 0o700)
		if err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			return
		}
	}
}

// The server of a share records its clients although the file system is full.
func TestAServerOnAFullFileSystemRecordsItsClients(t *testing.T) {
	if !own(t) {
		return
	}
	image := newImage(t, 64<<20)
	dir := t.TempDir()
	r := startRole(t, dir, loopDevice(t, image), func(o *Options) { o.MkfsParams = []string{"-N", "1000"} }) // soon full
	r.await(sayServed, 1)
	records := filepath.Join(dir, "run", "recovery")
	ganesha.Reserve{Recovery: records, Log: quiet()}.Refill()
	require.DirExists(t, filepath.Join(records, "ballast", "00"))
	r.write("file", "data")
	fill(t, r.o.target())
	r.terminate()
	elsewhere := t.TempDir()
	again := startRole(t, elsewhere, loopDevice(t, image), func(o *Options) { o.ExportRoot = r.o.ExportRoot })
	again.await("The space reserved for the records of clients was released", 1)
	again.await(sayServed, 1)
	again.wantRead("file", "data")
	assert.NotContains(t, again.out.String(), "No space left on device")
	assert.NotContains(t, again.out.String(), "cannot record its clients")
	recorded, err := filepath.Glob(filepath.Join(elsewhere, "run", "recovery", ganesha.RecordsName, "node0.*", "*"))
	require.NoError(t, err)
	assert.NotEmpty(t, recorded)
	again.terminate()
}

// The file system is too small for the reserve, like one that an earlier release filled. It is served nevertheless.
func TestAServerThatCannotRecordItsClientsServesThem(t *testing.T) {
	if !own(t) {
		return
	}
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) { o.MkfsParams = []string{"-N", "100"} })
	r.await(sayServed, 1)
	r.write("file", "data")
	fill(t, r.o.target())
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await("The NFS server cannot record its clients on the volume", 1)
	r.await(sayServed, 2)
	r.wantRead("file", "data")
	r.terminate()
}
