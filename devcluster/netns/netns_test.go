package netns

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ownMounts = "NETNS_TEST_HAS_OWN_MOUNTS"

// inOwnMounts runs the test again in a mount namespace of its own, and reports whether this is that second run.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownMounts) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces and mounts")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownMounts+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	return false
}

// Another program's ip netns add binds the directory of namespaces over itself.
func TestNamespaceIsRemovedThoughItsDirectoryIsCovered(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	run("mount", "--make-rprivate", "/")
	run("mount", "-t", "tmpfs", "none", filepath.Dir(bindDir))
	require.NoError(t, os.Mkdir(bindDir, 0o755))
	for name, cover := range map[string][]string{
		"with what is mounted in it": {"mount", "--rbind", bindDir, bindDir},
		"alone":                      {"mount", "--bind", bindDir, bindDir},
	} {
		require.NoError(t, Create("covered"))
		run(cover...)
		run("mount", "--make-shared", bindDir)
		require.NoError(t, Create("of-another"))
		assert.NoError(t, Delete("covered"), name)
		_, err := os.Lstat(Path("covered"))
		assert.ErrorIs(t, err, os.ErrNotExist, "%s: the name is still there", name)
		assert.NoError(t, Do("of-another", func() error { return nil }), "%s: the other program's namespace is gone", name)
		assert.NoError(t, Delete("of-another"), name)
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err, "%s: it is still mounted", name)
		assert.NotContains(t, string(mounts), Path("covered"), "%s: it is still mounted", name)
	}
}
