// Package client calls a node's data-plane process. It has the calls of its gRPC service, and a watch that survives
// restarts of either side.
//
// The watch receives a whole state and then differences. After any sequence of messages, the client holds exactly the
// state that the process would send as a whole at that revision (View). If a message is missing, the client opens
// another stream. A process of an earlier release sends whole states; the watch reports the changed names all the same.
//
// It must know neither the meaning of the state nor Kubernetes.
package client

import (
	"context"
	"errors"
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

// WatchStates is WatchChanges for a caller that does not need the changes.
func (c *Client) WatchStates(ctx context.Context, onState func(*proto.State)) {
	c.WatchChanges(ctx, func(s *proto.State, _ Change) { onState(s) })
}

// WatchChanges calls onState with the whole state at once and after every change, and with what differs from the state
// of the call before. The lists of the state are ordered by name. onState must not change the state. WatchChanges
// calls onState with nil, once each time, when the process cannot be reached or has exited. It retries until ctx ends,
// then returns. onState is called by one goroutine at a time and should not block.
func (c *Client) WatchChanges(ctx context.Context, onState func(*proto.State, Change)) {
	var view View
	pause, reachable := firstPause, true // so that onState learns of the first failure
	for ctx.Err() == nil {
		err := c.watch(ctx, func(m *proto.State) error {
			change, err := view.Apply(m)
			if err != nil {
				return err
			}
			pause, reachable = firstPause, true
			onState(view.State(), change)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		view.Reopen()
		if reachable && !errors.Is(err, ErrGap) { // after a gap the process still answers
			reachable = false
			view.Lose()
			onState(nil, Change{All: true})
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

// watch receives messages until the stream ends or onMessage returns an error, and returns the reason.
func (c *Client) watch(ctx context.Context, onMessage func(*proto.State) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Watch(ctx, &proto.WatchRequest{Differences: true})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := onMessage(m); err != nil {
			return err
		}
	}
}
