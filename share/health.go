package share

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/longhorn-lep/longhorn-manager/share/proto"
)

// healthService answers the kubelet's readiness probe, and the leader's question about the recovery data.
type healthService struct {
	health   *health.Server
	recovery recoveryService
	server   *grpc.Server
	address  string
	done     chan struct{}
}

// serveHealth answers NOT_SERVING until another status is set, and until close.
func serveHealth(ctx context.Context, address string) (*healthService, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for health checks: %w", err)
	}
	h := &healthService{health: health.NewServer(), server: grpc.NewServer(healthOptions()...), address: listener.Addr().String(), done: make(chan struct{})}
	h.set(false)
	healthpb.RegisterHealthServer(h.server, h.health)
	proto.RegisterShareServer(h.server, &h.recovery)
	go func() {
		defer close(h.done)
		// stops only with close; if it fails, the probe fails, which shows it
		_ = h.server.Serve(newBoundListener(listener, maxHealthConns, maxHealthConnsFromOne))
	}()
	return h, nil
}

func (h *healthService) set(serving bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	h.health.SetServingStatus("", status)
}

func (h *healthService) close() {
	h.server.Stop()
	<-h.done
}
