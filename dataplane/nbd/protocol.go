package nbd

import "fmt"

// Numbers of the protocol, with the names of its specification without the NBD_ prefix.
const (
	magicServer     uint64 = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption     uint64 = 0x49484156454f5054 // "IHAVEOPT"
	magicOptReply   uint64 = 0x0003e889045565a9
	magicRequest    uint32 = 0x25609513
	magicReply      uint32 = 0x67446698
	magicStructured uint32 = 0x668e33ef
)

// Handshake flags, server to client and client to server.
const (
	flagFixedNewstyle uint16 = 1 << 0
	flagNoZeroes      uint16 = 1 << 1
)

// Options.
const (
	optExportName      uint32 = 1
	optAbort           uint32 = 2
	optList            uint32 = 3
	optStartTLS        uint32 = 5
	optInfo            uint32 = 6
	optGo              uint32 = 7
	optStructuredReply uint32 = 8
	optListMetaContext uint32 = 9
	optSetMetaContext  uint32 = 10
	optAuth            uint32 = 0x4c480001 // private: "LH" 1, see auth.go
	optAuthTLS         uint32 = 0x4c480002 // private: "LH" 2, see auth.go
)

// Option replies. Replies with the top bit set are errors.
const (
	repAck         uint32 = 1
	repServer      uint32 = 2
	repInfo        uint32 = 3
	repMetaContext uint32 = 4
	repAuthNonce   uint32 = 0x4c480001 // private: the answer to an empty optAuth
	repAuthProof   uint32 = 0x4c480002 // private: the server's proof
	repErrBit      uint32 = 1 << 31
	repErrUnsup           = repErrBit | 1
	repErrPolicy          = repErrBit | 2
	repErrInvalid         = repErrBit | 3
	repErrPlatform        = repErrBit | 4
	repErrTLSReqd         = repErrBit | 5
	repErrUnknown         = repErrBit | 6
	repErrShutdown        = repErrBit | 7
	repErrTooBig          = repErrBit | 9
)

// Information types inside repInfo.
const (
	infoExport      uint16 = 0
	infoName        uint16 = 1
	infoDescription uint16 = 2
	infoBlockSize   uint16 = 3
)

// Transmission flags: the capabilities of an export.
const (
	txHasFlags    uint16 = 1 << 0
	txReadOnly    uint16 = 1 << 1
	txFlush       uint16 = 1 << 2
	txFUA         uint16 = 1 << 3
	txTrim        uint16 = 1 << 5
	txWriteZeroes uint16 = 1 << 6
	txDF          uint16 = 1 << 7
	txMultiConn   uint16 = 1 << 8
)

// command is the type of a request.
type command uint16

const (
	cmdRead        command = 0
	cmdWrite       command = 1
	cmdDisc        command = 2
	cmdFlush       command = 3
	cmdTrim        command = 4
	cmdCache       command = 5
	cmdWriteZeroes command = 6
	cmdBlockStatus command = 7
	cmdControl     command = 0x4c48 // private: "LH", see control.go
)

// String returns the name of the command as it appears in errors and logs.
func (c command) String() string {
	switch c {
	case cmdRead:
		return "read"
	case cmdWrite:
		return "write"
	case cmdDisc:
		return "disconnect"
	case cmdFlush:
		return "flush"
	case cmdTrim:
		return "trim"
	case cmdCache:
		return "cache"
	case cmdWriteZeroes:
		return "write zeroes"
	case cmdBlockStatus:
		return "block status"
	case cmdControl:
		return "control"
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// Command flags.
const (
	cmdFlagFUA      uint16 = 1 << 0
	cmdFlagNoHole   uint16 = 1 << 1
	cmdFlagDF       uint16 = 1 << 2
	cmdFlagReqOne   uint16 = 1 << 3
	cmdFlagFastZero uint16 = 1 << 4
)

// Structured reply chunks.
const (
	chunkFlagDone uint16 = 1 << 0

	chunkNone        uint16 = 0
	chunkOffsetData  uint16 = 1
	chunkOffsetHole  uint16 = 2
	chunkBlockStatus uint16 = 5
	chunkControl     uint16 = 0x4c48 // private: the reply to cmdControl
	chunkErrBit      uint16 = 1 << 15
	chunkError              = chunkErrBit | 1
)

// contextAllocation is the only metadata context that is served. contextID is the number that this server gives it.
const (
	contextAllocation        = "base:allocation"
	contextID         uint32 = 1
)

const (
	// MaxPayload is the largest READ or WRITE, in bytes, that the server accepts and the client sends. It is also the
	// most that the specification allows a peer to assume without negotiation.
	MaxPayload = 32 << 20

	// maxName is the specification's limit on strings: export names, context names, error texts.
	maxName = 4096

	// maxOptionData limits the memory, in bytes, that one option or option reply can make the other side hold.
	maxOptionData = 64 << 10

	// maxOptionSkip limits the bytes that are read and dropped to stay in step with a peer that sent too much.
	maxOptionSkip = 1 << 20

	// maxExtents limits the extents of one block status reply.
	maxExtents = 16 << 10

	// maxStatusChunk limits the block status chunk that the client accepts from a server, in bytes.
	maxStatusChunk = 4 + 8*(128<<10)
)
