package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// ErrNotOffered means that no process of this node has offered the service since the machine was started. Or the
// process that answers has an earlier release, and does not know the service.
var ErrNotOffered = errors.New("the instance manager does not offer this call")

// ErrRefused means that nothing listens on the socket, so the question was not sent.
var ErrRefused = errors.New("no process listens on the instance manager's socket")

// Generations asks the data-plane process of this node whether an engine is in force.
type Generations struct {
	socket string
	rpc    proto.GenerationsClient
	conn   *grpc.ClientConn
}

// NewGenerations creates a client for a unix socket. It connects when it is used. The caller must Close it.
func NewGenerations(socket string) (*Generations, error) {
	const soon = 200 * time.Millisecond // a process that was replaced soon answers again
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: soon, Multiplier: 1, MaxDelay: soon},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", socket, err)
	}
	return &Generations{socket: socket, rpc: proto.NewGenerationsClient(conn), conn: conn}, nil
}

// InForce asks once. ctx should have a deadline. If the error wraps ErrNotOffered or ErrRefused, certainly no engine
// has heard the question. After any other error an engine may have heard it.
func (g *Generations) InForce(ctx context.Context, r *proto.InForceRequest) (*proto.InForceReply, error) {
	if _, err := os.Lstat(g.socket); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
	}
	if err := g.isRefused(ctx); err != nil {
		return nil, err
	}
	reply, err := g.rpc.InForce(ctx, r)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
	case err != nil:
		return nil, fmt.Errorf("call %s: %w", g.socket, err)
	}
	return reply, nil
}

// isRefused tries the socket if there is no connection to it. It must be called before the question. After the
// question, a refusal would not show whether the question was sent over an earlier connection.
func (g *Generations) isRefused(ctx context.Context) error {
	if g.conn.GetState() == connectivity.Ready {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
	switch {
	case err == nil:
		_ = conn.Close()
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case errors.Is(err, os.ErrNotExist): // it has just been removed
		return fmt.Errorf("%w: %w", ErrNotOffered, err)
	}
	return nil
}

// Close ends all calls.
func (g *Generations) Close() error { return g.conn.Close() }
