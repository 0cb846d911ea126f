package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// dial starts a server on loopback and connects to it.
func dial(t *testing.T) net.Conn {
	t.Helper()
	l, err := Listen(context.Background(), "lo", 0)
	if err != nil {
		t.Skip("needs the right to bind to an interface:", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { _ = Serve(l) }()
	conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port))
	require.NoError(t, err)
	return conn
}

func shell(t *testing.T, script, stdin string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	r := Request{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "WORD=given"}}
	code, err := Exec(ctx, dial(t), r, Streams{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	require.NoError(t, err)
	return code, out.String(), errs.String()
}

func TestProgramsHaveStreamsEnvironmentAndExitCode(t *testing.T) {
	code, out, errs := shell(t, `echo "$WORD $(cat)"; echo bad >&2; exit 7`, "input")
	assert.Equal(t, 7, code)
	assert.Equal(t, "given input\n", out)
	assert.Equal(t, "bad\n", errs)
	code, _, _ = shell(t, "kill -9 $$", "")
	assert.Equal(t, 137, code, "killed by signal 9")
}

func TestProgramThatDoesNotExistIsAnError(t *testing.T) {
	_, err := Exec(context.Background(), dial(t), Request{Argv: []string{"no-such-program"}}, Streams{})
	var told Error
	assert.ErrorAs(t, err, &told)
}

// Many megabytes in each direction test every limit of buffers and windows.
func TestMuchInputComesBackWhole(t *testing.T) {
	data := make([]byte, 20<<20)
	_, _ = rand.New(rand.NewSource(1)).Read(data)
	var out bytes.Buffer
	code, err := Exec(context.Background(), dial(t), Request{Argv: []string{"/bin/cat"}},
		Streams{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: io.Discard})
	require.NoError(t, err)
	require.Zero(t, code)
	assert.Equal(t, sha256.Sum256(data), sha256.Sum256(out.Bytes()), "%d bytes came back and differ from the %d sent", out.Len(), len(data))
}

// A program that never reads must not delay a signal.
func TestSignalReachesAProgramThatDoesNotReadItsInput(t *testing.T) {
	signals := make(chan os.Signal, 1)
	ready := writerFunc(func(p []byte) (int, error) {
		signals <- unix.SIGTERM
		return len(p), nil
	})
	code, err := Exec(context.Background(), dial(t), Request{Argv: []string{"/bin/sh", "-c", "echo ready; while :; do sleep 1; done"}},
		Streams{Stdin: endless{}, Stdout: ready, Stderr: io.Discard, Signals: signals})
	require.NoError(t, err)
	assert.Equal(t, 128+15, code)
}

func TestBackgroundProgramsOutliveTheRequest(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	// It keeps the standard output of the shell open, and answers only later.
	code, out, _ := shell(t, fmt.Sprintf("{ read x < %s; echo \"$x back\" > %s; } & echo started", pipe, pipe), "")
	require.Zero(t, code)
	require.Equal(t, "started\n", out)
	require.NoError(t, os.WriteFile(pipe, []byte("there and\n"), 0))
	got, err := os.ReadFile(pipe)
	require.NoError(t, err)
	assert.Equal(t, "there and back\n", string(got), "the background program answers")
}

func TestProgramIsHungUpOnWhenItsClientGoes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	// With env: this test may have been started with SIGHUP ignored (nohup), and a shell cannot reset that.
	script := fmt.Sprintf("trap 'echo hung up > %[1]s; exit' HUP; echo ready; for i in $(seq 300); do sleep 0.1; done; echo nothing came > %[1]s", pipe)
	_, err := Exec(ctx, dial(t), Request{Argv: []string{"/usr/bin/env", "--default-signal=HUP", "/bin/sh", "-c", script}}, Streams{
		Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }),
		Stderr: io.Discard,
	})
	assert.ErrorIs(t, err, context.Canceled)
	got, err := os.ReadFile(pipe)
	require.NoError(t, err)
	assert.Equal(t, "hung up\n", string(got))
}

func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	code, err := Exec(context.Background(), dial(t), Request{
		Argv:     []string{"/bin/sh", "-c", "test -t 0 && test -t 1 && stty size; read line; echo got $line; exit 3"},
		Env:      []string{"PATH=/usr/bin:/bin"},
		Terminal: &Size{Rows: 33, Columns: 77},
	}, Streams{Stdin: strings.NewReader("typed\n"), Stdout: &out, Stderr: io.Discard})
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	assert.Contains(t, out.String(), "33 77\r\n")
	assert.Contains(t, out.String(), "got typed\r\n")
}

func TestConnectPassesBothDirectionsAndTheirEnds(t *testing.T) {
	target, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer target.Close()
	go func() {
		conn, err := target.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // until the client closes its half
		_, _ = conn.Write(append([]byte("heard "), all...))
	}()
	conn, err := Connect(context.Background(), dial(t), "unix", target.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, _ = conn.Write([]byte("words"))
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "heard words", string(got))
	_, err = Connect(context.Background(), dial(t), "unix", "/no/such/socket")
	assert.Error(t, err, "connected to a socket that does not exist")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
