// Package client calls a node's data-plane process. It has the calls of its gRPC service, and a watch that survives
// restarts of either side.
//
// It must know neither the meaning of the state nor Kubernetes.
package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// These are the pauses between attempts to reach a process that does not answer.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// callTimeout limits a call without a deadline of its caller. The process answers sooner, even if a disk hangs or an
// engine takes long to stop. A process that does not answer in time is stuck itself, or has a version that waits
// without limit.
const callTimeout = 40 * time.Second

// Client has every call of the service. If the process is not available, a call fails at once with UNAVAILABLE.
type Client struct {
	proto.InstanceManagerClient
	conn *grpc.ClientConn
}

// New creates a client for a unix socket. It connects when it is used. The caller must Close it.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), // the watch is always active
		grpc.WithUnaryInterceptor(withDeadline(callTimeout)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause},
			MinConnectTimeout: maxPause,
		}))
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", socket, err)
	}
	return &Client{InstanceManagerClient: proto.NewInstanceManagerClient(conn), conn: conn}, nil
}

// withDeadline adds a deadline to each call that has none.
func withDeadline(timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, has := ctx.Deadline(); !has {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		return call(ctx, method, request, reply, conn, opts...)
	}
}

// Close ends all calls.
func (c *Client) Close() error { return c.conn.Close() }

// WatchStates calls onState with the whole state at once and after every change. It calls onState with nil, once each
// time, when the process cannot be reached or has exited. It retries until ctx ends, then returns. onState is called by
// one goroutine at a time and should not block.
func (c *Client) WatchStates(ctx context.Context, onState func(*proto.State)) {
	pause, reachable := firstPause, true // so that onState learns of the first failure
	for ctx.Err() == nil {
		err := c.watch(ctx, func(s *proto.State) {
			pause, reachable = firstPause, true
			onState(s)
		})
		if ctx.Err() != nil {
			return
		}
		if reachable && err != nil {
			reachable = false
			onState(nil)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
		c.conn.ResetConnectBackoff()
	}
}

// watch receives states until the stream ends, and returns the reason.
func (c *Client) watch(ctx context.Context, onState func(*proto.State)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Watch(ctx, &proto.WatchRequest{})
	if err != nil {
		return err
	}
	for {
		s, err := stream.Recv()
		if err != nil {
			return err
		}
		onState(s)
	}
}
