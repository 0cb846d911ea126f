package client

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// stuck receives questions and answers none.
type stuck struct {
	proto.UnimplementedGenerationsServer
	heard atomic.Int64
}

func (s *stuck) InForce(ctx context.Context, _ *proto.InForceRequest) (*proto.InForceReply, error) {
	s.heard.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// An engine can have heard a question only if some process accepted the question.
func TestARefusedQuestionIsKnownFromOneWithoutAnAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	g, err := NewGenerations(socket)
	require.NoError(t, err)
	defer g.Close()
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := g.InForce(ctx, &proto.InForceRequest{Volume: "vol"})
		return err
	}
	require.ErrorIs(t, ask(), ErrNotOffered)

	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false) // as after a process that was killed
	server, heard := grpc.NewServer(), &stuck{}
	proto.RegisterGenerationsServer(server, heard)
	go func() { _ = server.Serve(l) }()
	require.Eventually(t, func() bool { err = ask(); return heard.heard.Load() > 0 }, time.Minute, time.Millisecond)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrRefused)
	assert.NotErrorIs(t, err, ErrNotOffered)

	server.Stop()
	require.Eventually(t, func() bool { return errors.Is(ask(), ErrRefused) }, time.Minute, time.Millisecond)
}
