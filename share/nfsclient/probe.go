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

// Prober sends questions to an NFS server. Each question has its own connection, so that it shows whether new clients
// are served, too.
type Prober struct {
	address string
	limit   time.Duration
}

// NewProber returns a Prober for the server at a port of this machine, which must answer within limit.
func NewProber(port int, limit time.Duration) Prober {
	return Prober{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), limit: limit}
}

// Null asks over a connection whether an NFS server answers at all, to any client (RFC 7530, 16.1). It waits until the
// connection's deadline. If it returns nil, the connection can be used further. ErrReply: the answer does not come from
// an NFS server.
func Null(conn io.ReadWriter) error {
	xid := rand.Uint32()
	record, err := ask(conn, nullCall(xid))
	if err != nil {
		return err
	}
	return parseNull(xid, record)
}

// ask sends a message and returns the next one that arrives.
func ask(conn io.ReadWriter, message []byte) ([]byte, error) {
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	return readRecord(conn)
}

// Null asks whether the server answers at all.
func (p Prober) Null(ctx context.Context) error {
	if err := p.with(ctx, func(conn net.Conn) error { return Null(conn) }); err != nil {
		return fmt.Errorf("calling NULL at the NFS server at %s: %w", p.address, err)
	}
	return nil
}

// Lookup returns the file handle of an export. The server reads the export's file system for it, but no file. If the
// server refused, the error is a StatusError.
func (p Prober) Lookup(ctx context.Context, export string) ([]byte, error) {
	xid := rand.Uint32()
	var handle []byte
	record, err := p.call(ctx, lookupCall(xid, export))
	if err == nil {
		handle, err = parseLookup(xid, record)
	}
	if err != nil {
		return nil, fmt.Errorf("looking up /%s at the NFS server at %s: %w", export, p.address, err)
	}
	return handle, nil
}

// Compound makes the server execute count operations, in a minor version of NFSv4, as root. It returns the answer from
// the first result on. If the server refused, the error is a StatusError.
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

// with calls f with a connection that is closed at the limit or when the context is done.
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
