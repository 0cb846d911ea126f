package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func shell(t *testing.T, script, stdin string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	r := Request{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "WORD=given"}}
	code, err := Exec(ctx, dial(t), r, Streams{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	return code, out.String(), errs.String()
}

func TestProgramsHaveStreamsEnvironmentAndExitCode(t *testing.T) {
	code, out, errs := shell(t, `echo "$WORD $(cat)"; echo bad >&2; exit 7`, "input")
	if code != 7 || out != "given input\n" || errs != "bad\n" {
		t.Errorf("exit code %d, output %q, errors %q; want 7, %q, %q", code, out, errs, "given input\n", "bad\n")
	}
	if code, _, _ := shell(t, "kill -9 $$", ""); code != 137 {
		t.Errorf("killed by signal 9: exit code %d, want 137", code)
	}
}

func TestProgramThatDoesNotExistIsAnError(t *testing.T) {
	_, err := Exec(context.Background(), dial(t), Request{Argv: []string{"no-such-program"}}, Streams{})
	var told Error
	if !errors.As(err, &told) {
		t.Errorf("error %v, want one that the server told", err)
	}
}

// Many megabytes each way find every limit of buffers and windows.
func TestMuchInputComesBackWhole(t *testing.T) {
	data := make([]byte, 20<<20)
	_, _ = rand.New(rand.NewSource(1)).Read(data)
	var out bytes.Buffer
	code, err := Exec(context.Background(), dial(t), Request{Argv: []string{"/bin/cat"}},
		Streams{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: io.Discard})
	if err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	if sha256.Sum256(out.Bytes()) != sha256.Sum256(data) {
		t.Errorf("%d bytes came back and differ from the %d sent", out.Len(), len(data))
	}
}

// A program that never reads must not stand in the way of a signal.
func TestSignalReachesAProgramThatDoesNotReadItsInput(t *testing.T) {
	signals := make(chan os.Signal, 1)
	ready := writerFunc(func(p []byte) (int, error) {
		signals <- unix.SIGTERM
		return len(p), nil
	})
	code, err := Exec(context.Background(), dial(t), Request{Argv: []string{"/bin/sh", "-c", "echo ready; while :; do sleep 1; done"}},
		Streams{Stdin: endless{}, Stdout: ready, Stderr: io.Discard, Signals: signals})
	if err != nil || code != 128+15 {
		t.Errorf("exit code %d, %v; want %d", code, err, 128+15)
	}
}

func TestBackgroundProgramsOutliveTheRequest(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// It keeps the standard output of the shell open, and answers only later.
	code, out, _ := shell(t, fmt.Sprintf("{ read x < %s; echo \"$x back\" > %s; } & echo started", pipe, pipe), "")
	if code != 0 || out != "started\n" {
		t.Fatalf("exit code %d, output %q", code, out)
	}
	if err := os.WriteFile(pipe, []byte("there and\n"), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(pipe); err != nil || string(got) != "there and back\n" {
		t.Errorf("the background program answers %q, %v", got, err)
	}
}

func TestProgramIsHungUpOnWhenItsClientGoes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	script := fmt.Sprintf("trap 'echo hung up > %s; exit' HUP; echo ready; while :; do sleep 0.1; done", pipe)
	_, err := Exec(ctx, dial(t), Request{Argv: []string{"/bin/sh", "-c", script}}, Streams{
		Stdout: writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }),
		Stderr: io.Discard,
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context was canceled", err)
	}
	if got, err := os.ReadFile(pipe); err != nil || string(got) != "hung up\n" {
		t.Errorf("the program says %q, %v", got, err)
	}
}

func TestTerminal(t *testing.T) {
	var out bytes.Buffer
	code, err := Exec(context.Background(), dial(t), Request{
		Argv:     []string{"/bin/sh", "-c", "test -t 0 && test -t 1 && stty size; read line; echo got $line; exit 3"},
		Env:      []string{"PATH=/usr/bin:/bin"},
		Terminal: &Size{Rows: 33, Columns: 77},
	}, Streams{Stdin: strings.NewReader("typed\n"), Stdout: &out, Stderr: io.Discard})
	if err != nil || code != 3 {
		t.Errorf("exit code %d, %v; want 3", code, err)
	}
	if !strings.Contains(out.String(), "33 77\r\n") || !strings.Contains(out.String(), "got typed\r\n") {
		t.Errorf("the terminal shows %q", out.String())
	}
}

func TestConnectPassesBothDirectionsAndTheirEnds(t *testing.T) {
	target, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		conn, err := target.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // until the client's end
		_, _ = conn.Write(append([]byte("heard "), all...))
	}()
	conn, err := Connect(context.Background(), dial(t), "unix", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("words"))
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "heard words" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := Connect(context.Background(), dial(t), "unix", "/no/such/socket"); err == nil {
		t.Error("connected to a socket that does not exist")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
