package replica

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// encrypt makes the file system encrypt the files in an empty directory.
func encrypt(t *testing.T, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	require.NoError(t, err)
	defer d.Close()
	key := struct {
		unix.FscryptAddKeyArg
		raw [64]byte
	}{FscryptAddKeyArg: unix.FscryptAddKeyArg{Key_spec: unix.FscryptKeySpecifier{Type: unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER}, Raw_size: 64}}
	ioctl := func(command uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), command, uintptr(arg)); errno != 0 {
			mountns.Missing(t, "a kernel that encrypts files: "+errno.Error())
		}
	}
	ioctl(unix.FS_IOC_ADD_ENCRYPTION_KEY, unsafe.Pointer(&key))
	policy := unix.FscryptPolicyV2{
		Version: unix.FSCRYPT_POLICY_V2, Contents_encryption_mode: unix.FSCRYPT_MODE_AES_256_XTS,
		Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS, Flags: unix.FSCRYPT_POLICY_FLAGS_PAD_32,
	}
	copy(policy.Master_key_identifier[:], key.Key_spec.U[:])
	ioctl(unix.FS_IOC_SET_ENCRYPTION_POLICY, unsafe.Pointer(&policy))
}

// The kernel opens an encrypted file of ext4 for direct reads and writes, but lets the cache do them.
func TestARealKernelWhoseDirectWritesGoToTheCacheIsNotTrusted(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	image := filepath.Join(t.TempDir(), "image")
	point := filepath.Join(mountImage(t, "ext4", image, diskBytes, "-O", "^has_journal,encrypt"), "encrypted")
	require.NoError(t, os.Mkdir(point, 0o700))
	encrypt(t, point)
	dir, spec, _ := closeWithLostWrites(t, image, point)

	free := usePieces(t, filepath.Join(dir, dataName), func(int64) bool { return true })
	_, err := Open(fsys.Host{}, dir, spec, Options{BootID: testBoot, Distrust: true})
	free()
	require.ErrorIs(t, err, fsys.ErrNotWrittenThrough, "it would read zeroes when the kernel has dropped what it shows")
	require.ErrorIs(t, err, errStaysCached)

	r := openReplica(t, fsys.Host{}, dir, spec, testBoot) // nothing uses the data now
	s := admit(t, r, 2, "s2")
	shown := readAll(t, s)
	evict(t, filepath.Join(dir, dataName))
	assert.True(t, bytes.Equal(shown, readAll(t, s)), "what was read has changed")
}
