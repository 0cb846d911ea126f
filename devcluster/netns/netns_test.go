package netns

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const ownMounts = "NETNS_TEST_HAS_OWN_MOUNTS"

// inOwnMounts runs the test again in a mount namespace of its own, and reports
// whether this is that run.
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
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// Another program's ip netns add binds the directory of namespaces over itself.
func TestNamespaceIsRemovedThoughItsDirectoryIsCovered(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	run("mount", "--make-rprivate", "/")
	run("mount", "-t", "tmpfs", "none", filepath.Dir(bindDir))
	if err := os.Mkdir(bindDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, cover := range map[string][]string{
		"with what is mounted in it": {"mount", "--rbind", bindDir, bindDir},
		"alone":                      {"mount", "--bind", bindDir, bindDir},
	} {
		if err := Create("covered"); err != nil {
			t.Fatal(err)
		}
		run(cover...)
		run("mount", "--make-shared", bindDir)
		if err := Create("of-another"); err != nil {
			t.Fatal(err)
		}
		if err := Delete("covered"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(Path("covered")); !os.IsNotExist(err) {
			t.Errorf("%s: the name is still there: %v", name, err)
		}
		if err := Do("of-another", func() error { return nil }); err != nil {
			t.Errorf("%s: the other program's namespace is gone: %v", name, err)
		}
		if err := Delete("of-another"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), Path("covered")) {
			t.Errorf("%s: it is still mounted (%v):\n%s", name, err, mounts)
		}
	}
}
