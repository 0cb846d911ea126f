package fsys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTheKernelReportsUnwrittenData(t *testing.T) {
	opened, err := os.OpenFile(filepath.Join(t.TempDir(), "data"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	f := &hostFile{direct{file: opened}}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Unwritten(); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("Linux before 6.5")
	}
	const mib = 1 << 20
	require.NoError(t, f.Truncate(64*mib))
	var has int64
	for has == 0 { // the kernel may have written it out on its own
		for range 3 {
			require.NoError(t, f.WriteAt(make([]byte, 4*mib), 8*mib))
		}
		has, err = f.Unwritten()
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, has, int64(4*mib), "what is overwritten counts once")
	require.NoError(t, f.WriteBack())
	has, err = f.Unwritten()
	require.NoError(t, err)
	assert.Zero(t, has)
}
