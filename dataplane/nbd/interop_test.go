package nbd_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// need skips the test if a tool is missing, except in CI, where it must exist.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), err)
		t.Skip(err)
	}
}

// run runs a tool and returns its output.
func run(t *testing.T, tool string, args ...string) string {
	t.Helper()
	need(t, tool)
	cmd := exec.CommandContext(within(t), tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
	return string(out)
}

func uri(path, name string) string { return "nbd+unix:///" + name + "?socket=" + path }

// randomFile creates a file of size bytes. Its middle third is a hole.
func randomFile(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(content[:size/3])
	_, _ = rng.Read(content[2*size/3:])
	path = filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path, content
}

func TestNbdinfoUnderstandsTheServer(t *testing.T) {
	m := memory.New(1 << 20)
	require.NoError(t, m.WriteAt(t.Context(), []byte("x"), 8192, false))
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
	err := json.Unmarshal([]byte(out), &info)
	require.NoError(t, err)
	require.Len(t, info.Exports, 1, out)
	x := info.Exports[0]
	assert.True(t, info.Structured, out)
	assert.Equal(t, "vol", x.Name)
	assert.Equal(t, "words", x.Description)
	assert.Equal(t, int64(1<<20), x.Size)
	assert.Equal(t, []string{"base:allocation"}, x.Contexts)
	assert.True(t, x.Flush)
	assert.True(t, x.FUA)
	assert.True(t, x.Trim)
	assert.True(t, x.Zero)
	assert.True(t, x.DF)
	assert.True(t, x.MultiConn)
	assert.False(t, x.FastZero)
	assert.False(t, x.Cache)
	assert.Equal(t, 512, x.Min)
	assert.Equal(t, 8192, x.Preferred)
	assert.Equal(t, 1<<20, x.Max)
	out = run(t, "nbdinfo", "--list", uri(path, ""))
	assert.Contains(t, out, `export="second"`)
	assert.Contains(t, out, `export="vol"`)
	want := [][]string{{"0", "8192", "3", "hole,zero"}, {"8192", "4096", "0", "data"}, {"12288", "1036288", "3", "hole,zero"}}
	var got [][]string
	for line := range strings.Lines(run(t, "nbdinfo", "--map", uri(path, "vol"))) {
		got = append(got, strings.Fields(line))
	}
	assert.True(t, slices.EqualFunc(got, want, slices.Equal[[]string]), "nbdinfo maps %v", got)
}

func TestNbdcopyBothWays(t *testing.T) {
	const size = 24 << 20
	from, content := randomFile(t, size)
	m := memory.New(size)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	run(t, "nbdcopy", from, uri(path, "vol"))
	got := make([]byte, size)
	err := m.ReadAt(t.Context(), got, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(got, content), "the copy differs")
	back := filepath.Join(t.TempDir(), "back")
	run(t, "nbdcopy", "--connections=2", "--requests=16", uri(path, "vol"), back)
	got, err = os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, bytes.Equal(got, content), "the copy back differs")
}

func TestQemuImgConvertsAndCompares(t *testing.T) {
	const size = 24 << 20
	from, content := randomFile(t, size)
	m := memory.New(size)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	run(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", from, uri(path, "vol"))
	assert.Contains(t, run(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", from, uri(path, "vol")), "identical")
	got := make([]byte, size)
	err := m.ReadAt(t.Context(), got, 0)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, content), "the copy differs")
	extents, err := m.Extents(t.Context(), 0, size)
	require.NoError(t, err)
	assert.Len(t, extents, 3)
}

func TestQemuIoDrivesEveryCommand(t *testing.T) {
	m := memory.New(1 << 20)
	_, path := listen(t, serving(m.Export("vol")), nbd.ServerOptions{})
	out := run(t, "qemu-io", "-f", "raw", uri(path, "vol"),
		"-c", "write -P 0x11 0 64k", "-c", "write -f -P 0x22 64k 64k", "-c", "write -z 16k 16k", "-c", "write -z -u 128k 64k",
		"-c", "discard 64k 32k", "-c", "flush", "-c", "aio_write -P 0x33 256k 128k", "-c", "aio_flush",
		"-c", "read -P 0x11 0 16k", "-c", "read -P 0 16k 16k", "-c", "read -P 0x11 32k 32k", "-c", "read -P 0x22 96k 32k", "-c", "read -P 0x33 256k 128k",
		"-c", "map")
	assert.NotContains(t, out, "failed")
	assert.NotContains(t, out, "rror")
	got := make([]byte, 128<<10)
	err := m.ReadAt(t.Context(), got, 256<<10)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, bytes.Repeat([]byte{0x33}, 128<<10)), "written by qemu-io, read otherwise")
}

func TestQemuIoMayNotWriteAReadOnlyExport(t *testing.T) {
	need(t, "qemu-io")
	e := memory.New(1 << 20).Export("vol")
	e.ReadOnly = true
	_, path := listen(t, serving(e), nbd.ServerOptions{})
	assert.NotContains(t, run(t, "qemu-io", "-r", "-f", "raw", uri(path, "vol"), "-c", "read -P 0 0 64k"), "failed")
	out, err := exec.CommandContext(within(t), "qemu-io", "-f", "raw", uri(path, "vol"), "-c", "write 0 64k").CombinedOutput()
	assert.Error(t, err, "opened for writing: %s", out)
}

// TestClientUnderstandsQemuNbd connects the client to a server of another project.
func TestClientUnderstandsQemuNbd(t *testing.T) {
	need(t, "qemu-nbd")
	const size = 3 << 20
	file, content := randomFile(t, size)
	path := filepath.Join(t.TempDir(), "q")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	passed, err := l.File() // socket activation: it listens before the process exists, so there is nothing to wait for
	require.NoError(t, err)
	defer passed.Close()
	cmd := exec.CommandContext(within(t), "sh", "-c", `export LISTEN_PID=$$ LISTEN_FDS=1; exec qemu-nbd -f raw -x vol -D words "$0"`, file)
	cmd.ExtraFiles = []*os.File{passed}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // qemu-nbd exits when its only client has disconnected
	c := dial(t, path, "vol", nbd.DialOptions{})
	ctx, got := within(t), make([]byte, size)
	i := c.Info()
	assert.Equal(t, int64(size), i.Size)
	assert.Equal(t, "words", i.Description)
	assert.True(t, i.Structured)
	assert.True(t, i.CanExtents)
	assert.True(t, i.CanFlush)
	assert.True(t, i.CanFUA)
	err = c.ReadAt(ctx, got, 0)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, content), "other data than in the file")
	for _, err := range []error{c.WriteAt(ctx, []byte("hello"), 1000, true), c.Zero(ctx, 4096, 4096, nbd.ZeroFUA), c.Trim(ctx, 65536, 65536, false), c.Flush(ctx)} {
		assert.NoError(t, err)
	}
	extents, err := c.Extents(ctx, 0, size)
	require.NoError(t, err)
	require.NotEmpty(t, extents)
	assert.Zero(t, extents[0].Offset)
	file2, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(file2[1000:1005]))
	assert.True(t, bytes.Equal(file2[4096:8192], make([]byte, 4096)), "the file does not hold what was written")
	assert.ErrorIs(t, c.WriteAt(ctx, []byte("x"), size, false), syscall.ENOSPC, "past the end")
}
