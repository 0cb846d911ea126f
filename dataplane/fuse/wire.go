package fuse

import (
	"encoding/binary"
	"errors"
	"time"
)

// These are the kernel's numbers of operations (include/uapi/linux/fuse.h). All other operations are answered with
// ENOSYS.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43
)

// These are the lengths of the kernel's structures, in bytes.
const (
	inHeaderBytes  = 40
	outHeaderBytes = 16
	writeInBytes   = 40
	readInBytes    = 40
	initInBytes    = 16 // up to flags; flags2 follows since minor 36
	initOutBytes   = 64
	fallocInBytes  = 32
	attrBytes      = 88
	entryBytes     = 40 + attrBytes
	attrOutBytes   = 16 + attrBytes
	openOutBytes   = 16
	writeOutBytes  = 8
	statfsBytes    = 80
)

// These are the flags of INIT that matter here; flags from bit 32 on are in flags2.
const (
	initAsyncRead     = 1 << 0
	initBigWrites     = 1 << 5
	initAsyncDIO      = 1 << 15
	initParallelDirOp = 1 << 18
	initMaxPages      = 1 << 22
	initExt           = 1 << 30
	initHasResend     = 1 << 39
)

// These are the flags of an open file.
const (
	openDirectIO       = 1 << 0
	openNoFlush        = 1 << 5
	openParallelWrites = 1 << 6
)

// notifyInvalInode tells the kernel that it must ask for the attributes of a node again: node, offset, length.
const (
	notifyInvalInode = 2
	invalInodeBytes  = 24
)

// notifyResend asks the kernel to send the requests again that were read and not answered.
const notifyResend = 7

const (
	protocolMajor = 7
	// protocolMinor is the newest minor version with structures that are known here; 31 is the version of Linux 5.4.
	protocolMinor, oldestMinor = 38, 31

	rootNode  = 1
	imageNode = 2
	imageName = "volume.img"

	// blockBytes is the block size that the file reports: the loop device's granularity of discards.
	blockBytes = 4096
	// background is how many requests the kernel may have under way at once; a loop device offers 128.
	background = 256
	pageBytes  = 4096

	// forever is how long the kernel may cache attributes, in seconds, because the server reports changes
	// (Server.Grow).
	forever = uint64(365 * 24 * time.Hour / time.Second)
)

// MaxWrite is the largest size of the data of one request that is negotiated with the kernel, in bytes.
const MaxWrite = 1 << 20

// errMalformed means that a request cannot be parsed.
var errMalformed = errors.New("malformed request")

var le = binary.NativeEndian

// header is the start of every request.
type header struct {
	length, opcode uint32
	// unique is repeated in the reply, with all its bits: a request that is sent again has another value.
	unique uint64
	node   uint64
}

// parseHeader returns the header and the rest of the request. A request may be shorter than the data that was read, but
// never longer.
func parseHeader(p []byte) (header, []byte, error) {
	if len(p) < inHeaderBytes {
		return header{}, nil, errMalformed
	}
	h := header{length: le.Uint32(p), opcode: le.Uint32(p[4:]), unique: le.Uint64(p[8:]), node: le.Uint64(p[16:])}
	if h.length < inHeaderBytes || uint64(h.length) > uint64(len(p)) {
		return header{}, nil, errMalformed
	}
	return h, p[inHeaderBytes:h.length], nil
}

// parseRead returns offset and size of a READ.
func parseRead(p []byte) (off uint64, size uint32, err error) {
	if len(p) < readInBytes {
		return 0, 0, errMalformed
	}
	return le.Uint64(p[8:]), le.Uint32(p[16:]), nil
}

// parseWrite returns offset and data of a WRITE.
func parseWrite(p []byte) (off uint64, data []byte, err error) {
	if len(p) < writeInBytes {
		return 0, nil, errMalformed
	}
	size := le.Uint32(p[16:])
	if uint64(size) != uint64(len(p)-writeInBytes) {
		return 0, nil, errMalformed
	}
	return le.Uint64(p[8:]), p[writeInBytes:], nil
}

// parseFallocate returns the arguments of a FALLOCATE.
func parseFallocate(p []byte) (off, length uint64, mode uint32, err error) {
	if len(p) < fallocInBytes {
		return 0, 0, 0, errMalformed
	}
	return le.Uint64(p[8:]), le.Uint64(p[16:]), le.Uint32(p[24:]), nil
}

// offer is the kernel's offer in INIT.
type offer struct {
	major, minor uint32
	readahead    uint32
	flags        uint64
}

func parseInit(p []byte) (offer, error) {
	if len(p) < initInBytes {
		return offer{}, errMalformed
	}
	o := offer{major: le.Uint32(p), minor: le.Uint32(p[4:]), readahead: le.Uint32(p[8:]), flags: uint64(le.Uint32(p[12:]))}
	if o.flags&initExt != 0 && len(p) >= initInBytes+4 {
		o.flags |= uint64(le.Uint32(p[16:])) << 32
	}
	return o, nil
}

// initReply accepts an offer.
func initReply(o offer) []byte {
	flags := o.flags & (initAsyncRead | initBigWrites | initAsyncDIO | initParallelDirOp | initMaxPages | initExt | initHasResend)
	p := make([]byte, initOutBytes)
	le.PutUint32(p, protocolMajor)
	le.PutUint32(p[4:], min(protocolMinor, o.minor))
	le.PutUint32(p[8:], o.readahead)
	le.PutUint32(p[12:], uint32(flags))
	le.PutUint16(p[16:], background)
	le.PutUint16(p[18:], background*3/4)
	le.PutUint32(p[20:], MaxWrite)
	le.PutUint32(p[24:], 1)
	le.PutUint16(p[28:], MaxWrite/pageBytes)
	le.PutUint32(p[32:], uint32(flags>>32))
	return p
}

// putAttr writes the attributes of a node. It returns false if no node has that number.
func putAttr(p []byte, node uint64, size int64) bool {
	le.PutUint64(p, node)
	switch node {
	case rootNode:
		le.PutUint32(p[60:], 0o040500)
		le.PutUint32(p[64:], 2)
	case imageNode:
		le.PutUint64(p[8:], uint64(size))
		le.PutUint64(p[16:], uint64(size+511)/512)
		le.PutUint32(p[60:], 0o100600)
		le.PutUint32(p[64:], 1)
		le.PutUint32(p[80:], blockBytes)
	default:
		return false
	}
	return true
}
