package client

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// If the caller sets no deadline, the process sees the deadline of the client.
func TestACallOfTheClientHasADeadline(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	left := make(chan time.Duration, 1)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if d, has := stream.Context().Deadline(); has {
			left <- time.Until(d)
		}
		close(left)
		return status.Error(codes.Unimplemented, "seen")
	}))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := New(socket)
	require.NoError(t, err)
	_, err = c.ReplicaStop(context.Background(), &proto.ReplicaRef{Name: "r"})
	assert.Equal(t, codes.Unimplemented, status.Code(err), err)
	d, has := <-left
	assert.True(t, has)
	assert.LessOrEqual(t, d, callTimeout)
	require.NoError(t, c.Close())
	s.Stop()
	require.NoError(t, <-served)
}
