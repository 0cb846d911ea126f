package nbd

import (
	"context"
	"net"
)

// ZeroFlags qualify a Zero.
type ZeroFlags uint8

const (
	// ZeroFUA requests that the zeroes are durable before Zero returns.
	ZeroFUA ZeroFlags = 1 << iota
	// ZeroNoHole requests that the range stays allocated, so that a later write there cannot run out of space.
	ZeroNoHole
)

// ExtentFlags describe an extent in the terms of base:allocation. No flag means allocated data.
type ExtentFlags uint32

const (
	// ExtentHole says that the range takes no space.
	ExtentHole ExtentFlags = 1 << iota
	// ExtentZero says that the range reads as zeroes.
	ExtentZero
)

// Extent is a range with one allocation status. Offset and Length are in bytes.
type Extent struct {
	Offset int64
	Length int64
	Flags  ExtentFlags
}

// Backend serves one export. Offsets and lengths are in bytes. The server checks them before the call: range, flags,
// alignment to the export's block size. Calls arrive concurrently, in any order, and may overlap; an implementation
// must establish the order that it needs. Errors may be a syscall.Errno or an *Error, wrapped or not. Any other error
// is sent as EIO with its text.
//
// The context of a call for a connection is not cancelled when the client leaves. A started call is completed, because
// half a fan-out is worse than an unread reply. The context is cancelled only when the context of Server.Shutdown is
// done.
type Backend interface {
	// ReadAt fills the whole of p or returns an error. It must not keep p.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes the whole of p or returns an error. After an error any part of the range may have changed. With
	// fua the data must be durable before WriteAt returns. It must not keep or change p.
	WriteAt(ctx context.Context, p []byte, off int64, fua bool) error
	// Flush makes durable every write that returned before Flush was called.
	Flush(ctx context.Context) error
	// Trim says that the content of the range is no longer needed. The backend may ignore it. The content of later
	// reads is undefined.
	Trim(ctx context.Context, off, length int64, fua bool) error
	// Zero makes the range read as zeroes.
	Zero(ctx context.Context, off, length int64, flags ZeroFlags) error
	// Extents describes the range from off. It returns at least one extent. The first extent starts at off, each
	// further extent starts at the end of the previous one, and none is empty. The extents may cover less than length,
	// or more.
	Extents(ctx context.Context, off, length int64) ([]Extent, error)
}

// LateReader is a Backend that answers reads although a disk hangs, if the caller can spare the buffer.
type LateReader interface {
	// ReadLate is ReadAt, except if the disk that it reads from hangs. Then the answer comes by elsewhere, once and
	// from another goroutine: the data in other memory, or an error. When the disk has answered, if ever, ReadLate
	// returns left as true; elsewhere may be called even after that. After ReadLate has returned, p is no longer used.
	ReadLate(ctx context.Context, p []byte, off int64, elsewhere func(got []byte, err error)) (left bool, err error)
}

// BlockSize holds an export's block size constraints in bytes. Zero fields mean Min 1, Preferred 4096, Max MaxPayload.
// Min and Preferred must be powers of two. Requests that are not aligned to Min are refused with EINVAL before they
// reach the Backend.
type BlockSize struct {
	Min, Preferred, Max uint32
}

func (b BlockSize) withDefaults() BlockSize {
	if b.Min == 0 {
		b.Min = 1
	}
	if b.Preferred == 0 {
		b.Preferred = max(4096, b.Min)
	}
	if b.Max == 0 || b.Max > MaxPayload {
		b.Max = MaxPayload
	}
	return b
}

// Export describes the data that a server offers under a name.
type Export struct {
	Name, Description string
	// Size is in bytes and must not be negative.
	Size int64
	// SizeNow, if set, returns the current size: requests beyond Size are accepted when it has become larger. A client
	// learns of that by other means, and must call Client.Grow. SizeNow must not block.
	SizeNow  func() int64
	ReadOnly bool
	// MultiConn promises that a flush on one connection covers completed writes of all connections.
	MultiConn bool
	BlockSize BlockSize
	Backend   Backend
	// Closed, if set, is called once per successful Open. The server calls it after the last request of the connection
	// has finished and before it closes the connection. So a client that has seen the end of the connection knows that
	// the export was released.
	Closed func()
}

// txFlags returns the transmission flags of e.
func (e *Export) txFlags(structured bool) uint16 {
	f := txHasFlags | txFlush
	if e.ReadOnly {
		f |= txReadOnly
	} else {
		f |= txFUA | txTrim | txWriteZeroes
	}
	if structured {
		f |= txDF
	}
	if e.MultiConn {
		f |= txMultiConn
	}
	return f
}

// ConnInfo describes the peer of a connection to an Exporter.
type ConnInfo struct {
	LocalAddr, RemoteAddr net.Addr
	// Authenticated says that the peer has proved, on this connection, that it knows the secret of exactly this export.
	Authenticated bool
	// InfoOnly says that the peer wants a description (NBD_OPT_INFO). The Backend will not be called and may be nil,
	// and Closed follows at once. Because of such an Open, an Exporter must not take the export away from another
	// connection.
	InfoOnly bool
	// Drop cuts the connection. Requests that the Backend already has still finish, and their replies are dropped.
	// Closed is called after the last of them. Drop may be called at any time, from any goroutine, more than once, and
	// does not wait.
	Drop func()
}

// Exporter resolves names. Its methods are called concurrently.
type Exporter interface {
	// Open returns the export of that name for one connection. The client gets ErrUnknownExport and ErrPolicy
	// unchanged, with their text. For any other error the client learns only that the export cannot be opened, and the
	// server logs the error. Connections may share an Export if its Closed may be called once for each.
	Open(ctx context.Context, name string, c ConnInfo) (*Export, error)
	// List returns the names that anyone who can connect may know. It may return none.
	List(ctx context.Context) []string
}
