package nfsclient

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// Prober asks an NFS server for answers. Each question has a connection of its own, so
// that it shows whether new clients are served, too.
type Prober struct {
	address string
	limit   time.Duration
}

// NewProber asks the server at a port of this machine, which must answer within limit.
func NewProber(port int, limit time.Duration) Prober {
	return Prober{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), limit: limit}
}

// Null asks over a connection whether an NFS server answers at all, and whoever asks (RFC 7530, 16.1). It waits for as long as the connection's
// deadline lets it; where it returns nil, the connection can be used for more. ErrReply: what answers is no NFS server.
func Null(conn io.ReadWriter) error {
	xid := rand.Uint32()
	record, err := ask(conn, nullCall(xid))
	if err != nil {
		return err
	}
	return parseNull(xid, record)
}

// ask sends a message and returns the one that comes next.
func ask(conn io.ReadWriter, message []byte) ([]byte, error) {
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	return readRecord(conn)
}

// Null asks whether the server answers at all.
func (p Prober) Null(ctx context.Context) error {
	if err := p.with(ctx, func(conn net.Conn) error { return Null(conn) }); err != nil {
		return fmt.Errorf("asking the NFS server at %s for an answer: %w", p.address, err)
	}
	return nil
}

// Lookup returns the file handle of an export. The server looks at the export's file system for it, and at nobody's file. The error is a
// StatusError where the server refused.
func (p Prober) Lookup(ctx context.Context, export string) ([]byte, error) {
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

// Compound has the server do operations, of which there are count, in a minor version of NFSv4, as root. It returns the answer from the first
// result on. The error is a StatusError where the server refused.
func (p Prober) Compound(ctx context.Context, minor, count uint32, operations Words) (*Reader, error) {
	xid := rand.Uint32()
	record, err := p.call(ctx, compoundCall(xid, minor, count, operations))
	if err != nil {
		return nil, err
	}
	r, _, err := parseCompound(xid, record)
	return r, err
}

func (p Prober) call(ctx context.Context, message []byte) (record []byte, err error) {
	err = p.with(ctx, func(conn net.Conn) (err error) {
		record, err = ask(conn, message)
		return err
	})
	return record, err
}

// with calls f with a connection that ends with the limit or the context.
func (p Prober) with(ctx context.Context, f func(net.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	return f(conn)
}
