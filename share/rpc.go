package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What a call and its reply are made of (RFC 5531, RFC 7530). All numbers are big-endian
// words of four bytes; an opaque is its length and its bytes, padded to a whole word.
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
	// maxReply is far above any reply to the calls here.
	maxReply = 4 << 10
	// maxAuth bounds a verifier (RFC 5531, section 8.2).
	maxAuth = 400
	maxFH   = 128
	maxMask = 8 // words of a mask of attributes

	// attrSpaceAvail is the bit of space_avail in the second word of a mask. No server answers it from a cache: it asks the file system.
	attrSpaceAvail = 1 << (42 - 32)
)

// Statuses with which a server says that it works, and that the client shall ask again.
const (
	statusDelay    statusError = 10008
	statusResource statusError = 10018
)

// errReply means that the server's answer is not one to the call.
var errReply = errors.New("no NFS server's answer")

// statusError is a server's refusal of an NFS operation (RFC 7530, section 13).
type statusError uint32

func (s statusError) Error() string { return fmt.Sprintf("NFS status %d", uint32(s)) }

// words builds a message.
type words []byte

func (w words) put(values ...uint32) words {
	for _, v := range values {
		w = binary.BigEndian.AppendUint32(w, v)
	}
	return w
}

func (w words) opaque(value string) words {
	w = append(w.put(uint32(len(value))), value...)
	for len(w)%4 != 0 {
		w = append(w, 0)
	}
	return w
}

// framed puts the record mark before a message.
func (w words) framed() []byte { return append(words{}.put(lastFragment|uint32(len(w))), w...) }

// nullCall asks the server to answer, and for nothing else.
func nullCall(xid uint32) []byte {
	return words{}.put(xid, rpcCall, rpcVersion, nfsProgram, nfsVersion, procNull, authNone, 0, authNone, 0).framed()
}

// lookupCall asks for the file handle of a name in the root of the server's name space, and for the space that is free there: so the
// server looks into the export and its file system. It says nothing of a client, so the server keeps nothing of it.
func lookupCall(xid uint32, name string) []byte {
	credential := words{}.put(0).opaque("share-manager").put(0, 0, 0) // stamp, machine, user, group, no more groups
	return words{}.put(xid, rpcCall, rpcVersion, nfsProgram, nfsVersion, procCompound).
		put(authSys).opaque(string(credential)).put(authNone, 0).
		opaque("").put(0, 4, opPutRootFH, opLookup).opaque(name).put(opGetFH, opGetAttr, 2, 0, attrSpaceAvail).framed()
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
			return nil, fmt.Errorf("%w: a fragment of %d bytes after %d", errReply, size, len(record))
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

// reader takes a message apart. Once something was missing, all that follows is zero and
// short is true.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) word() uint32 {
	if len(r.rest) < 4 {
		r.rest, r.short = nil, true
		return 0
	}
	v := binary.BigEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	return v
}

func (r *reader) opaque(most uint32) []byte {
	size := r.word()
	padded := (uint64(size) + 3) &^ 3
	if size > most || padded > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	value := r.rest[:size]
	r.rest = r.rest[padded:]
	return value
}

// accepted reads the head of a reply up to the results of the procedure.
func accepted(r *reader, xid uint32) error {
	if got, kind := r.word(), r.word(); got != xid || kind != rpcReply || r.short {
		return fmt.Errorf("%w: message %d of kind %d", errReply, got, kind)
	}
	if refused := r.word(); refused != 0 {
		return fmt.Errorf("%w: the call is denied (%d)", errReply, r.word())
	}
	r.word() // the verifier's flavor
	r.opaque(maxAuth)
	if status := r.word(); status != 0 || r.short {
		return fmt.Errorf("%w: the call is not executed (%d)", errReply, status)
	}
	return nil
}

// isBusy tells whether a server that is well has put a call off.
func isBusy(err error) bool { return errors.Is(err, statusDelay) || errors.Is(err, statusResource) }

// parseNull judges the answer to a nullCall.
func parseNull(xid uint32, record []byte) error {
	r := &reader{rest: record}
	if err := accepted(r, xid); err != nil {
		return err
	}
	if len(r.rest) != 0 {
		return fmt.Errorf("%w: %d bytes too many", errReply, len(r.rest))
	}
	return nil
}

// parseLookup returns the file handle that a lookupCall asked for. The error is a
// statusError where the server refused.
func parseLookup(xid uint32, record []byte) ([]byte, error) {
	r := &reader{rest: record}
	if err := accepted(r, xid); err != nil {
		return nil, err
	}
	status := r.word()
	r.opaque(maxReply) // the tag
	results := r.word()
	if status != 0 && !r.short {
		return nil, statusError(status)
	}
	if results != 4 || r.short {
		return nil, fmt.Errorf("%w: %d results", errReply, results)
	}
	var handle []byte
	for _, op := range []uint32{opPutRootFH, opLookup, opGetFH, opGetAttr} {
		if got, status := r.word(), r.word(); got != op || status != 0 || r.short {
			return nil, fmt.Errorf("%w: result of operation %d with status %d", errReply, got, status)
		}
		if op == opGetFH {
			handle = r.opaque(maxFH)
		}
	}
	mask := r.word()
	for range min(mask, maxMask) {
		r.word()
	}
	r.opaque(maxReply) // the attributes; a server leaves out those that it does not have
	r.short = r.short || mask > maxMask
	if r.short || len(handle) == 0 || len(r.rest) != 0 {
		return nil, fmt.Errorf("%w: no file handle", errReply)
	}
	return handle, nil
}
