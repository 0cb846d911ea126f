package share

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestClientsThatOnlyReadAreKnownToTheNextServer(t *testing.T) {
	if !own(t) {
		return
	}
	image := newImage(t, 64<<20)
	readers := func(o *Options) { o.ClientsReadOnly = true }
	r := startRole(t, t.TempDir(), loopDevice(t, image), readers) // creates the file system
	r.await(sayServed, 1)
	require.NoError(t, os.WriteFile(filepath.Join(r.o.target(), "file"), []byte("data"), 0o644))
	r.wantRead("file", "data")
	out, err := r.inside("", "nfs-cp", filepath.Join(r.o.target(), "file"), url("other"))
	require.Error(t, err)
	assert.Contains(t, out, "ROFS")
	r.terminate()

	again := startRole(t, t.TempDir(), loopDevice(t, image), readers)
	again.await(sayServed, 1)
	assert.Contains(t, again.out.String(), "IN GRACE")
	again.awaitSomeClients()
	again.wantRead("file", "data")
	again.terminate()
}

func TestFileOwnersBySquash(t *testing.T) {
	if !own(t) {
		return
	}
	for squash, owner := range map[Squash]uint32{SquashNone: 0, SquashRoot: 65534, SquashAll: 65534} {
		r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) { o.Squash = squash })
		r.await(sayServed, 1)
		r.write("file", "data") // as root
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(r.o.target(), "file"), &st))
		assert.Equal(t, [2]uint32{owner, owner}, [2]uint32{st.Uid, st.Gid}, "%s", squash)
		r.terminate()
	}
}
