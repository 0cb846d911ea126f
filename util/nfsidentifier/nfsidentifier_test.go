package nfsidentifier

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sysfs creates a directory that looks like a node's root with such files.
func sysfs(t *testing.T, files map[string]string) Kernel {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	return Kernel{Root: root}
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		name            string
		network, module string
		holds           string
		file            string // afterwards; unlike the kernel, a file does not add a line feed
	}{
		{"none → ours", "(null)\n", "\n", "ours", "ours"},
		{"an empty one → ours", "\n", "\n", "ours", "ours"},
		{"of the network → it stays", "theirs\n", "\n", "theirs", "theirs\n"},
		{"of the module → it stays", "(null)\n", "theirs\n", "theirs", "(null)\n"},
		{"of both → that of the network", "net\n", "mod\n", "net", "net\n"},
		{"a line feed is part of it → it is seen", "theirs\n\n", "\n", "theirs\n", "theirs\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := sysfs(t, map[string]string{ofNetwork: c.network, ofModule: c.module})
			before, err := k.Identifier()
			require.NoError(t, err)
			got, err := k.Set("ours")
			require.NoError(t, err)
			assert.Equal(t, c.holds, got)
			if c.holds != "ours" {
				assert.Equal(t, c.holds, before)
			}
			data, err := os.ReadFile(filepath.Join(k.Root, ofNetwork))
			require.NoError(t, err)
			assert.Equal(t, c.file, string(data))
		})
	}
}

func TestAKernelWithoutIdentifiers(t *testing.T) {
	k := sysfs(t, map[string]string{ofModule: "theirs\n"})
	got, err := k.Set("ours")
	require.NoError(t, err)
	assert.Equal(t, "theirs", got, "that of the module is older")

	k = sysfs(t, map[string]string{ofModule: "\n"})
	_, err = k.Identifier()
	assert.ErrorIs(t, err, ErrUnsupported)
	_, err = k.Set("ours")
	assert.ErrorIs(t, err, ErrUnsupported)
	assert.NoFileExists(t, filepath.Join(k.Root, ofNetwork))

	k = sysfs(t, map[string]string{ofNetwork: "(null)\n"})
	got, err = k.Identifier()
	require.NoError(t, err, "a module without the parameter is none of the two")
	assert.Empty(t, got)
}

func TestSetThatFailsSaysSo(t *testing.T) {
	k := sysfs(t, map[string]string{ofNetwork: "\n"})
	require.NoError(t, os.Remove(filepath.Join(k.Root, ofNetwork)))
	require.NoError(t, os.Mkdir(filepath.Join(k.Root, ofNetwork), 0o750))
	_, err := k.Set("ours")
	assert.ErrorContains(t, err, "NFS client's identifier")
}
