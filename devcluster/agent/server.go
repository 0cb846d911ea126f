package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/forward"
)

// Listen listens at the port of only one interface: connections that arrive through another interface, from a pod or
// another node, are not accepted.
func Listen(ctx context.Context, device string, port int) (net.Listener, error) {
	c := net.ListenConfig{
		// After a long standstill, a machine must find its connections unchanged.
		KeepAlive: -1,
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), device) })
			return errors.Join(err, failed)
		},
	}
	l, err := c.Listen(ctx, "tcp4", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", device, err)
	}
	return l, nil
}

// Serve accepts connections until the listener is closed.
func Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer conn.Close()
			s := &server{conn: conn}
			if err := s.serve(); err != nil {
				_ = s.send(frameError, []byte(err.Error())) // the client may have disconnected
			}
		}()
	}
}

type server struct {
	conn net.Conn
	mu   sync.Mutex // one frame at a time
}

func (s *server) send(k kind, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeFrame(s.conn, k, data)
}

func (s *server) serve() error {
	f, err := readFrame(s.conn)
	if err != nil {
		return err
	}
	var r Request
	if err := json.Unmarshal(f.data, &r); err != nil || f.kind != frameRequest {
		return fmt.Errorf("this is no request: %w", err)
	}
	if r.Address != "" {
		return s.connect(r)
	}
	return s.run(r)
}

// dialTimeout bounds how long a client waits for an address that does not answer.
const dialTimeout = 10 * time.Second

func (s *server) connect(r Request) error {
	target, err := net.DialTimeout(r.Network, r.Address, dialTimeout)
	if err != nil {
		return err
	}
	defer target.Close()
	if err := s.send(frameConnected, nil); err != nil {
		return err
	}
	forward.Join(s.conn, target)
	return nil
}
