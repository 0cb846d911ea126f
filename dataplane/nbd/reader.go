package nbd

import (
	"fmt"
	"io"
	"slices"
)

// readReplies is the Client's reader goroutine. It exits when the connection ends.
func (c *Client) readReplies() {
	defer close(c.reading)
	for {
		if err := c.readReply(); err != nil {
			c.fail(fmt.Errorf("read the reply: %w", explainEOF(c.out.explain(err))))
			return
		}
	}
}

// readReply reads one simple reply or one chunk.
func (c *Client) readReply() error {
	magic, err := c.in.Peek(4)
	if err != nil {
		return err
	}
	switch m := be.Uint32(magic); m {
	case magicReply:
		return c.readSimple()
	case magicStructured:
		return c.readChunk()
	default:
		return fmt.Errorf("%w: unknown reply magic %#x", ErrProtocol, m)
	}
}

func (c *Client) readSimple() error {
	b, err := c.in.Peek(simpleLen)
	if err != nil {
		return err
	}
	r, err := decodeSimpleReply(b)
	if err != nil {
		return err
	}
	_, _ = c.in.Discard(simpleLen)
	k, kind, err := c.find(r.Cookie)
	if err != nil {
		return err
	}
	if r.Errno != 0 {
		c.finish(k, &Error{Errno: errnoFromWire(r.Errno), Msg: kind.String()})
		return nil
	}
	switch {
	case kind == cmdBlockStatus || kind == cmdControl || kind == cmdRead && c.info.Structured:
		return fmt.Errorf("%w: simple reply to a %s", ErrProtocol, kind)
	case kind == cmdRead:
		if err := c.fill(k, k.req.Offset, uint64(k.req.Length), true); err != nil {
			return err
		}
	}
	c.finish(k, nil)
	return nil
}

// find returns the call that a reply belongs to.
func (c *Client) find(cookie uint64) (*call, command, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[cookie]
	if k == nil {
		return nil, 0, fmt.Errorf("%w: reply to an unknown request %d", ErrProtocol, cookie)
	}
	return k, k.req.Type, nil
}

// finish records the outcome of a call when its reply is complete.
func (c *Client) finish(k *call, err error) {
	c.mu.Lock()
	defer c.unlock()
	if k.replied { // the client has failed in the meantime and has informed the caller
		return
	}
	delete(c.calls, k.req.Cookie)
	k.replied, k.finished = true, true
	if k.err == nil {
		k.err = err
	}
	k.settleLocked()
}

// fill reads the part of a read reply at off. It writes the part to the caller's memory, as zeroes if the part is a
// hole. If the caller has abandoned the call, fill drops the part.
func (c *Client) fill(k *call, off, n uint64, fromWire bool) error {
	start := off - k.req.Offset
	if off < k.req.Offset || start > uint64(k.req.Length) || n > uint64(k.req.Length)-start || !k.covered.add(start, start+n) {
		return fmt.Errorf("%w: %d bytes of data at offset %d in the reply to a read of %d bytes at offset %d", ErrProtocol, n, off, k.req.Length, k.req.Offset)
	}
	c.mu.Lock()
	if k.abandoned || k.replied {
		c.mu.Unlock()
		if fromWire {
			_, err := c.in.Discard(int(n))
			return err
		}
		return nil
	}
	k.claimed = true
	c.mu.Unlock()
	var err error
	if part := k.data[start : start+n]; fromWire {
		_, err = io.ReadFull(c.in, part)
	} else {
		clear(part)
	}
	c.mu.Lock()
	k.claimed = false
	if k.abandoned || k.replied {
		k.settleLocked()
	}
	c.unlock()
	return err
}

func (c *Client) readChunk() error {
	b, err := c.in.Peek(chunkLen)
	if err != nil {
		return err
	}
	h, err := decodeChunk(b)
	if err != nil {
		return err
	}
	_, _ = c.in.Discard(chunkLen)
	if !c.info.Structured {
		return fmt.Errorf("%w: structured reply, but structured replies were not negotiated", ErrProtocol)
	}
	k, kind, err := c.find(h.Cookie)
	if err != nil {
		return err
	}
	switch {
	case h.Type&chunkErrBit != 0:
		err = c.chunkError(k, h)
	case h.Type == chunkNone && h.Length == 0 && h.Flags&chunkFlagDone != 0 && kind != cmdControl:
	case h.Type == chunkOffsetData && kind == cmdRead && h.Length > 8:
		err = c.chunkData(k, h)
	case h.Type == chunkOffsetHole && kind == cmdRead && h.Length == 12:
		err = c.chunkHole(k)
	case h.Type == chunkControl && kind == cmdControl && h.Length <= MaxControl && h.Flags&chunkFlagDone != 0:
		err = c.chunkControl(k, h)
	case h.Type == chunkBlockStatus && kind == cmdBlockStatus && h.Length <= maxStatusChunk:
		err = c.chunkStatus(k, h)
	default:
		err = fmt.Errorf("%w: chunk of type %d and %d bytes in reply to a %s", ErrProtocol, h.Type, h.Length, kind)
	}
	if err != nil || h.Flags&chunkFlagDone == 0 {
		return err
	}
	if err := c.checkComplete(k); err != nil {
		return err
	}
	c.finish(k, nil)
	return nil
}

// checkComplete refuses a successful reply that left something out.
func (c *Client) checkComplete(k *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.err != nil || k.replied {
		return nil
	}
	switch {
	case k.req.Type == cmdRead && !k.covered.whole(uint64(k.req.Length)):
		return fmt.Errorf("%w: the reply to a read of %d bytes is incomplete", ErrProtocol, k.req.Length)
	case k.req.Type == cmdBlockStatus && len(k.answer.extents) == 0 && !k.abandoned:
		return fmt.Errorf("%w: the reply to a block status request has no block status", ErrProtocol)
	}
	return nil
}

func (c *Client) chunkData(k *call, h chunk) error {
	b, err := c.in.Peek(8)
	if err != nil {
		return err
	}
	off := be.Uint64(b)
	_, _ = c.in.Discard(8)
	return c.fill(k, off, uint64(h.Length-8), true)
}

func (c *Client) chunkHole(k *call) error {
	var b [12]byte
	if _, err := io.ReadFull(c.in, b[:]); err != nil {
		return err
	}
	if be.Uint32(b[8:]) == 0 {
		return fmt.Errorf("%w: hole of length 0", ErrProtocol)
	}
	return c.fill(k, be.Uint64(b[:]), uint64(be.Uint32(b[8:])), false)
}

// chunkError keeps the first error of a reply. The reply ends with the chunk that has the done flag.
func (c *Client) chunkError(k *call, h chunk) error {
	if h.Length > maxName+16 {
		return fmt.Errorf("%w: error chunk of %d bytes", ErrProtocol, h.Length)
	}
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return err
	}
	e, err := decodeErrorPayload(b)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.err == nil && !k.replied {
		k.err = e
	}
	return nil
}

// chunkControl reads the whole reply to a control.
func (c *Client) chunkControl(k *call, h chunk) error {
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k.answer.control = b
	return nil
}

func (c *Client) chunkStatus(k *call, h chunk) error {
	b := make([]byte, h.Length)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return err
	}
	id, extents, err := decodeStatusPayload(b, int64(k.req.Offset))
	if err != nil {
		return err
	}
	if id != c.statusID {
		return fmt.Errorf("%w: block status of context %d, expected context %d", ErrProtocol, id, c.statusID)
	}
	if extents, err = clipExtents(extents, int64(k.req.Offset), int64(k.req.Length), false); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.replied {
		k.answer.extents = extents
	}
	return nil
}

// coverage is the set of byte ranges of a read that its reply has filled. The ranges are sorted and disjoint.
type coverage struct {
	spans []span
	one   [1]span // the usual case needs no allocation
}

type span struct{ from, to uint64 }

// maxSpans limits the number of separate ranges of a reply at any time.
const maxSpans = 4096

// add adds a range. It reports whether the whole range was new and the number of separate ranges is within the limit.
func (v *coverage) add(from, to uint64) bool {
	if v.spans == nil {
		v.one[0] = span{from, to}
		v.spans = v.one[:]
		return true
	}
	i := slices.IndexFunc(v.spans, func(s span) bool { return s.from >= from })
	if i < 0 {
		i = len(v.spans)
	}
	if i > 0 && v.spans[i-1].to > from || i < len(v.spans) && v.spans[i].from < to {
		return false
	}
	if i > 0 && v.spans[i-1].to == from {
		v.spans[i-1].to = to
	} else {
		if len(v.spans) == maxSpans {
			return false
		}
		v.spans = slices.Insert(v.spans, i, span{from, to})
		i++
	}
	if i < len(v.spans) && v.spans[i].from == to {
		v.spans[i-1].to = v.spans[i].to
		v.spans = slices.Delete(v.spans, i, i+1)
	}
	return true
}

// whole reports whether exactly the range from 0 to n was added.
func (v *coverage) whole(n uint64) bool {
	return len(v.spans) == 1 && v.spans[0] == span{0, n}
}
