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
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		files[h.Name] = data
	}
}

func TestBuildWritesADockerArchiveWhoseDigestsAgree(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	if err := os.WriteFile(base, make([]byte, 1024), 0o644); err != nil {
		t.Fatal(err)
	}
	top := NewLayer()
	top.Bytes("/opt/a/b", []byte("hello"), 0o755)
	top.Bytes("/opt/a/b", []byte("second"), 0o755)
	out := filepath.Join(dir, "image.tar")
	c := Config{Name: "localhost/x:dev", Entrypoint: []string{"/opt/a/b"}, Env: []string{"A=1"}}
	if err := Build(out, c, base, top); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	_, files := untar(t, bytes.NewReader(raw))
	var manifest []manifestEntry
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if want := []string{"localhost/x:dev"}; !reflect.DeepEqual(manifest[0].RepoTags, want) {
		t.Errorf("tags %v, want %v", manifest[0].RepoTags, want)
	}
	if want := []string{"layer-0.tar", "layer-1.tar"}; !reflect.DeepEqual(manifest[0].Layers, want) {
		t.Errorf("layers %v, want %v", manifest[0].Layers, want)
	}
	var config imageConfig
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	for i, layer := range manifest[0].Layers {
		sum := sha256.Sum256(files[layer])
		if got := "sha256:" + hex.EncodeToString(sum[:]); got != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d has digest %s, config says %s", i, got, config.RootFS.DiffIDs[i])
		}
	}
	names, inside := untar(t, bytes.NewReader(files["layer-1.tar"]))
	if want := []string{"opt/", "opt/a/", "opt/a/b"}; !reflect.DeepEqual(names, want) {
		t.Errorf("layer holds %v, want %v", names, want)
	}
	if string(inside["opt/a/b"]) != "hello" {
		t.Errorf("file holds %q, want the first content added", inside["opt/a/b"])
	}
	if name, err := Repository(out); err != nil || name != "localhost/x:dev" {
		t.Errorf("Repository = %q, %v", name, err)
	}
	again := filepath.Join(dir, "again.tar")
	if err := Build(again, c, base, top); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.ReadFile(again); !bytes.Equal(raw, second) {
		t.Error("the same input made another archive")
	}
}

func TestRepositoryRefusesWhatIsNoImage(t *testing.T) {
	p := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(p, make([]byte, 1024), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Repository(p); err == nil {
		t.Error("no error")
	}
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
			if (err != nil) != c.fails || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, %v; want %v, failure %v", got, err, c.want, c.fails)
			}
		})
	}
}

// The program is run for real: it must start, still wait after a while with no
// processor time used up, and end by SIGTERM.
func TestPauseProgramWaits(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the sandbox program exists for amd64 only")
	}
	program, err := pauseProgram("amd64")
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(p, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Fatalf("ended by itself: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// Bit 16 of the mask is signal 17, SIGCHLD. Others may be ignored by whoever runs this test.
	_, after, _ := strings.Cut(string(status), "SigIgn:\t")
	line, _, _ := strings.Cut(after, "\n")
	if ignored, err := strconv.ParseUint(line, 16, 64); err != nil || ignored&(1<<16) == 0 {
		t.Errorf("does not ignore SIGCHLD: SigIgn is %q", line)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = <-done
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v, want SIGTERM", err)
	}
	if used := cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime(); used > 100*time.Millisecond {
		t.Errorf("used %v of processor time while waiting", used)
	}
	if _, err := pauseProgram("riscv64"); err == nil {
		t.Error("another architecture made no error")
	}
}
