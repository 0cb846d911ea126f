package share

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

// removeFromRoot removes a name from the root of the share vol. If the argument is two names with a colon between them,
// it renames the first to the second. It returns the result.
func removeFromRoot(name string) string {
	const opLookup, opPutRootFH, opRemove, opRename, opSaveFH = 15, 24, 28, 29, 32
	act := nfsclient.Words{}.Put(opRemove).Opaque(name)
	if from, to, ok := strings.Cut(name, ":"); ok {
		act = nfsclient.Words{}.Put(opRename).Opaque(from).Opaque(to)
	}
	_, err := nfsclient.NewProber(2049, patience).Compound(context.Background(), 0, 4,
		nfsclient.Words{}.Put(opPutRootFH, opLookup).Opaque("vol").Put(opSaveFH).Add(act))
	if err != nil {
		return err.Error()
	}
	return "done"
}

// A client that empties a share, as by rm -rf of its whole content, must not hang because of the one directory that
// stays.
func TestEmptyingAShareEnds(t *testing.T) {
	if !own(t) {
		return
	}
	image, dir := newImage(t, 64<<20), t.TempDir()
	r := startRole(t, dir, loopDevice(t, image), nil)
	r.await(sayServed, 1)
	const inGrace = "NFS status 10013"
	self, err := os.Executable()
	require.NoError(t, err)
	remove := func(name string) (out string) {
		t.Helper()
		require.Eventually(t, func() bool {
			out, err = r.inside(removeEnv+"="+name, self, "-test.run=^$")
			require.NoError(t, err, out)
			return out != inGrace
		}, patience, 100*time.Millisecond)
		return out
	}
	const notEmpty = "NFS status 66"
	assert.Equal(t, notEmpty, remove(ganesha.RecoveryName+":other"))
	r.write("file", "data")
	require.NoError(t, os.Mkdir(filepath.Join(r.o.target(), "plain"), 0o700))
	assert.Equal(t, notEmpty, remove(ganesha.RecoveryName))
	assert.NotEqual(t, nfsclient.StatusDelay.Error(), remove("plain:"+ganesha.RecoveryName))
	assert.Equal(t, "done", remove("plain"))
	assert.NotContains(t, r.out.String(), "Attempt to remove", "a client could fill the log with it")
	assert.Contains(t, r.client("nfs-ls", url("")), "file")
	assert.NotContains(t, r.client("nfs-ls", url("")), ganesha.RecoveryName, "clients do not see it")
	_, err = r.inside("", "nfs-ls", url(ganesha.RecoveryName))
	require.Error(t, err)
	assert.Equal(t, "done", remove("file"))
	handle := r.handle()
	r.terminate()

	// The content that a user put in place of the recovery data is moved there, for clients to delete.
	mounted := t.TempDir()
	device := loopDevice(t, image)
	run(t, "mount", device, mounted)
	require.NoError(t, os.WriteFile(filepath.Join(mounted, ganesha.RecoveryName, ganesha.CoverName, "foreign"), []byte("text"), 0o600))
	run(t, "umount", mounted)
	r = startRole(t, t.TempDir(), device, func(o *Options) { o.ExportRoot = r.o.ExportRoot })
	r.await(sayServed, 1)
	assert.Equal(t, handle, r.handle(), "the file handle of the root")
	assert.Equal(t, notEmpty, remove(ganesha.RecoveryName))
	assert.Contains(t, strings.Fields(r.client("nfs-ls", url(ganesha.RecoveryName))), "foreign")
	r.terminate()
}
