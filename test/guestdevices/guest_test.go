package guestdevices

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed init.sh
var initScript []byte

// guestTimeout bounds the life of a guest; a minute is usual.
const guestTimeout = 13 * time.Minute

// The devices of the kernel's NBD client must behave like those of FUSE: file systems, refused removals, aborts, growth
// under a mounted file system, and successions without an error for the users.
func TestDevicesOfTheKernelsNBDClient(t *testing.T) {
	required := os.Getenv("LONGHORN_E2E") == "required"
	if !required && os.Getenv("LONG") == "" {
		t.Skip("a guest takes a minute: it runs before the cluster tests, with LONGHORN_E2E=required, and with LONG=1")
	}
	if missing := missing(); missing != "" {
		if required || os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir := t.TempDir()
	for name, pkg := range map[string]string{"device.test": "../../dataplane/device", "holder.test": "../../dataplane/device/holder"} {
		build := exec.Command("go", "test", "-c", "-trimpath", "-o", filepath.Join(dir, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	script := filepath.Join(dir, "init.sh")
	require.NoError(t, os.WriteFile(script, initScript, 0o700))
	// On a processor with more registers than the guest's kernel knows, the kernel runs only with this library:
	// ptrace.c says why.
	preload := filepath.Join(dir, "ptrace.so")
	out, err := exec.Command("gcc", "-O2", "-fPIC", "-fno-tree-loop-distribute-patterns", "-shared", "-nostdlib",
		"-o", preload, "../../devcluster/uml/preload/ptrace.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	guest := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--kill-child", "linux.uml", "mem=1G", "root=/dev/root", "rootfstype=hostfs",
		"rootflags=/", "ro", "uml_dir="+dir+"/", "umid=guest", "con=null", "con0=null,fd:1", "init="+script, "DATA="+dir)
	guest.Env = append(os.Environ(), "TMPDIR=/dev/shm", "LD_PRELOAD="+preload)
	console := &console{panicked: cancel}
	guest.Stdout, guest.Stderr = console, console
	err = guest.Run()
	out, _ = os.ReadFile(filepath.Join(dir, "out.txt"))
	passed := assert.Contains(t, string(out), "GUEST PASSED", "%v", err)
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "Benchmark") {
			t.Log(line)
		}
	}
	// Every test that may be skipped in the guest must be listed here, because a test that did not run has shown
	// nothing.
	skipped := skips.FindAllString(string(out), -1)
	if assert.ElementsMatch(t, onlyOfFUSE, skipped, "skipped in the guest") && passed {
		return
	}
	t.Logf("the tests say:\n%s\nthe guest says:\n%s", out, console.said[max(0, len(console.said)-8<<10):])
}

// console records the output of a guest. It kills a guest whose kernel panics. That kernel is the first process of its
// PID namespace, so it cannot abort itself, and would try forever.
type console struct {
	said     []byte
	panicked func()
}

func (c *console) Write(p []byte) (int, error) {
	c.said = append(c.said, p...)
	if bytes.Contains(c.said, []byte("Kernel panic")) {
		c.panicked()
	}
	return len(p), nil
}

var skips = regexp.MustCompile(`(?m)^--- SKIP: \w+`)

// onlyOfFUSE are tests of features that devices of the kernel's NBD client do not have.
var onlyOfFUSE = []string{}

// missing returns what the test needs and this machine lacks.
func missing() string {
	if os.Geteuid() != 0 {
		return "starting a guest needs root"
	}
	for _, tool := range []string{"linux.uml", "unshare", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "starting a guest needs " + tool
		}
	}
	return ""
}
