package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// namespaceEnv is an environment variable of the process that has its own mount namespace. Its value is the path of the
// program.
const namespaceEnv = "MOUNTS_PROGRAM"

// TestMain runs the tests in a process with its own mount namespace. No other process sees their mounts, and the mounts
// disappear with the namespace.
func TestMain(m *testing.M) {
	if missing() != "" || os.Getenv(namespaceEnv) != "" {
		os.Exit(m.Run())
	}
	code, err := runInNamespace()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runInNamespace() (code int, err error) {
	dir, err := os.MkdirTemp("", "lhm")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "longhorn-manager")
	// The flags are those of scripts/build.sh, so that little is compiled twice.
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the program: %w: %s", err, out)
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), namespaceEnv+"="+program)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return 1, nil
	}
	return 0, err
}

// missing returns the first requirement of the tests that is not met here.
func missing() string {
	if os.Getuid() != 0 {
		return "root"
	}
	for _, tool := range []string{"go", "unshare", "losetup", "mkfs.ext4", "mkfs.xfs", "xfs_admin"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "loop devices"
	}
	return ""
}

func need(t *testing.T) {
	t.Helper()
	what := missing()
	switch {
	case what == "":
	case os.Getenv("CI") == "true" || os.Getenv("LONGHORN_E2E") == "required":
		t.Fatalf("needs %s, and must run here", what)
	default:
		t.Skipf("needs %s", what)
	}
}

// number reads a number from the environment. It returns other if there is none.
func number(t *testing.T, name string, other int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// run runs a tool and returns its output.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// patience limits the waits that have no deadline of their own.
const patience = 30 * time.Second

// poll calls ask repeatedly until it returns nil. It is for changes that the kernel does not report.
func poll(what string, ask func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s, for %v: %w", what, patience, err)
		}
	}
}
