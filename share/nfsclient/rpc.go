package nfsclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The parts of a call and its reply (RFC 5531, RFC 7530). All numbers are big-endian words of four bytes. An opaque is
// its length and its bytes, padded to a whole word.
//
//	record mark   last fragment (1 bit), length (31 bits); then that many bytes
//	call          xid, 0 (call), 2 (RPC version), program, version, procedure, credential, verifier
//	reply         xid, 1 (reply), 0 (accepted), verifier, 0 (success), results
//	compound      tag, minor version, operations; results: status, tag, one result for each
const (
	rpcCall, rpcReply = 0, 1
	rpcVersion        = 2
	nfsProgram        = 100003
	nfsVersion        = 4
	procNull          = 0
	procCompound      = 1
	authNone, authSys = 0, 1

	opGetAttr   = 9
	opGetFH     = 10
	opLookup    = 15
	opPutRootFH = 24

	lastFragment = 1 << 31
	// maxReply is far larger than any reply to the calls here.
	maxReply = 4 << 10
	// maxAuth limits a verifier (RFC 5531, section 8.2).
	maxAuth = 400
	maxFH   = 128
	maxMask = 8 // words of a mask of attributes

	// attrSpaceAvail is the bit of space_avail in the second word of a mask. No server answers it from a cache: it asks
	// the file system.
	attrSpaceAvail = 1 << (42 - 32)
)

// Statuses with which a server says that it works, and that the client must ask again.
const (
	StatusDelay    StatusError = 10008
	statusResource StatusError = 10018
)

// ErrReply means that the server's answer is not an answer to the call.
var ErrReply = errors.New("the answer does not come from an NFS server")

// StatusError is a server's refusal of an NFS operation (RFC 7530, section 13).
type StatusError uint32

func (s StatusError) Error() string { return fmt.Sprintf("NFS status %d", uint32(s)) }

// Words builds a message or a part of one.
type Words []byte

// Put appends words.
func (w Words) Put(values ...uint32) Words {
	for _, v := range values {
		w = binary.BigEndian.AppendUint32(w, v)
	}
	return w
}

// Opaque appends a value of variable length.
func (w Words) Opaque(value string) Words {
	w = append(w.Put(uint32(len(value))), value...)
	for len(w)%4 != 0 {
		w = append(w, 0)
	}
	return w
}

// Add appends data that already consists of words, such as an identifier from an answer.
func (w Words) Add(words []byte) Words { return append(w, words...) }

// framed puts the record mark before a message.
func (w Words) framed() []byte { return append(Words{}.Put(lastFragment|uint32(len(w))), w...) }

// nullCall requests an answer, and nothing else.
func nullCall(xid uint32) []byte {
	return Words{}.Put(xid, rpcCall, rpcVersion, nfsProgram, nfsVersion, procNull, authNone, 0, authNone, 0).framed()
}

// compoundCall makes the server execute count operations, in a minor version of NFSv4, as root of a machine. The server
// stores nothing about a client unless an operation says so.
func compoundCall(xid, minor, count uint32, operations Words) []byte {
	credential := Words{}.Put(0).Opaque("share-manager").Put(0, 0, 0) // stamp, machine, user, group, no further groups
	call := Words{}.Put(xid, rpcCall, rpcVersion, nfsProgram, nfsVersion, procCompound).
		Put(authSys).Opaque(string(credential)).Put(authNone, 0).
		Opaque("").Put(minor, count)
	return call.Add(operations).framed()
}

// lookupCall requests the file handle of a name in the root of the server's namespace, and its free space. So the
// server reads the export and its file system. The call does not name a client, so the server stores nothing about it.
func lookupCall(xid uint32, name string) []byte {
	return compoundCall(xid, 0, 4, Words{}.Put(opPutRootFH, opLookup).Opaque(name).Put(opGetFH, opGetAttr, 2, 0, attrSpaceAvail))
}

// readRecord reads one message, of one or more fragments.
func readRecord(r io.Reader) ([]byte, error) {
	var record []byte
	for {
		var mark [4]byte
		if _, err := io.ReadFull(r, mark[:]); err != nil {
			return nil, err
		}
		m := binary.BigEndian.Uint32(mark[:])
		size := int(m &^ lastFragment)
		if len(record)+size > maxReply || size == 0 && m&lastFragment == 0 {
			return nil, fmt.Errorf("%w: a fragment of %d bytes after %d bytes", ErrReply, size, len(record))
		}
		start := len(record)
		record = append(record, make([]byte, size)...)
		if _, err := io.ReadFull(r, record[start:]); err != nil {
			return nil, err
		}
		if m&lastFragment != 0 {
			return record, nil
		}
	}
}

// Reader parses a message. Once a value was missing, all further values are zero.
type Reader struct {
	rest  []byte
	short bool // a value was missing
}

// Word returns the next word.
func (r *Reader) Word() uint32 {
	if len(r.rest) < 4 {
		r.rest, r.short = nil, true
		return 0
	}
	v := binary.BigEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	return v
}

// Opaque returns a value of variable length, which must have at most most bytes.
func (r *Reader) Opaque(most uint32) []byte {
	size := r.Word()
	padded := (uint64(size) + 3) &^ 3
	if size > most || padded > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	value := r.rest[:size]
	r.rest = r.rest[padded:]
	return value
}

// Rest is the part that has not been read yet.
func (r *Reader) Rest() []byte { return r.rest }

// accepted reads the head of a reply up to the results of the procedure.
func accepted(r *Reader, xid uint32) error {
	if got, kind := r.Word(), r.Word(); got != xid || kind != rpcReply || r.short {
		return fmt.Errorf("%w: message %d of kind %d", ErrReply, got, kind)
	}
	if refused := r.Word(); refused != 0 {
		return fmt.Errorf("%w: the server denied the call (%d)", ErrReply, r.Word())
	}
	r.Word() // the verifier's flavor
	r.Opaque(maxAuth)
	if status := r.Word(); status != 0 || r.short {
		return fmt.Errorf("%w: the server did not execute the call (%d)", ErrReply, status)
	}
	return nil
}

// IsBusy reports whether a working server has deferred a call.
func IsBusy(err error) bool { return errors.Is(err, StatusDelay) || errors.Is(err, statusResource) }

// parseNull checks the answer to a nullCall.
func parseNull(xid uint32, record []byte) error {
	r := &Reader{rest: record}
	if err := accepted(r, xid); err != nil {
		return err
	}
	if len(r.rest) != 0 {
		return fmt.Errorf("%w: %d unexpected bytes", ErrReply, len(r.rest))
	}
	return nil
}

// parseCompound parses the answer to a compoundCall up to the results, and returns their number. If the server refused,
// the error is a StatusError.
func parseCompound(xid uint32, record []byte) (r *Reader, results uint32, err error) {
	r = &Reader{rest: record}
	if err := accepted(r, xid); err != nil {
		return nil, 0, err
	}
	status := r.Word()
	r.Opaque(maxReply) // the tag
	results = r.Word()
	if status != 0 && !r.short {
		return nil, 0, StatusError(status)
	}
	return r, results, nil
}

// parseLookup returns the file handle from the answer to a lookupCall. If the server refused, the error is a
// StatusError.
func parseLookup(xid uint32, record []byte) ([]byte, error) {
	r, results, err := parseCompound(xid, record)
	if err != nil {
		return nil, err
	}
	if results != 4 || r.short {
		return nil, fmt.Errorf("%w: %d results instead of 4", ErrReply, results)
	}
	var handle []byte
	for _, op := range []uint32{opPutRootFH, opLookup, opGetFH, opGetAttr} {
		if got, status := r.Word(), r.Word(); got != op || status != 0 || r.short {
			return nil, fmt.Errorf("%w: result of operation %d with status %d", ErrReply, got, status)
		}
		if op == opGetFH {
			handle = r.Opaque(maxFH)
		}
	}
	mask := r.Word()
	for range min(mask, maxMask) {
		r.Word()
	}
	// the attributes; a server omits those that it does not have
	r.Opaque(maxReply)
	r.short = r.short || mask > maxMask
	if r.short || len(handle) == 0 || len(r.rest) != 0 {
		return nil, fmt.Errorf("%w: no file handle", ErrReply)
	}
	return handle, nil
}
