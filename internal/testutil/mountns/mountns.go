// Package mountns allows a test to mount file systems: the test runs a second time in a process of its own, whose mount
// namespace ends with the process. It knows no package under test.
//
//	func TestX(t *testing.T) {
//		if !mountns.Own(t) {
//			return // it has run, and passed
//		}
//		…
package mountns

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// marker is in the environment of the process with the namespace.
const marker = "LONGHORN_TEST_MOUNT_NAMESPACE"

// Own runs the calling test a second time in a mount namespace of its own, in which no mount is shared with the
// machine. The test must be a top-level test. In the second process Own returns true. In the calling process it returns
// false after the other process has passed. If the other process fails or skips the test, Own does the same. Without
// root the test is skipped, but in CI (CI=true) it fails.
func Own(t *testing.T) bool {
	t.Helper()
	if os.Getenv(marker) != "" {
		return true
	}
	if os.Getuid() != 0 {
		Missing(t, "root, for a mount namespace of its own")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch text := string(out); {
	case err == nil && strings.Contains(text, "--- PASS: "+t.Name()+" "):
	case err == nil && strings.Contains(text, "--- SKIP: "+t.Name()+" "):
		t.Skipf("in its own mount namespace:\n%s", out)
	default:
		t.Fatalf("in its own mount namespace: %v\n%s", err, out)
	}
	return false
}

// Missing skips a test because it lacks what. In CI (CI=true), which has everything that tests need, it fails the test.
func Missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s, and must run here", what)
	}
	t.Skipf("needs %s", what)
}

// Needs skips a test if commands are missing; in CI it fails the test.
func Needs(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := exec.LookPath(command); err != nil {
			Missing(t, command+" (scripts/setup installs it)")
		}
	}
}
