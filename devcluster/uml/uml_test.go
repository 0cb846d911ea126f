package uml

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	want := Spec{
		MemoryMiB: 512, Taps: []string{"port-1", "mgmt-1"}, Disks: []string{"/d/state.img", "/d/data.img"},
		Writable: []string{"/d"}, Init: []string{"/bin/x", "component", "guest", "/spec"}, Preload: "/lib.so",
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	s, err := readSpec(file)
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Fatalf("read back %+v, %v; want %+v", s, err, want)
	}
	line := strings.Join(s.args(), " ")
	for _, part := range []string{
		"mem=512M", "rootfstype=hostfs rootflags=/ ro",
		"vec0:transport=tap,ifname=port-1,", "vec1:transport=tap,ifname=mgmt-1,",
		"ubd0=/d/state.img ubd1=/d/data.img",
	} {
		if !strings.Contains(line, part) {
			t.Errorf("%q lacks %q", line, part)
		}
	}
	if end := "init=/bin/x -- component guest /spec"; !strings.HasSuffix(line, end) {
		t.Errorf("%q does not end in %q", line, end)
	}
}

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{"/var/lib/x-1.2": true, "/a b": false, "/a,b": false, "/a:b": false, "/a=b": false} {
		if err := CheckPath(path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// kernel answers one command as the kernel's console does.
func kernel(t *testing.T, answers ...[]byte) (path string, command <-chan string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "mconsole")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := PlugDisk(context.Background(), path, 2, "/d/x.img"); err != nil {
		t.Error(err)
	}
	if got := <-command; got != "config ubd2=/d/x.img" {
		t.Errorf("the kernel is told %q", got)
	}
	path, _ = kernel(t, answer(1, 0, "it is in use"))
	if err := PlugDisk(context.Background(), path, 2, "/d/x.img"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a refusal gives %v", err)
	}
}

func TestSilentConsoleIsGivenUp(t *testing.T) {
	path, command := kernel(t) // no answer
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- PlugDisk(ctx, path, 2, "/d/x.img") }()
	<-command
	cancel()
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v, want that the wait was ended", err)
	}
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
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("the library: %v, %v", info, err)
	}
}
