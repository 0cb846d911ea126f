package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func untar(t *testing.T, r io.Reader) (names []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(tr)
		require.NoError(t, err)
		names = append(names, h.Name)
		files[h.Name] = data
	}
}

func TestBuildWritesADockerArchiveWhoseDigestsAgree(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	require.NoError(t, os.WriteFile(base, make([]byte, 1024), 0o644))
	top := NewLayer()
	top.Bytes("/opt/a/b", []byte("hello"), 0o755)
	top.Bytes("/opt/a/b", []byte("second"), 0o755)
	out := filepath.Join(dir, "image.tar")
	c := Config{Name: "localhost/x:dev", Entrypoint: []string{"/opt/a/b"}, Env: []string{"A=1"}}
	require.NoError(t, Build(out, c, base, top))
	raw, err := os.ReadFile(out)
	require.NoError(t, err)
	_, files := untar(t, bytes.NewReader(raw))
	var manifest []manifestEntry
	require.NoError(t, json.Unmarshal(files["manifest.json"], &manifest))
	want := []string{"localhost/x:dev"}
	assert.Equal(t, want, manifest[0].RepoTags)
	want = []string{"layer-0.tar", "layer-1.tar"}
	assert.Equal(t, want, manifest[0].Layers)
	var config imageConfig
	require.NoError(t, json.Unmarshal(files[manifest[0].Config], &config))
	for i, layer := range manifest[0].Layers {
		sum := sha256.Sum256(files[layer])
		got := "sha256:" + hex.EncodeToString(sum[:])
		assert.Equal(t, config.RootFS.DiffIDs[i], got, "layer %d", i)
	}
	names, inside := untar(t, bytes.NewReader(files["layer-1.tar"]))
	assert.Equal(t, []string{"opt/", "opt/a/", "opt/a/b"}, names)
	assert.Equal(t, "hello", string(inside["opt/a/b"]))
	name, err := Repository(out)
	require.NoError(t, err)
	assert.Equal(t, "localhost/x:dev", name)
	again := filepath.Join(dir, "again.tar")
	require.NoError(t, Build(again, c, base, top))
	second, _ := os.ReadFile(again)
	assert.True(t, bytes.Equal(raw, second), "the same input made another archive")
}

func TestRepositoryRefusesWhatIsNoImage(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, os.WriteFile(p, make([]byte, 1024), 0o644))
	_, err := Repository(p)
	assert.Error(t, err)
}

func TestParseLDD(t *testing.T) {
	for name, c := range map[string]struct {
		out   string
		want  []string
		fails bool
	}{
		"libraries, loader and vdso → the paths": {
			out:  "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n",
			want: []string{"/lib/x/libc.so.6", "/lib64/ld.so.2"},
		},
		"a missing library → error": {out: "\tlibz.so => not found\n", fails: true},
		"static → none":             {out: "\tstatically linked\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseLDD(c.out)
			assert.Equal(t, c.fails, err != nil, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// The test really runs the program. It must start, still wait after a while without using processor time, and exit on
// SIGTERM.
func TestPauseProgramWaits(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the sandbox program exists for amd64 only")
	}
	program, err := pauseProgram("amd64")
	require.NoError(t, err)
	p := filepath.Join(t.TempDir(), "pause")
	require.NoError(t, os.WriteFile(p, program, 0o755))
	cmd := exec.Command(p)
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	require.NoError(t, err)
	// Bit 16 of the mask is signal 17, SIGCHLD. The process that runs this test may ignore other signals.
	_, after, _ := strings.Cut(string(status), "SigIgn:\t")
	line, _, _ := strings.Cut(after, "\n")
	ignored, err := strconv.ParseUint(line, 16, 64)
	require.NoError(t, err)
	assert.NotZero(t, ignored&(1<<16), "does not ignore SIGCHLD: SigIgn is %q", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err = <-done
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, syscall.SIGTERM, exit.Sys().(syscall.WaitStatus).Signal())
	used := cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
	assert.LessOrEqual(t, used, 100*time.Millisecond, "used %v of processor time while waiting", used)
	_, err = pauseProgram("riscv64")
	assert.Error(t, err, "another architecture made no error")
}
