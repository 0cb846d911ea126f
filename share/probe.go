package share

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// prober asks an NFS server for answers. Each question has a connection of its own, so
// that it shows whether new clients are served, too.
type prober struct {
	address string
	limit   time.Duration
}

func newProber(port int, limit time.Duration) prober {
	return prober{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), limit: limit}
}

// null asks whether the server answers at all.
func (p prober) null(ctx context.Context) error {
	xid := rand.Uint32()
	record, err := p.call(ctx, nullCall(xid))
	if err == nil {
		err = parseNull(xid, record)
	}
	if err != nil {
		return fmt.Errorf("asking the NFS server at %s for an answer: %w", p.address, err)
	}
	return nil
}

// lookup returns the file handle of an export. The server looks at the export's file system for it, and at nobody's file.
func (p prober) lookup(ctx context.Context, export string) ([]byte, error) {
	xid := rand.Uint32()
	var handle []byte
	record, err := p.call(ctx, lookupCall(xid, export))
	if err == nil {
		handle, err = parseLookup(xid, record)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the NFS server at %s for /%s: %w", p.address, export, err)
	}
	return handle, nil
}

func (p prober) call(ctx context.Context, message []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	return readRecord(conn)
}
