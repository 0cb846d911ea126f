package agent

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// Dial connects to a server from within the named network namespace.
func Dial(ctx context.Context, namespace, address string) (net.Conn, error) {
	var conn net.Conn
	err := netns.Do(namespace, func() (err error) {
		// An IP address is dialed by this thread. No other thread would be in the namespace.
		d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: -1}
		conn, err = d.DialContext(ctx, "tcp4", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reach the agent: %w", err)
	}
	return conn, nil
}

// DialInside connects to an address as the server's machine sees it.
func DialInside(ctx context.Context, namespace, server, network, address string) (net.Conn, error) {
	conn, err := Dial(ctx, namespace, server)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, conn, network, address)
}

// Output runs a program without input and returns its output. An exit code other than 0 is an error that contains the
// output.
func Output(ctx context.Context, namespace, address string, argv ...string) (string, error) {
	conn, err := Dial(ctx, namespace, address)
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	code, err := Exec(ctx, conn, Request{Argv: argv}, Streams{Stdout: &out, Stderr: &errs})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(errs.String()+out.String()))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(out.String()), nil
}
