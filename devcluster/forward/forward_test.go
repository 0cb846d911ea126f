package forward

import (
	"context"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The target answers only after the client has closed its half, so the end of
// one direction must be passed on while the other stays open.
func TestServePassesBothDirectionsAndHalfClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	target := listen(t)
	defer target.Close()
	answered := make(chan error, 1)
	go func() {
		conn, err := target.Accept()
		if err != nil {
			answered <- err
			return
		}
		defer conn.Close()
		got, err := io.ReadAll(conn)
		if err == nil {
			_, err = conn.Write(append([]byte("got "), got...))
		}
		answered <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	door := listen(t)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, door, To(target.Addr().String())) }()

	conn, err := net.Dial("tcp", door.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "got hello" {
		t.Errorf("read %q, %v; want \"got hello\"", got, err)
	}
	_ = conn.Close()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeClosesTheConnectionWhenNobodyAnswers(t *testing.T) {
	defer goleak.VerifyNone(t)
	gone := listen(t)
	address := gone.Addr().String()
	_ = gone.Close()
	ctx, cancel := context.WithCancel(context.Background())
	door := listen(t)
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, door, To(address)) }()
	conn, err := net.Dial("tcp", door.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v; want the connection closed", n, err)
	}
	_ = conn.Close()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
