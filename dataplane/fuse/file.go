package fuse

import (
	"bytes"
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// always is a context that is never cancelled: a user's request must never leave a change half done.
var always = context.Background()

// handle serves one request, answers it, and returns its buffer. left means that the request is a read that hung, and
// that another goroutine answers it.
func (s *Server) handle(r request) (left bool) {
	h, body, err := parseHeader(r.bytes())
	if err != nil {
		r.buffer.release() // an answer could not name the request
		return false
	}
	switch h.opcode {
	case opForget, opBatchForget: // nothing is stored for a node, and no answer is expected
		r.buffer.release()
	case opRead:
		return s.handleRead(h, body, r.buffer)
	default:
		var room [outHeaderBytes + entryBytes]byte // the longest short reply
		n, status := s.answer(h, body, room[outHeaderBytes:])
		r.buffer.release()
		if status != 0 {
			n = 0
		}
		if h.opcode == opWrite || h.opcode == opFallocate {
			s.changes.RLock()
			defer s.changes.RUnlock()
		}
		s.reply(h.unique, status, room[:outHeaderBytes+n])
	}
	return false
}

// answer serves a request that has a short reply. It writes the reply to out, which is zero, and returns its length.
func (s *Server) answer(h header, body, out []byte) (int, syscall.Errno) {
	switch h.opcode {
	case opWrite:
		return s.write(h, body, out)
	case opFsync:
		return 0, errnoOf(s.backend.Flush(always))
	case opFallocate:
		return 0, s.fallocate(h, body)
	case opInit:
		return s.init(body, out)
	case opLookup:
		return s.lookup(h, body, out)
	case opGetattr:
		le.PutUint64(out, forever)
		if !putAttr(out[16:], h.node, s.size.Load()) {
			return 0, unix.ENOENT
		}
		return attrOutBytes, 0
	case opSetattr:
		return 0, unix.EPERM
	case opOpen:
		if h.node != imageNode {
			return 0, unix.EISDIR
		}
		// The kernel sends writes concurrently and caches nothing.
		le.PutUint32(out[8:], openDirectIO|openParallelWrites|openNoFlush)
		return openOutBytes, 0
	case opStatfs:
		s.statfs(out)
		return statfsBytes, 0
	case opRelease, opFlush, opDestroy: // nothing is stored for an open file
		return 0, 0
	}
	// INTERRUPT is among these: after this answer the kernel sends no further INTERRUPT, and a started request is
	// finished in any case.
	return 0, unix.ENOSYS
}

func (s *Server) init(body, out []byte) (int, syscall.Errno) {
	o, err := parseInit(body)
	if err != nil || o.major != protocolMajor || o.minor < oldestMinor {
		return 0, unix.EPROTO
	}
	return copy(out, initReply(o)), 0
}

func (s *Server) lookup(h header, body, out []byte) (int, syscall.Errno) {
	name, _, ended := bytes.Cut(body, []byte{0})
	if h.node != rootNode || !ended || string(name) != imageName {
		return 0, unix.ENOENT
	}
	le.PutUint64(out, imageNode)
	le.PutUint64(out[8:], 1) // generation
	le.PutUint64(out[16:], forever)
	le.PutUint64(out[24:], forever)
	putAttr(out[40:], imageNode, s.size.Load())
	return entryBytes, 0
}

// statfs reports the block size; without it a loop device offers no discard.
func (s *Server) statfs(out []byte) {
	le.PutUint64(out, uint64(s.size.Load())/blockBytes)
	le.PutUint32(out[40:], blockBytes)
	le.PutUint32(out[44:], 255) // longest possible name
	le.PutUint32(out[48:], blockBytes)
}

// handleRead returns bytes of the file; at its end fewer than requested. The request has been read, so the reply uses
// the buffer of the request if that is long enough. Otherwise handleRead returns this buffer before it waits for
// another one. So no request holds a buffer while it waits for a buffer.
func (s *Server) handleRead(h header, body []byte, b *buffer) (left bool) {
	off, size, err := parseRead(body)
	if err != nil || h.node != imageNode || size > MaxWrite {
		b.release()
		s.fail(h.unique, unix.EINVAL)
		return false
	}
	n, end := 0, uint64(s.size.Load())
	if off < end {
		n = int(min(uint64(size), end-off))
	}
	if pageBytes+n > len(b.bytes) {
		b.release()
		if b, err = s.large.get(); err != nil {
			s.fail(h.unique, unix.ENOMEM)
			return false
		}
	}
	whole, data := b.reply(n)
	if n > 0 {
		left, err := s.readAt(h.unique, b, data, int64(off))
		if left {
			b.unmap()
			return true
		}
		if err != nil {
			b.release()
			s.fail(h.unique, errnoOf(err))
			return false
		}
	}
	s.reply(h.unique, 0, whole)
	b.release()
	return false
}

// readAt reads into data, which belongs to b, by the means of the backend. If the backend leaves a read behind in a
// disk that hangs, another goroutine answers it, and b is no longer counted: the disk may use its memory until readAt
// returns.
func (s *Server) readAt(unique uint64, b *buffer, data []byte, off int64) (left bool, err error) {
	r, ok := s.backend.(LateReader)
	if !ok {
		return false, s.backend.ReadAt(always, data, off)
	}
	return r.ReadLate(always, data, off, func(got []byte, err error) {
		defer s.readers.Done()
		b.discount()
		s.answerRead(unique, got, err)
	})
}

// answerRead answers a read with bytes that are not in a buffer of the pool.
func (s *Server) answerRead(unique uint64, got []byte, err error) {
	if err != nil {
		s.fail(unique, errnoOf(err))
		return
	}
	b, err := s.large.get()
	if err != nil {
		s.fail(unique, unix.ENOMEM)
		return
	}
	defer b.release()
	whole, data := b.reply(len(got))
	copy(data, got)
	s.reply(unique, 0, whole)
}

func (s *Server) fail(unique uint64, status syscall.Errno) {
	var room [outHeaderBytes]byte
	s.reply(unique, status, room[:])
}

func (s *Server) write(h header, body, out []byte) (int, syscall.Errno) {
	off, data, err := parseWrite(body)
	if err != nil || h.node != imageNode {
		return 0, unix.EINVAL
	}
	if !s.holds(off, uint64(len(data))) {
		return 0, unix.ENOSPC
	}
	if status := errnoOf(s.backend.WriteAt(always, data, int64(off))); status != 0 {
		return 0, status
	}
	le.PutUint32(out, uint32(len(data)))
	return writeOutBytes, 0
}

// fallocate serves the discards and zeroes of a loop device. The loop device punches a hole even if its user requested
// zeroes, so a hole must read as zeroes.
func (s *Server) fallocate(h header, body []byte) syscall.Errno {
	off, length, mode, err := parseFallocate(body)
	if err != nil || h.node != imageNode {
		return unix.EINVAL
	}
	if !s.holds(off, length) {
		return unix.ENOSPC
	}
	switch mode {
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
		return errnoOf(s.backend.Zero(always, int64(off), int64(length), false))
	case unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		return errnoOf(s.backend.Zero(always, int64(off), int64(length), true))
	}
	return unix.EOPNOTSUPP
}

// holds reports whether the file contains the whole range.
func (s *Server) holds(off, length uint64) bool {
	end := uint64(s.size.Load())
	return length <= end && off <= end-length
}

// errnoOf turns an error into an errno for the kernel. The users of a block device know only a few errors.
func errnoOf(err error) syscall.Errno {
	var no syscall.Errno
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &no):
		return unix.EIO
	}
	switch no {
	case unix.ENOSPC, unix.EINVAL, unix.EPERM, unix.ENOMEM, unix.EOPNOTSUPP:
		return no
	}
	return unix.EIO
}
