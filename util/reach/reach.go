// Package reach checks whether a machine answers, only by its addresses. It knows nothing about the services behind
// them.
package reach

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// answerTimeout is how long an address has to answer. Within a cluster an answer takes a millisecond.
const answerTimeout = time.Second

// Any reports whether one of these addresses (host:port) answers a TCP connection. It may accept the connection or
// refuse it: both need a running machine. Any returns after a second at the latest. Without addresses it returns false.
func Any(ctx context.Context, addresses []string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	results := make(chan bool, len(addresses))
	for _, address := range addresses {
		go func() { results <- answers(ctx, address) }()
	}
	for range addresses {
		if <-results {
			return true
		}
	}
	return false
}

func answers(ctx context.Context, address string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
	}
	conn.Close()
	return true
}
