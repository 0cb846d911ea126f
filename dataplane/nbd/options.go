package nbd

import (
	"errors"
	"fmt"
	"io"
)

// Messages of the handshake, big endian:
//
//	option        IHAVEOPT64 option32 length32           then length bytes
//	option reply  magic64 option32 reply32 length32      then length bytes
const (
	optionLen      = 16
	optionReplyLen = 20
)

// errTooBig marks an option that was skipped because it was longer than maxOptionData.
var errTooBig = errors.New("the option is too long")

func appendOption(b []byte, option uint32, data []byte) []byte {
	b = be.AppendUint64(b, magicOption)
	b = be.AppendUint32(b, option)
	b = be.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// readOption reads one option. With errTooBig it returns the option's number, it has skipped the data, and the stream
// is still in step.
func readOption(r source) (option uint32, data []byte, err error) {
	var head [optionLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	if m := be.Uint64(head[:]); m != magicOption {
		return 0, nil, fmt.Errorf("%w: option magic %#x", ErrProtocol, m)
	}
	option, length := be.Uint32(head[8:]), be.Uint32(head[12:])
	switch {
	case length > maxOptionSkip:
		return option, nil, fmt.Errorf("%w: option %#x of %d bytes", ErrProtocol, option, length)
	case length > maxOptionData:
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return option, nil, err
		}
		return option, nil, errTooBig
	}
	data = make([]byte, length)
	_, err = io.ReadFull(r, data)
	return option, data, err
}

func appendOptionReply(b []byte, option, reply uint32, data []byte) []byte {
	b = be.AppendUint64(b, magicOptReply)
	b = be.AppendUint32(b, option)
	b = be.AppendUint32(b, reply)
	b = be.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func readOptionReply(r source) (option, reply uint32, data []byte, err error) {
	var head [optionReplyLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	if m := be.Uint64(head[:]); m != magicOptReply {
		return 0, 0, nil, fmt.Errorf("%w: option reply magic %#x", ErrProtocol, m)
	}
	length := be.Uint32(head[16:])
	if length > maxOptionData {
		return 0, 0, nil, fmt.Errorf("%w: option reply of %d bytes", ErrProtocol, length)
	}
	data = make([]byte, length)
	_, err = io.ReadFull(r, data)
	return be.Uint32(head[8:]), be.Uint32(head[12:]), data, err
}

// goOption is the data of NBD_OPT_INFO and NBD_OPT_GO: namelen32 name count16 (info16)...
type goOption struct {
	Name  string
	Infos []uint16
}

func (o goOption) encode() []byte {
	b := appendString(nil, o.Name)
	b = be.AppendUint16(b, uint16(len(o.Infos)))
	for _, i := range o.Infos {
		b = be.AppendUint16(b, i)
	}
	return b
}

func decodeGoOption(b []byte) (goOption, error) {
	name, b, err := cutString(b)
	if err != nil {
		return goOption{}, err
	}
	if len(b) < 2 {
		return goOption{}, fmt.Errorf("%w: no count of information requests", ErrProtocol)
	}
	n := int(be.Uint16(b))
	if b = b[2:]; len(b) != 2*n {
		return goOption{}, fmt.Errorf("%w: %d information requests in %d bytes", ErrProtocol, n, len(b))
	}
	o := goOption{Name: name}
	for ; len(b) > 0; b = b[2:] {
		o.Infos = append(o.Infos, be.Uint16(b))
	}
	return o, nil
}

// metaOption is the data of NBD_OPT_LIST_META_CONTEXT and NBD_OPT_SET_META_CONTEXT: namelen32 name count32 (len32
// query)...
type metaOption struct {
	Name    string
	Queries []string
}

func (o metaOption) encode() []byte {
	b := appendString(nil, o.Name)
	b = be.AppendUint32(b, uint32(len(o.Queries)))
	for _, q := range o.Queries {
		b = appendString(b, q)
	}
	return b
}

func decodeMetaOption(b []byte) (metaOption, error) {
	name, b, err := cutString(b)
	if err != nil {
		return metaOption{}, err
	}
	if len(b) < 4 {
		return metaOption{}, fmt.Errorf("%w: no count of queries", ErrProtocol)
	}
	n := be.Uint32(b)
	o := metaOption{Name: name}
	b = b[4:]
	for range n { // every turn consumes at least four bytes or ends the loop, whatever the count says
		var q string
		if q, b, err = cutString(b); err != nil {
			return metaOption{}, err
		}
		o.Queries = append(o.Queries, q)
	}
	if len(b) != 0 {
		return metaOption{}, fmt.Errorf("%w: %d bytes after the last query", ErrProtocol, len(b))
	}
	return o, nil
}

// exportInfo is the data of an infoExport reply: type16 size64 flags16.
type exportInfo struct {
	Size  uint64
	Flags uint16
}

func (i exportInfo) encode() []byte {
	b := be.AppendUint16(nil, infoExport)
	b = be.AppendUint64(b, i.Size)
	return be.AppendUint16(b, i.Flags)
}

func encodeBlockSize(s BlockSize) []byte {
	b := be.AppendUint16(nil, infoBlockSize)
	b = be.AppendUint32(b, s.Min)
	b = be.AppendUint32(b, s.Preferred)
	return be.AppendUint32(b, s.Max)
}

// info holds the information replies of one NBD_OPT_GO. Each reply fills its part.
type info struct {
	HasExport   bool
	Export      exportInfo
	Name        string
	Description string
	BlockSize   BlockSize
}

// add reads one repInfo. It skips types that it does not know, as the specification requires.
func (i *info) add(b []byte) error {
	if len(b) < 2 {
		return fmt.Errorf("%w: information reply of %d bytes", ErrProtocol, len(b))
	}
	kind, b := be.Uint16(b), b[2:]
	switch kind {
	case infoExport:
		if len(b) != 10 {
			return fmt.Errorf("%w: export information of %d bytes", ErrProtocol, len(b))
		}
		i.HasExport = true
		i.Export = exportInfo{Size: be.Uint64(b), Flags: be.Uint16(b[8:])}
	case infoName:
		i.Name = string(b)
	case infoDescription:
		i.Description = string(b)
	case infoBlockSize:
		if len(b) != 12 {
			return fmt.Errorf("%w: block size information of %d bytes", ErrProtocol, len(b))
		}
		i.BlockSize = BlockSize{Min: be.Uint32(b), Preferred: be.Uint32(b[4:]), Max: be.Uint32(b[8:])}
	}
	return nil
}

func appendString(b []byte, s string) []byte {
	return append(be.AppendUint32(b, uint32(len(s))), s...)
}

// cutString reads a string preceded by its length. It returns the string and the bytes after it.
func cutString(b []byte) (s string, rest []byte, err error) {
	if len(b) < 4 {
		return "", nil, fmt.Errorf("%w: %d bytes where a string was expected", ErrProtocol, len(b))
	}
	n := be.Uint32(b)
	if n > maxName || int(n) > len(b)-4 {
		return "", nil, fmt.Errorf("%w: string of %d bytes in %d", ErrProtocol, n, len(b)-4)
	}
	return string(b[4 : 4+n]), b[4+n:], nil
}
