package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
)

// ErrNotOffered says that no process of this node has offered the service since the machine was started, or that the one which answers does
// not know it: it is of an earlier release.
var ErrNotOffered = errors.New("the instance manager does not offer this")

// Generations asks the data-plane process of this node whether an engine is in force.
type Generations struct {
	socket string
	rpc    proto.GenerationsClient
	conn   *grpc.ClientConn
}

// NewGenerations makes a client for a unix socket. It connects when it is used. The caller must Close it.
func NewGenerations(socket string) (*Generations, error) {
	const soon = 200 * time.Millisecond // a process that was replaced answers again soon
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: soon, Multiplier: 1, MaxDelay: soon},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", socket, err)
	}
	return &Generations{socket: socket, rpc: proto.NewGenerationsClient(conn), conn: conn}, nil
}

// InForce asks once. ctx should have a deadline. The error wraps ErrNotOffered where nothing can answer; any other error is no answer.
func (g *Generations) InForce(ctx context.Context, r *proto.InForceRequest) (*proto.InForceReply, error) {
	if _, err := os.Lstat(g.socket); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
	}
	reply, err := g.rpc.InForce(ctx, r)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("%w: %w", ErrNotOffered, err)
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", g.socket, err)
	}
	return reply, nil
}

// Close ends all calls.
func (g *Generations) Close() error { return g.conn.Close() }
