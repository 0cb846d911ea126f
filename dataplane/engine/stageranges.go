package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// rangeReader reads which ranges of the volume must be copied, in ascending order and part by part: the ranges of a
// large volume do not fit into one message, nor into memory.
type rangeReader struct {
	// ask returns the ranges from an offset on.
	ask     func(ctx context.Context, off int64) (points.Ranges, error)
	size    int64
	ranges  []byteRange // read, and not returned
	covered int64       // ranges has everything before it
}

// upTo returns the ranges before end that were not returned before.
func (r *rangeReader) upTo(ctx context.Context, end int64) ([]byteRange, error) {
	for r.covered < end {
		if err := r.read(ctx); err != nil {
			return nil, err
		}
	}
	var out []byteRange
	for len(r.ranges) > 0 && r.ranges[0].from < end {
		first := &r.ranges[0]
		out = append(out, byteRange{from: first.from, to: min(first.to, end)})
		if first.to > end {
			first.from = end
			break
		}
		r.ranges = r.ranges[1:]
	}
	return out, nil
}

// read reads one part. An answer that does not continue where the last one ended is an error.
func (r *rangeReader) read(ctx context.Context) error {
	part, err := r.ask(ctx, r.covered)
	if err != nil {
		return err
	}
	if part.Unknown {
		r.ranges, r.covered = append(r.ranges, byteRange{from: r.covered, to: r.size}), r.size
		return nil
	}
	next := min(part.Next, r.size)
	if next <= r.covered {
		return fmt.Errorf("the answer about changed ranges covers nothing after offset %d: %w", r.covered, nbd.EIO)
	}
	for _, g := range part.Ranges {
		last := r.covered
		if n := len(r.ranges); n > 0 {
			last = max(last, r.ranges[n-1].to)
		}
		if g.Length <= 0 || g.Offset < last || g.Offset >= next || g.Length > r.size-g.Offset {
			return fmt.Errorf("the answer about changed ranges has %d bytes at offset %d: %w", g.Length, g.Offset, nbd.EIO)
		}
		r.ranges = append(r.ranges, byteRange{from: g.Offset, to: g.Offset + g.Length})
	}
	r.covered = next
	return nil
}

// knownRanges returns a reader of ranges that are known.
func knownRanges(ranges []byteRange, size int64) *rangeReader {
	return &rangeReader{ranges: slices.Clone(ranges), size: size, covered: size}
}

// unite merges ranges that overlap, or that have a gap of up to joinHoleBytes between them.
func unite(ranges []byteRange) []byteRange {
	slices.SortFunc(ranges, func(a, b byteRange) int { return cmp.Compare(a.from, b.from) })
	var out []byteRange
	for _, g := range ranges {
		if last := len(out) - 1; last >= 0 && g.from <= out[last].to+joinHoleBytes {
			out[last].to = max(out[last].to, g.to)
			continue
		}
		out = append(out, g)
	}
	return out
}

// differs returns a reader of the ranges in which the views at two points may differ, on the first of the members that
// answers. An error of a member proves nothing about it.
func (e *Engine) differs(from, to layers.Point, of func() []*member) *rangeReader {
	size := e.mirror.size.Load()
	return &rangeReader{size: size, ask: func(ctx context.Context, off int64) (part points.Ranges, err error) {
		request := encoded(points.Differs{From: from, To: to, Offset: off})
		err = e.askFirst(ctx, of(), points.OpDiffers, request, func(reply []byte) error {
			part, err = decodeMessage[points.Ranges](reply, nbd.MaxControl)
			return err
		})
		return part, err
	}}
}

// viewSource reads from the view at a point, on the first member that answers.
type viewSource struct {
	engine *Engine
	ctx    context.Context // of the rebuild
	point  layers.Point
}

// extents does not know the holes of a view.
func (v viewSource) extents(int64, int64) ([]nbd.Extent, error) { return nil, nbd.ENOTSUP }

func (v viewSource) isHole(int64, int64) bool { return false }

func (v viewSource) read(buf []byte, off int64) error {
	request := encoded(points.ReadView{Point: v.point, Offset: off, Length: int64(len(buf))})
	return v.engine.askFirst(v.ctx, v.engine.sources(), points.OpReadView, request, func(reply []byte) error {
		if len(reply) != len(buf) {
			return fmt.Errorf("the answer has %d bytes, expected %d: %w", len(reply), len(buf), nbd.EIO)
		}
		copy(buf, reply)
		return nil
	})
}

// sources are the members from which a rebuild copies, the preferred one first.
func (e *Engine) sources() []*member {
	ro := e.mirror.roster.Load()
	return slices.Concat(ro.serving[ro.primary:], ro.serving[:ro.primary])
}

// askFirst asks members one after the other until one gives an answer that use accepts. A request that is not answered
// in time is left behind.
func (e *Engine) askFirst(
	ctx context.Context, members []*member, op uint16, request []byte, use func(reply []byte) error,
) error {
	var reasons []error
	for _, m := range members {
		reply, err := e.askOne(ctx, m, op, request)
		if err == nil {
			err = use(reply)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reasons = append(reasons, fmt.Errorf("replica %s: %w", m.name, err))
	}
	return fmt.Errorf("no replica answers: %w", errors.Join(reasons...))
}

// askOne asks one replica. It returns when ctx ends, when the replica has failed, or after the time that a rebuild
// gives a replica.
func (e *Engine) askOne(ctx context.Context, m *member, op uint16, request []byte) ([]byte, error) {
	type answer struct {
		reply []byte
		err   error
	}
	ctx, stop := e.within(ctx, e.mirror.watchdog.rule.AloneAfter(), errNoAnswer)
	defer stop()
	answers := make(chan answer, 1)
	e.tasks.Go(func() {
		reply, err := m.Control(ctx, op, request)
		answers <- answer{reply, err}
	})
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-m.dropped:
		return nil, errDropped
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
