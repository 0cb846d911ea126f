package uml

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommandLine(t *testing.T) {
	want := Spec{
		Program: "/k/linux", MemoryMiB: 512, Taps: []string{"port-1", "mgmt-1"}, Disks: []string{"/d/state.img", "/d/data.img"},
		Writable: []string{"/d"}, Init: []string{"/bin/x", "component", "guest", "/spec"}, Preload: "/lib.so",
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, want.Write(file))
	s, err := readSpec(file)
	require.NoError(t, err)
	require.Equal(t, want, s)
	line := strings.Join(s.args(), " ")
	assert.True(t, strings.HasPrefix(line, "/k/linux mem=512M "), "%q does not begin with the kernel", line)
	for _, part := range []string{
		"mem=512M", "rootfstype=hostfs rootflags=/ ro",
		"vec0:transport=tap,ifname=port-1,", "vec1:transport=tap,ifname=mgmt-1,",
		"ubd0=/d/state.img ubd1=/d/data.img",
	} {
		assert.Contains(t, line, part)
	}
	end := "init=/bin/x -- component guest /spec"
	assert.True(t, strings.HasSuffix(line, end), "%q does not end in %q", line, end)
}

func TestKernelIn(t *testing.T) {
	assert.Equal(t, Kernel{Program: "/k/linux", ModulesDir: "/k/modules"}, KernelIn("/k"))
	assert.Equal(t, Kernel{Program: "/usr/bin/linux.uml", ModulesDir: "/usr/lib/uml/modules"}, KernelIn(""), "Debian's")
}

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{"/var/lib/x-1.2": true, "/a b": false, "/a,b": false, "/a:b": false, "/a=b": false} {
		err := CheckPath(path)
		assert.Equal(t, ok, err == nil, "%q: %v", path, err)
	}
}

// kernel answers one command as the kernel's console does.
func kernel(t *testing.T, answers ...[]byte) (path string, command <-chan string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mconsole")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	got := make(chan string, 1)
	go func() {
		buffer := make([]byte, 2048)
		n, from, err := l.ReadFromUnix(buffer)
		if err != nil || n != 12+512 || binary.NativeEndian.Uint32(buffer) != 0xcafebabe || binary.NativeEndian.Uint32(buffer[4:]) != 2 {
			got <- "not a command"
			return
		}
		got <- string(buffer[12 : 12+binary.NativeEndian.Uint32(buffer[8:])])
		for _, a := range answers {
			_, _ = l.WriteToUnix(a, from)
		}
	}()
	return path, got
}

func answer(failed, more uint32, text string) []byte {
	var b []byte
	for _, n := range []uint32{failed, more, uint32(len(text))} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return append(b, text...)
}

func TestPlugDisk(t *testing.T) {
	path, command := kernel(t, answer(0, 1, "first "), answer(0, 0, "last\x00"))
	assert.NoError(t, PlugDisk(context.Background(), path, 2, "/d/x.img"))
	assert.Equal(t, "config ubd2=/d/x.img", <-command, "the kernel is told")
	path, _ = kernel(t, answer(1, 0, "it is in use"))
	err := PlugDisk(context.Background(), path, 2, "/d/x.img")
	assert.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "in use")
}

func TestSilentConsoleIsGivenUp(t *testing.T) {
	path, command := kernel(t) // no answer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- PlugDisk(ctx, path, 2, "/d/x.img") }()
	<-command
	cancel()
	assert.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
}

func TestPreloadCompiles(t *testing.T) {
	needed, err := NeedsPreload()
	if err != nil {
		t.Skip("this machine does not let its processes be traced:", err)
	}
	t.Logf("needed here: %v", needed)
	file := filepath.Join(t.TempDir(), "preload.so")
	if err := BuildPreload(file); err != nil {
		if !needed {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.NotZero(t, info.Size(), "the library: %v", info)
}
