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

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// The kernel sends no requests larger than a FUSE request, and splits long discards. The loop device that the kernel
// gives may have been used before, with the limits of another device. In this test it is probably the second one, which
// the first left with other limits.
func TestADeviceHasItsLimits(t *testing.T) {
	const size = 256 << 20
	limits := map[string]string{"discard_max_bytes": "67108864", "max_sectors_kb": "1024"}
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			_, path := blockDevice(t, size, memory.New(size))
			var st unix.Stat_t
			require.NoError(t, unix.Stat(path, &st))
			queue := fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(st.Rdev), unix.Minor(st.Rdev))
			for file, want := range limits {
				got, err := os.ReadFile(filepath.Join(queue, file))
				require.NoError(t, err)
				assert.Equal(t, want, strings.TrimSpace(string(got)), file)
			}
			require.NoError(t, os.WriteFile(filepath.Join(queue, "discard_max_bytes"), []byte("1048576"), 0))
			require.NoError(t, os.WriteFile(filepath.Join(queue, "max_sectors_kb"), []byte("256"), 0))
		})
	}
}
