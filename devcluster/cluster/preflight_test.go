package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A directory without a part of the kernel is refused before a node is created.
func TestCheckGuestKernel(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorContains(t, checkGuestKernel(dir), filepath.Join(dir, "linux"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "linux"), nil, 0o755))
	assert.ErrorContains(t, checkGuestKernel(dir), "no modules")
	overlay := filepath.Join(dir, "modules/6.1.1/kernel/fs/overlayfs/overlay.ko")
	require.NoError(t, os.MkdirAll(filepath.Dir(overlay), 0o755))
	require.NoError(t, os.WriteFile(overlay, nil, 0o644))
	assert.NoError(t, checkGuestKernel(dir))
	assert.ErrorContains(t, checkGuestKernel("dist/kernel"), "absolute")
}
