package guestdevices

import (
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
const guestTimeout = 26 * time.Minute

// The devices of the kernel's NBD client do what those of FUSE do: file systems, refused removals, aborts, growth under a mounted file
// system, and successions under users that see no error.
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
	for name, pkg := range map[string]string{"device.test": "../../device", "holder.test": "../../device/holder"} {
		build := exec.Command("go", "test", "-c", "-trimpath", "-o", filepath.Join(dir, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	script := filepath.Join(dir, "init.sh")
	require.NoError(t, os.WriteFile(script, initScript, 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	guest := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--kill-child", "linux.uml", "mem=1G", "root=/dev/root", "rootfstype=hostfs",
		"rootflags=/", "ro", "uml_dir="+dir+"/", "umid=guest", "con=null", "con0=null,fd:1", "init="+script, "DATA="+dir)
	guest.Env = append(os.Environ(), "TMPDIR=/dev/shm")
	console, err := guest.CombinedOutput()
	out, _ := os.ReadFile(filepath.Join(dir, "out.txt"))
	passed := assert.Contains(t, string(out), "GUEST PASSED", "%v", err)
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "Benchmark") {
			t.Log(line)
		}
	}
	// What may be missing there must be said here: a test that did not run has shown nothing.
	skipped := skips.FindAllString(string(out), -1)
	if assert.ElementsMatch(t, onlyOfFUSE, skipped, "skipped in the guest") && passed {
		return
	}
	t.Logf("the tests say:\n%s\nthe guest says:\n%s", out, console[max(0, len(console)-8<<10):])
}

var skips = regexp.MustCompile(`(?m)^--- SKIP: \w+`)

// onlyOfFUSE are tests of what devices of the kernel's NBD client do not have.
var onlyOfFUSE = []string{}

// missing says what the test needs and is not here.
func missing() string {
	if os.Geteuid() != 0 {
		return "starting a guest needs root"
	}
	for _, tool := range []string{"linux.uml", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "starting a guest needs " + tool
		}
	}
	return ""
}
