package nbd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// need skips the test where a tool is missing, except in CI, where it must be there.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// run runs a tool and returns what it printed.
func run(t *testing.T, tool string, args ...string) string {
	t.Helper()
	need(t, tool)
	cmd := exec.CommandContext(within(t), tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func uri(path, name string) string { return "nbd+unix:///" + name + "?socket=" + path }

// randomFile makes a file of size bytes whose middle third is a hole.
func randomFile(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(content[:size/3])
	_, _ = rng.Read(content[2*size/3:])
	path = filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestNbdinfoUnderstandsTheServer(t *testing.T) {
	m := memory.New(1 << 20)
	if err := m.WriteAt(t.Context(), []byte("x"), 8192, false); err != nil {
		t.Fatal(err)
	}
	e := m.Export("vol")
	e.Description, e.BlockSize = "words", nbd.BlockSize{Min: 512, Preferred: 8192, Max: 1 << 20}
	_, path := listen(t, serving(e, memory.New(4096).Export("second")), nbd.ServerOptions{})

	var info struct {
		Structured bool `json:"structured"`
		Exports    []struct {
			Name        string   `json:"export-name"`
			Description string   `json:"description"`
			Size        int64    `json:"export-size"`
			Contexts    []string `json:"contexts"`
			Flush       bool     `json:"can_flush"`
			FUA         bool     `json:"can_fua"`
			Trim        bool     `json:"can_trim"`
			Zero        bool     `json:"can_zero"`
			FastZero    bool     `json:"can_fast_zero"`
			DF          bool     `json:"can_df"`
			MultiConn   bool     `json:"can_multi_conn"`
			Cache       bool     `json:"can_cache"`
			Min         int      `json:"block_size_minimum"`
			Preferred   int      `json:"block_size_preferred"`
			Max         int      `json:"block_size_maximum"`
		} `json:"exports"`
	}
	out := run(t, "nbdinfo", "--json", uri(path, "vol"))
	if err := json.Unmarshal([]byte(out), &info); err != nil || len(info.Exports) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	x := info.Exports[0]
	if !info.Structured || x.Name != "vol" || x.Description != "words" || x.Size != 1<<20 || !slices.Equal(x.Contexts, []string{"base:allocation"}) ||
		!x.Flush || !x.FUA || !x.Trim || !x.Zero || !x.DF || !x.MultiConn || x.FastZero || x.Cache || x.Min != 512 || x.Preferred != 8192 || x.Max != 1<<20 {
		t.Errorf("nbdinfo says\n%s", out)
	}
	if out := run(t, "nbdinfo", "--list", uri(path, "")); !strings.Contains(out, `export="second"`) || !strings.Contains(out, `export="vol"`) {
		t.Errorf("nbdinfo lists\n%s", out)
	}
	want := [][]string{{"0", "8192", "3", "hole,zero"}, {"8192", "4096", "0", "data"}, {"12288", "1036288", "3", "hole,zero"}}
	var got [][]string
	for line := range strings.Lines(run(t, "nbdinfo", "--map", uri(path, "vol"))) {
		got = append(got, strings.Fields(line))
	}
	if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("nbdinfo maps %v", got)
	}
}

func TestNbdcopyThereAndBack(t *testing.T) {
	const size = 24 << 20
	from, content := randomFile(t, size)
	m := memory.New(size)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	run(t, "nbdcopy", from, uri(path, "vol"))
	got := make([]byte, size)
	if err := m.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("the copy differs; %v", err)
	}
	back := filepath.Join(t.TempDir(), "back")
	run(t, "nbdcopy", "--connections=2", "--requests=16", uri(path, "vol"), back)
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("the copy back differs; %v", err)
	}
}

func TestQemuImgConvertsAndCompares(t *testing.T) {
	const size = 24 << 20
	from, content := randomFile(t, size)
	m := memory.New(size)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	run(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", from, uri(path, "vol"))
	if out := run(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", from, uri(path, "vol")); !strings.Contains(out, "identical") {
		t.Errorf("qemu-img says %s", out)
	}
	got := make([]byte, size)
	if err := m.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the copy differs; %v", err)
	}
	extents, err := m.Extents(t.Context(), 0, size)
	if err != nil || len(extents) != 3 {
		t.Errorf("the hole became %v, %v", extents, err)
	}
}

func TestQemuIoDrivesEveryCommand(t *testing.T) {
	m := memory.New(1 << 20)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	out := run(t, "qemu-io", "-f", "raw", uri(path, "vol"),
		"-c", "write -P 0x11 0 64k", "-c", "write -f -P 0x22 64k 64k", "-c", "write -z 16k 16k", "-c", "write -z -u 128k 64k",
		"-c", "discard 64k 32k", "-c", "flush", "-c", "aio_write -P 0x33 256k 128k", "-c", "aio_flush",
		"-c", "read -P 0x11 0 16k", "-c", "read -P 0 16k 16k", "-c", "read -P 0x11 32k 32k", "-c", "read -P 0x22 96k 32k", "-c", "read -P 0x33 256k 128k",
		"-c", "map")
	if strings.Contains(out, "failed") || strings.Contains(out, "rror") {
		t.Errorf("qemu-io says\n%s", out)
	}
	got := make([]byte, 128<<10)
	if err := m.ReadAt(t.Context(), got, 256<<10); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0x33}, 128<<10)) {
		t.Errorf("written by qemu-io, read otherwise; %v", err)
	}
}

func TestQemuIoMayNotWriteAReadOnlyExport(t *testing.T) {
	need(t, "qemu-io")
	e := memory.New(1 << 20).Export("vol")
	e.ReadOnly = true
	_, path := listen(t, serving(e), nbd.ServerOptions{})
	if out := run(t, "qemu-io", "-r", "-f", "raw", uri(path, "vol"), "-c", "read -P 0 0 64k"); strings.Contains(out, "failed") {
		t.Errorf("read: %s", out)
	}
	if out, err := exec.CommandContext(within(t), "qemu-io", "-f", "raw", uri(path, "vol"), "-c", "write 0 64k").CombinedOutput(); err == nil {
		t.Errorf("opened for writing: %s", out)
	}
}

// TestClientUnderstandsQemuNbd has the client talk to somebody else's server.
func TestClientUnderstandsQemuNbd(t *testing.T) {
	need(t, "qemu-nbd")
	const size = 3 << 20
	file, content := randomFile(t, size)
	path := filepath.Join(t.TempDir(), "q")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	passed, err := l.File() // socket activation: it listens before the process exists, so there is nothing to wait for
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	cmd := exec.CommandContext(within(t), "sh", "-c", `export LISTEN_PID=$$ LISTEN_FDS=1; exec qemu-nbd -f raw -x vol -D words "$0"`, file)
	cmd.ExtraFiles = []*os.File{passed}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // qemu-nbd leaves when its one client has
	c := dial(t, path, "vol", nbd.DialOptions{})
	ctx, got := within(t), make([]byte, size)
	if i := c.Info(); i.Size != size || i.Description != "words" || !i.Structured || !i.CanExtents || !i.CanFlush || !i.CanFUA {
		t.Errorf("info %+v; %s", i, stderr.String())
	}
	if err := c.ReadAt(ctx, got, 0); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other data than in the file; %v", err)
	}
	for _, err := range []error{c.WriteAt(ctx, []byte("hello"), 1000, true), c.Zero(ctx, 4096, 4096, nbd.ZeroFUA), c.Trim(ctx, 65536, 65536, false), c.Flush(ctx)} {
		if err != nil {
			t.Error(err)
		}
	}
	if extents, err := c.Extents(ctx, 0, size); err != nil || len(extents) == 0 || extents[0].Offset != 0 {
		t.Errorf("extents %v, %v", extents, err)
	}
	file2, err := os.ReadFile(file)
	if err != nil || string(file2[1000:1005]) != "hello" || !bytes.Equal(file2[4096:8192], make([]byte, 4096)) {
		t.Errorf("the file does not hold what was written; %v", err)
	}
	if err := c.WriteAt(ctx, []byte("x"), size, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("past the end: %v", err)
	}
}
