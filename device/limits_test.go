package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// The kernel sends no larger requests than a request of FUSE holds, and cuts long discards.
func TestADeviceHasItsLimits(t *testing.T) {
	const size = 256 << 20
	_, path := blockDevice(t, size, memory.New(size))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	for file, want := range map[string]string{"discard_max_bytes": "67108864", "max_sectors_kb": "1024"} {
		got, err := os.ReadFile(filepath.Join(fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(st.Rdev), unix.Minor(st.Rdev)), file))
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(got)), file)
	}
}
