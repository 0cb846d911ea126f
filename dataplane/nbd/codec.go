package nbd

import (
	"encoding/binary"
	"fmt"
)

var be = binary.BigEndian

// Messages of the transmission phase, big endian:
//
//	request     magic32 flags16 type16 cookie64 offset64 length32      28 bytes, then the payload of a write or control
//	simple      magic32 errno32 cookie64                               16 bytes, then the data of a read
//	structured  magic32 flags16 type16 cookie64 length32               20 bytes, then length bytes:
//	              OFFSET_DATA   offset64 data
//	              OFFSET_HOLE   offset64 length32
//	              BLOCK_STATUS  context32 (length32 flags32)...
//	              ERROR         errno32 textlen16 text [offset64]
//	              control       the reply
const (
	requestLen    = 28
	simpleLen     = 16
	chunkLen      = 20
	offsetDataLen = chunkLen + 8
)

// request is the header of a request.
type request struct {
	Flags  uint16
	Type   command
	Cookie uint64
	Offset uint64
	Length uint32
}

func (r request) encode(b []byte) {
	be.PutUint32(b, magicRequest)
	be.PutUint16(b[4:], r.Flags)
	be.PutUint16(b[6:], uint16(r.Type))
	be.PutUint64(b[8:], r.Cookie)
	be.PutUint64(b[16:], r.Offset)
	be.PutUint32(b[24:], r.Length)
}

// hasPayload reports whether bytes follow the header.
func (r request) hasPayload() bool { return r.Type == cmdWrite || r.Type == cmdControl }

func decodeRequest(b []byte) (request, error) {
	if len(b) < requestLen {
		return request{}, fmt.Errorf("%w: a request has %d bytes, at least %d expected", ErrProtocol, len(b), requestLen)
	}
	if m := be.Uint32(b); m != magicRequest {
		return request{}, fmt.Errorf("%w: request magic %#x", ErrProtocol, m)
	}
	return request{
		Flags:  be.Uint16(b[4:]),
		Type:   command(be.Uint16(b[6:])),
		Cookie: be.Uint64(b[8:]),
		Offset: be.Uint64(b[16:]),
		Length: be.Uint32(b[24:]),
	}, nil
}

// simpleReply is the header of a simple reply.
type simpleReply struct {
	Errno  uint32
	Cookie uint64
}

func (r simpleReply) encode(b []byte) {
	be.PutUint32(b, magicReply)
	be.PutUint32(b[4:], r.Errno)
	be.PutUint64(b[8:], r.Cookie)
}

func decodeSimpleReply(b []byte) (simpleReply, error) {
	if len(b) < simpleLen {
		return simpleReply{}, fmt.Errorf("%w: simple reply of %d bytes", ErrProtocol, len(b))
	}
	if m := be.Uint32(b); m != magicReply {
		return simpleReply{}, fmt.Errorf("%w: simple reply magic %#x", ErrProtocol, m)
	}
	return simpleReply{Errno: be.Uint32(b[4:]), Cookie: be.Uint64(b[8:])}, nil
}

// chunk is the header of one chunk of a structured reply.
type chunk struct {
	Flags  uint16
	Type   uint16
	Cookie uint64
	Length uint32
}

func (c chunk) encode(b []byte) {
	be.PutUint32(b, magicStructured)
	be.PutUint16(b[4:], c.Flags)
	be.PutUint16(b[6:], c.Type)
	be.PutUint64(b[8:], c.Cookie)
	be.PutUint32(b[16:], c.Length)
}

func decodeChunk(b []byte) (chunk, error) {
	if len(b) < chunkLen {
		return chunk{}, fmt.Errorf("%w: chunk header of %d bytes", ErrProtocol, len(b))
	}
	if m := be.Uint32(b); m != magicStructured {
		return chunk{}, fmt.Errorf("%w: chunk magic %#x", ErrProtocol, m)
	}
	return chunk{
		Flags:  be.Uint16(b[4:]),
		Type:   be.Uint16(b[6:]),
		Cookie: be.Uint64(b[8:]),
		Length: be.Uint32(b[16:]),
	}, nil
}

// appendErrorPayload appends the payload of an ERROR chunk.
func appendErrorPayload(b []byte, errno uint32, text string) []byte {
	b = be.AppendUint32(b, errno)
	b = be.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// decodeErrorPayload reads the payload of an ERROR or ERROR_OFFSET chunk. It ignores the bytes after the text, which
// only give the offset.
func decodeErrorPayload(b []byte) (*Error, error) {
	if len(b) < 6 {
		return nil, fmt.Errorf("%w: error chunk of %d bytes", ErrProtocol, len(b))
	}
	n := int(be.Uint16(b[4:]))
	if len(b) < 6+n {
		return nil, fmt.Errorf("%w: error chunk of %d bytes with a text of %d", ErrProtocol, len(b), n)
	}
	no := be.Uint32(b)
	if no == 0 {
		return nil, fmt.Errorf("%w: error chunk without an error", ErrProtocol)
	}
	return &Error{Errno: errnoFromWire(no), Msg: string(b[6 : 6+n])}, nil
}

// appendStatusPayload appends the payload of a BLOCK_STATUS chunk. Lengths must fit in 32 bits.
func appendStatusPayload(b []byte, context uint32, extents []Extent) []byte {
	b = be.AppendUint32(b, context)
	for _, e := range extents {
		b = be.AppendUint32(b, uint32(e.Length))
		b = be.AppendUint32(b, uint32(e.Flags))
	}
	return b
}

// decodeStatusPayload reads the payload of a BLOCK_STATUS chunk about a range that starts at off.
func decodeStatusPayload(b []byte, off int64) (context uint32, extents []Extent, err error) {
	if len(b) < 12 || (len(b)-4)%8 != 0 {
		return 0, nil, fmt.Errorf("%w: block status chunk of %d bytes", ErrProtocol, len(b))
	}
	context = be.Uint32(b)
	extents = make([]Extent, 0, (len(b)-4)/8)
	for b = b[4:]; len(b) > 0; b = b[8:] {
		e := Extent{Offset: off, Length: int64(be.Uint32(b)), Flags: ExtentFlags(be.Uint32(b[4:])) & (ExtentHole | ExtentZero)}
		if e.Length == 0 {
			return 0, nil, fmt.Errorf("%w: empty extent at %d", ErrProtocol, off)
		}
		extents = append(extents, e)
		off += e.Length
	}
	return context, extents, nil
}
