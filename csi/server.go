package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/unixsocket"
)

// stopTimeout is how long calls under way may take to finish when a server stops.
const stopTimeout = 10 * time.Second

// socketPath parses an endpoint: unix:///path or a path.
func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: must be unix:// and an absolute path", endpoint)
	}
	return filepath.Clean(path), nil
}

// listenUnix listens on a socket that only root may use. It creates the directory.
func listenUnix(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of a socket: %w", err)
	}
	return unixsocket.Listen(path)
}

// serve runs a gRPC server until ctx is done, and then waits for calls under way.
func serve(ctx context.Context, l net.Listener, log *logrus.Entry, register func(*grpc.Server)) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(logCalls(log)))
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	forceStop := time.AfterFunc(stopTimeout, server.Stop)
	defer forceStop.Stop()
	server.GracefulStop()
	if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// logCalls logs every call with its code. It logs only the request fields that are listed here, so never a secret.
func logCalls(log *logrus.Entry) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handle(ctx, req)
		entry := log.WithFields(requestFields(req)).WithFields(logrus.Fields{
			"method":   info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:],
			"code":     status.Code(err).String(),
			"duration": time.Since(start).Round(time.Millisecond).String(),
		})
		switch status.Code(err) {
		case codes.OK:
			entry.Debug("Answered a call")
		case codes.Unimplemented:
			entry.WithError(err).Debug("A call failed")
		default:
			entry.WithError(err).Warn("A call failed")
		}
		return response, err
	}
}

func requestFields(req any) logrus.Fields {
	fields := logrus.Fields{}
	add := func(key, value string) {
		if value != "" {
			fields[key] = value
		}
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		add("volume", r.GetVolumeId())
	}
	if r, ok := req.(interface{ GetSourceVolumeId() string }); ok {
		add("volume", r.GetSourceVolumeId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshot", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		if _, isSnapshot := req.(*csipb.CreateSnapshotRequest); isSnapshot {
			add("snapshot", r.GetName())
		} else {
			add("volume", r.GetName())
		}
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("node", r.GetNodeId())
	}
	if r, ok := req.(interface{ GetStagingTargetPath() string }); ok {
		add("staging", r.GetStagingTargetPath())
	}
	if r, ok := req.(interface{ GetTargetPath() string }); ok {
		add("target", r.GetTargetPath())
	}
	return fields
}
