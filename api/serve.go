package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Limits for clients that are slow or disconnected. A response may take as long as a forwarded request may.
const (
	readTimeout   = 30 * time.Second
	writeTimeout  = responseTimeout + 30*time.Second
	idleTimeout   = 120 * time.Second
	drainTimeout  = 10 * time.Second
	maxHeaderSize = 64 << 10 // bytes
)

// Serve answers on the listener until ctx ends. Then it waits for a while for requests under way and returns nil. It
// closes the listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderSize,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the REST API on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // the clients that are still connected had enough time
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("shut down the REST API: %w", err)
	}
	return nil
}
