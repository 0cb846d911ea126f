package nbd

import (
	"context"
	"net"
)

// ZeroFlags qualify a Zero.
type ZeroFlags uint8

const (
	// ZeroFUA asks that the zeroes be durable before Zero returns.
	ZeroFUA ZeroFlags = 1 << iota
	// ZeroNoHole asks that the range stay allocated, so that a later write there cannot run out of space.
	ZeroNoHole
)

// ExtentFlags describe an extent in the words of base:allocation. No flag means allocated data.
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

// Backend serves one export. Offsets and lengths are in bytes and were checked (range, flags, alignment to the export's block
// size) before the call. Calls arrive concurrently, in any order, and overlapping; an implementation must order what it must.
// Errors may be a syscall.Errno or an *Error, wrapped or not; any other is sent as EIO with its text.
//
// The context of a call served for a connection is not cancelled when the client goes away: what has begun is finished, for half
// a fan-out is worse than an unread reply. It is cancelled only when Server.Shutdown runs out of patience.
type Backend interface {
	// ReadAt fills p whole or returns an error. It must not keep p.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// WriteAt writes p whole or returns an error, after which any part of the range may have changed. With fua the data must be
	// durable before it returns. It must not keep or change p.
	WriteAt(ctx context.Context, p []byte, off int64, fua bool) error
	// Flush makes durable every write that returned before Flush was called.
	Flush(ctx context.Context) error
	// Trim says that the content of the range is no longer wanted; the backend may ignore it, and what is read after is not defined.
	Trim(ctx context.Context, off, length int64, fua bool) error
	// Zero makes the range read as zeroes.
	Zero(ctx context.Context, off, length int64, flags ZeroFlags) error
	// Extents describes the range from off: at least one extent, the first beginning at off, each beginning where the one before
	// ended, none empty. It may stop short of length or run past it.
	Extents(ctx context.Context, off, length int64) ([]Extent, error)
}

// LateReader is a Backend whose reads are answered though a disk hangs, if their caller can do without the buffer.
type LateReader interface {
	// ReadLate is ReadAt, unless the disk hangs that it reads from. Then the answer comes by elsewhere, once and from another goroutine:
	// what was read in other memory, or why nothing could be. When the disk has answered at last, if ever, ReadLate returns left; the
	// call of elsewhere may come after that too. p is not used any more when ReadLate returns.
	ReadLate(ctx context.Context, p []byte, off int64, elsewhere func(got []byte, err error)) (left bool, err error)
}

// BlockSize holds an export's block size constraints in bytes. Zero fields mean Min 1, Preferred 4096, Max MaxPayload. Min and
// Preferred must be powers of two. Requests not aligned to Min are refused with EINVAL before they reach the Backend.
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

// Export is what a server offers under a name.
type Export struct {
	Name, Description string
	// Size is in bytes and must not be negative.
	Size int64
	// SizeNow, if set, tells the size as it is now: requests beyond Size are taken once it is larger. A client learns of that by other
	// means, and must call Client.Grow. It must not block.
	SizeNow  func() int64
	ReadOnly bool
	// MultiConn promises that a flush on one connection covers writes completed on every other.
	MultiConn bool
	BlockSize BlockSize
	Backend   Backend
	// Closed, if set, is called once per successful Open: after the last request of the connection has finished and before the
	// connection is closed, so that a client which has seen the end of the connection knows that the export was released.
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

// ConnInfo tells an Exporter who asks.
type ConnInfo struct {
	LocalAddr, RemoteAddr net.Addr
	// Authenticated says that the peer has proved, on this connection, that it knows the secret of exactly this export.
	Authenticated bool
	// InfoOnly says that the peer wants a description (NBD_OPT_INFO): the Backend will not be called and may be nil, and Closed
	// follows at once. An Exporter must not let such an Open take the export over from anyone.
	InfoOnly bool
	// Drop cuts the connection. Requests already handed to the Backend still finish, their replies go nowhere, and Closed is
	// called after the last of them. It may be called at any time, from any goroutine, more than once, and does not wait.
	Drop func()
}

// Exporter resolves names. Its methods are called concurrently.
type Exporter interface {
	// Open returns the export of that name for one connection. The client gets ErrUnknownExport and ErrPolicy as such, with their
	// text; of any other error the client learns only that the export cannot be opened, and the server logs it. An Export may be
	// shared between connections if its Closed may be called once for each.
	Open(ctx context.Context, name string, c ConnInfo) (*Export, error)
	// List returns the names that anyone who can connect may know. It may return none.
	List(ctx context.Context) []string
}
