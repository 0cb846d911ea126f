// Package reach asks whether a machine is there, by its addresses alone. It knows nothing of what listens on them.
package reach

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// patience is how long an address has to answer. Within a cluster an answer takes a millisecond.
const patience = time.Second

// Any tells whether one of these addresses (host:port) answers a TCP connection: by accepting it, or by refusing it, which
// takes a machine that runs. It returns after a second at the latest, and false for no address.
func Any(ctx context.Context, addresses []string) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan bool, len(addresses))
	for _, address := range addresses {
		go func() { answers <- one(ctx, address) }()
	}
	for range addresses {
		if <-answers {
			return true
		}
	}
	return false
}

func one(ctx context.Context, address string) bool {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
	}
	conn.Close()
	return true
}
