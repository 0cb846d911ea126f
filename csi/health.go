package csi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// healthTimeout limits one health check.
const healthTimeout = 5 * time.Second

// serveHealth answers GET /healthz by calling Probe on the CSI socket, until ctx is done. So a server that hangs, or
// without its socket, is unhealthy.
func serveHealth(ctx context.Context, address, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("health check of %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", healthHandler(csipb.NewIdentityClient(conn)))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: healthTimeout}
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	select {
	case err := <-done:
		return fmt.Errorf("serving health checks on %s: %w", address, err)
	case <-ctx.Done():
	}
	err = server.Close()
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

func healthHandler(identity csipb.IdentityClient) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		if _, err := identity.Probe(ctx, &csipb.ProbeRequest{}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // the caller has disconnected if this fails
	})
}
