// Package forward passes on TCP connections from a listener to one address. A process that runs it inside a network
// namespace, with a listener created outside, gives access to that namespace. It must not know which namespace that is.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds how long a client waits for a target that does not answer.
const dialTimeout = 10 * time.Second

// Dialer connects to the target.
type Dialer func(context.Context) (net.Conn, error)

// To returns a Dialer for an address.
func To(target string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		d := net.Dialer{Timeout: dialTimeout}
		return d.DialContext(ctx, "tcp", target)
	}
}

// Serve accepts connections until ctx ends, then closes all of them and waits for its goroutines. If a target cannot be
// reached, only that connection fails.
func Serve(ctx context.Context, l net.Listener, dial Dialer) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept connection: %w", err)
		}
		connections.Go(func() { pass(ctx, client, dial) })
	}
}

func pass(ctx context.Context, client net.Conn, dial Dialer) {
	defer client.Close()
	server, err := dial(ctx)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	Join(client, server)
}

// Join copies between two connections until both directions have ended.
func Join(a, b net.Conn) {
	var directions sync.WaitGroup
	directions.Go(func() { oneWay(a, b) })
	directions.Go(func() { oneWay(b, a) })
	directions.Wait()
}

// oneWay copies until the source ends, and passes the end on, while the other direction may continue.
func oneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}
