package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// These are the units of a copy, in bytes. copyChunkBytes of data are copied at once, under the lock of their range.
// The copier asks for the holes of copyStepBytes at once, which is also the longest hole that is punched at once.
const (
	copyChunkBytes = 1 << 20
	copyStepBytes  = 64 << 20
	copyFlushBytes = 4 * copyStepBytes
	// busyChunkBytes of data are copied at once while users have requests, because these wait behind the copy for the
	// disks and the network.
	busyChunkBytes = 128 << 10
	// joinHoleBytes is the longest hole between data that is copied with the data, as zeroes. Otherwise a file with a
	// hole in every other block would be copied block by block. It limits the growth of a sparse file by repeated
	// rebuilds.
	joinHoleBytes = 16 << 10
)

// copier makes a joining replica equal to the members.
//
//	for each step:   shared lock ── which parts of it are holes? ── unlock
//	for each part:   pace ── shared lock ── read from a member, write to the target ── unlock
//
// A shared lock excludes changes, not reads. A change before the lock is in the source; the target itself receives a
// change after the lock. No lock is held for longer than the time to expel a source or to abandon a target that hangs.
type copier struct {
	mirror *mirror
	source copySource
	target *member
	fresh  bool // the target was never written, so it has zeroes where nothing was sent
	// isStill means that neither the source nor the target gets changes of users, so no range is locked.
	isStill bool
	pace    *pace
	buf     []byte
	// unflushed is the number of bytes copied since the target's last flush. It is limited so that users need not wait
	// for the last flush.
	unflushed int64
	done      int64 // how much has been copied
	// copied has the regions that were copied and have uncleared marks on the target; nil if no marks must be cleared.
	copied bitmap
	report func(done int64)
}

// piece is a part of the volume that is copied at once.
type piece struct {
	off, length int64
	zero        bool // it was a hole when the copier asked
}

// copyTo copies to the target the data that it lacks, from a source, and flushes it.
func (e *Engine) copyTo(b *rebuild, source copySource, target *member, fresh bool, lacks lack) error {
	m := e.mirror
	size := m.size.Load() // it does not grow during a rebuild
	runs, total := []byteRange{{to: size}}, size
	if lacks.only != nil {
		runs, total = m.regions.bytes(lacks.only, size)
	}
	e.showExtent(b, total, lacks.only != nil)
	c := e.newCopier(b, source, target, fresh)
	c.report = func(done int64) { e.showProgress(b, int(done*100/total)) }
	if lacks.canKeep {
		c.copied = newBitmap(int(m.regions.count()))
		defer m.regions.unwatchChanges()
	}
	step := min(copyStepBytes, e.cfg.KeepEvery)
	for _, r := range runs {
		for off := r.from; off < r.to; off += step {
			length := min(step, r.to-off)
			if err := c.step(b.ctx, off, length); err != nil {
				return err
			}
			c.hasCopied(off, off+length, size)
			if err := c.flushOften(length, e.cfg.KeepEvery); err != nil {
				return err
			}
		}
	}
	return c.flush()
}

func (e *Engine) newCopier(b *rebuild, source copySource, target *member, fresh bool) *copier {
	return &copier{
		mirror: e.mirror, source: source, target: target, fresh: fresh, buf: make([]byte, copyChunkBytes),
		pace:   &pace{clock: e.cfg.Clock, bytesPerSecond: b.bytesPerSecond, busy: e.mirror.gate.wasBusy, stop: target.dropped},
		report: func(int64) {},
	}
}

func (c *copier) step(ctx context.Context, off, length int64) error {
	for _, p := range c.survey(off, length) {
		if !p.zero || !c.fresh {
			if err := c.paced(ctx, p); err != nil {
				return err
			}
		}
		c.done += p.length
		c.report(c.done)
	}
	return nil
}

// flushOften flushes when so much was copied since the last flush.
func (c *copier) flushOften(copied, limit int64) error {
	if c.unflushed += copied; c.unflushed < limit {
		return nil
	}
	c.unflushed = 0
	return c.flush()
}

// paced copies a piece. While users have requests, it copies smaller pieces.
func (c *copier) paced(ctx context.Context, p piece) error {
	busy := c.pace.busy()
	if !busy || p.zero {
		return c.one(ctx, p, busy)
	}
	for _, small := range cutPieces([]piece{p}, busyChunkBytes) {
		if err := c.one(ctx, small, true); err != nil {
			return err
		}
	}
	return nil
}

// one copies a piece when the pace allows it. If the piece was a hole and now has data, it may be long, so it is copied
// in chunks.
func (c *copier) one(ctx context.Context, p piece, busy bool) error {
	if err := c.pace.wait(ctx, p, busy); err != nil {
		return err
	}
	startedAt := c.pace.clock.Now()
	equal, err := c.copy(p)
	if err != nil {
		return fmt.Errorf("copy %d bytes at offset %d: %w", p.length, p.off, err)
	}
	c.pace.took = c.pace.clock.Since(startedAt)
	if equal {
		return nil
	}
	for _, chunk := range cutPieces([]piece{{off: p.off, length: p.length}}, copyChunkBytes) {
		if err := c.paced(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// survey cuts a step into holes and chunks of data. If the holes are unknown, all of it counts as data.
func (c *copier) survey(off, length int64) []piece {
	return cutPieces(joinHoles(c.findHoles(off, length)), copyChunkBytes)
}

// findHoles returns the holes of a range, and the parts between them.
func (c *copier) findHoles(off, length int64) []piece {
	defer c.lock(off, length)()
	var pieces []piece
	for at, end := off, off+length; at < end; {
		extents, err := c.source.extents(at, end-at)
		if err != nil || len(extents) == 0 {
			return addPiece(pieces, at, end-at, false)
		}
		for _, e := range extents {
			n := min(e.Length, end-at)
			if n <= 0 {
				break
			}
			pieces = addPiece(pieces, at, n, e.Flags&nbd.ExtentZero != 0)
			at += n
		}
	}
	return pieces
}

// addPiece adds a range. If the last piece is of the same kind, it extends that piece.
func addPiece(pieces []piece, off, length int64, zero bool) []piece {
	if last := len(pieces) - 1; last >= 0 && pieces[last].zero == zero {
		pieces[last].length += length
		return pieces
	}
	return append(pieces, piece{off: off, length: length, zero: zero})
}

// joinHoles merges short holes with the data around them. At most half of a merged piece was holes, so the target takes
// at most twice the space of its source.
func joinHoles(pieces []piece) []piece {
	var joined []piece
	var holes int64 // bytes of holes in the last piece of joined, if that is data
	for i, p := range pieces {
		last := len(joined) - 1
		between := p.zero && last >= 0 && !joined[last].zero && i+1 < len(pieces)
		switch {
		case between && p.length <= joinHoleBytes && 2*(holes+p.length) <= joined[last].length+p.length:
			holes += p.length
			joined[last].length += p.length
		case !p.zero && last >= 0 && !joined[last].zero:
			joined[last].length += p.length
		default:
			holes = 0
			joined = append(joined, p)
		}
	}
	return joined
}

// cutPieces cuts data into chunks.
func cutPieces(pieces []piece, chunkBytes int64) []piece {
	var cut []piece
	for _, p := range pieces {
		if p.zero {
			cut = append(cut, p)
			continue
		}
		for at := int64(0); at < p.length; at += chunkBytes {
			cut = append(cut, piece{off: p.off + at, length: min(chunkBytes, p.length-at)})
		}
	}
	return cut
}

// lock excludes changes of a range until unlock is called.
func (c *copier) lock(off, length int64) (unlock func()) {
	if c.isStill {
		return func() {}
	}
	s := c.mirror.locks.lock(off, length, shared)
	return func() { c.mirror.locks.unlock(s) }
}

// copy makes one piece of the target equal to the members. It returns false if the piece is no longer a hole.
func (c *copier) copy(p piece) (equal bool, err error) {
	defer c.lock(p.off, p.length)()
	if p.zero {
		if !c.source.isHole(p.off, p.length) {
			return false, nil
		}
		return true, c.onTarget(func() error { return c.target.Zero(background, p.off, p.length, 0) })
	}
	buf, err := c.read(p.off, p.length)
	if err != nil || c.fresh && isZero(buf) {
		return true, err
	}
	return true, c.onTarget(func() error { return putChunk(c.target, buf, p.off) })
}

// read reads a chunk. If a hanging disk keeps the buffer, read repeats with another one. The result is valid until the
// next call.
func (c *copier) read(off, length int64) ([]byte, error) {
	for {
		buf := c.buf[:length]
		err := c.source.read(buf, off)
		if !errors.Is(err, errDropped) {
			return buf, err
		}
		c.buf = make([]byte, copyChunkBytes)
	}
}

// onTarget runs a request to the target. If the target does not answer, it is abandoned like a member would be, so that
// the lock is not held for long. The rule applies because the source has just answered.
func (c *copier) onTarget(do func() error) error {
	return c.mirror.watchdog.whileOthersWait(c.target, do)
}

// pace slows a copy down: to a rate, and to half of the time at most while users have requests. A user who waits for
// each answer before the next request has no request under way between the two, but still counts as a user with
// requests.
type pace struct {
	clock          clock.Clock
	bytesPerSecond int64       // 0: no limit
	busy           func() bool // users have a request under way, or had one since the last piece
	stop           <-chan struct{}
	took           time.Duration // duration of the last piece
	due            time.Time     // when the rate allows everything that was copied so far
}

const (
	// paceBurst is the largest delay that the copy may make up for.
	paceBurst = 100 * time.Millisecond
	// maxYield limits how long one piece waits for users.
	maxYield = 100 * time.Millisecond
)

// wait returns when a piece may be copied; busy means that users have requests.
func (p *pace) wait(ctx context.Context, next piece, busy bool) error {
	var pause time.Duration
	if busy {
		pause = min(p.took, maxYield)
	}
	if p.bytesPerSecond > 0 && !next.zero {
		now := p.clock.Now()
		if earliest := now.Add(-paceBurst); p.due.Before(earliest) {
			p.due = earliest
		}
		p.due = p.due.Add(time.Duration(float64(next.length) / float64(p.bytesPerSecond) * float64(time.Second)))
		pause = max(pause, p.due.Sub(now))
	}
	if pause > 0 {
		timer := p.clock.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
		case <-p.stop:
		}
	}
	if isClosed(p.stop) {
		return errDropped
	}
	return context.Cause(ctx)
}
