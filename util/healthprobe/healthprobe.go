// Package healthprobe sends questions to gRPC health services over connections that stay open, so that a question is
// one small packet in each direction. It must not know the services.
package healthprobe

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	// answerTimeout is how long the prober waits for an answer. So the number of open questions to a slow server is
	// answerTimeout times the rate of questions.
	answerTimeout = 4 * time.Second
	// again is the time between two attempts to connect.
	again = 500 * time.Millisecond
	// buffer, in bytes, holds several questions, or answers.
	buffer = 1 << 10
)

// Prober keeps a connection to each address open. Create it with New.
type Prober struct {
	ctx    context.Context
	cancel context.CancelFunc
	asking sync.WaitGroup

	mu    sync.Mutex
	lines map[string]*grpc.ClientConn // by address; guarded by mu
	ended bool                        // guarded by mu
}

// New returns a Prober without connections. Close must be called.
func New() *Prober {
	p := &Prober{lines: map[string]*grpc.ClientConn{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Ask sends a question to an address (host:port), and returns at once. It calls answered if any answer comes within
// four seconds. A server also answers if it says that it does not serve, or that it does not know the service. answered
// is called from another goroutine.
func (p *Prober) Ask(address string, answered func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	line := p.lines[address]
	if line == nil {
		var err error
		if line, err = open(address); err != nil {
			return // not a valid address
		}
		p.lines[address] = line
	}
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, answerTimeout)
		defer cancel()
		if _, err := healthpb.NewHealthClient(line).Check(ctx, &healthpb.HealthCheckRequest{}); isAnswer(err) {
			answered()
		}
	})
}

func open(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: again, Multiplier: 1, Jitter: 0.2, MaxDelay: again}, MinConnectTimeout: time.Second,
		}))
}

// Serving asks the server at an address (host:port) once, on its own connection, whether it serves. An error means that
// no answer came before ctx was done, or that there was no server. A server that does not know the service does not
// serve.
func Serving(ctx context.Context, address string) (bool, error) {
	line, err := open(address)
	if err != nil {
		return false, fmt.Errorf("asking the health service at %s: %w", address, err)
	}
	defer func() { _ = line.Close() }() // no call is under way
	answer, err := healthpb.NewHealthClient(line).Check(ctx, &healthpb.HealthCheckRequest{})
	if !isAnswer(err) {
		return false, fmt.Errorf("asking the health service at %s: %w", address, err)
	}
	return answer.GetStatus() == healthpb.HealthCheckResponse_SERVING, nil
}

// isAnswer reports whether a server has sent this. Unavailable may come from a server, but usually means that none was
// reached.
func isAnswer(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// Keep closes the connections to all other addresses. Their open questions are not answered.
func (p *Prober) Keep(addresses map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address := range p.lines {
		if !addresses[address] {
			p.closeLocked(address)
		}
	}
}

// Renew closes the connection to an address; the next question opens a new one.
func (p *Prober) Renew(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked(address)
}

func (p *Prober) closeLocked(address string) {
	if line := p.lines[address]; line != nil {
		_ = line.Close() // it fails only if it is closed already
		delete(p.lines, address)
	}
}

// Close ends all connections and questions, and returns when no answer can come.
func (p *Prober) Close() {
	p.mu.Lock()
	p.ended = true
	for address := range p.lines {
		p.closeLocked(address)
	}
	p.mu.Unlock()
	p.cancel()
	p.asking.Wait()
}
