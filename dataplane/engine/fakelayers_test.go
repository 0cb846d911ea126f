package engine

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// layeredData is the data of a disk: one flat file until the first OpPrepare, then layers in memory that follow the
// functions of package layers. Each file is a memory.Backend, and a set of the blocks that it has.
type layeredData struct {
	size int64

	mu       sync.Mutex
	version  int          // guarded by mu, like all below
	chain    layers.Chain //
	prepared bool         // changes go below the top border
	attempt  layers.Point // of the last OpPrepare
	noRoom   bool
	bases    []layers.Number // of the rebuilds that were started
	files    map[layers.File]*memory.Backend
	has      map[layers.File]map[int64]bool // not of the lowest file
}

func newLayeredData(size int64) *layeredData {
	return &layeredData{
		size: size, version: 1, chain: layers.NewChain(),
		files: map[layers.File]*memory.Backend{1: memory.New(size)}, has: map[layers.File]map[int64]bool{},
	}
}

// hasBlock reports whether a file has a block. The lowest file has every block.
func (d *layeredData) hasBlock(f layers.File, block int64) bool {
	return f == d.chain.Layers[0].Files[0] || d.has[f][block]
}

// eachBlock calls f for each block of a range, with the part of the block that the range covers.
func eachBlock(off, length int64, f func(block, from, to, at int64) error) error {
	for at := int64(0); at < length; {
		block, from := (off+at)/layers.BlockBytes, (off+at)%layers.BlockBytes
		to := min(layers.BlockBytes, from+length-at)
		if err := f(block, from, to, at); err != nil {
			return err
		}
		at += to - from
	}
	return nil
}

// readLocked reads the view below a layer with index+1.
func (d *layeredData) readLocked(index int, p []byte, off int64) error {
	return eachBlock(off, int64(len(p)), func(block, from, to, at int64) error {
		f, ok := d.chain.Find(index, block, d.hasBlock)
		if !ok {
			clear(p[at : at+to-from])
			return nil
		}
		return d.files[f].ReadAt(context.Background(), p[at:at+to-from], block*layers.BlockBytes+from)
	})
}

func (d *layeredData) ReadAt(_ context.Context, p []byte, off int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.readLocked(d.chain.Head(), p, off)
}

func (d *layeredData) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeLocked(ctx, p, off, fua)
}

func (d *layeredData) writeLocked(ctx context.Context, p []byte, off int64, fua bool) error {
	if d.version == 1 {
		return d.files[1].WriteAt(ctx, p, off, fua)
	}
	active := d.chain.Active(d.prepared)
	return eachBlock(off, int64(len(p)), func(block, from, to, at int64) error {
		e := layers.OnWrite(d.hasBlock(active, block), to-from == layers.BlockBytes)
		if e.Fill {
			whole := make([]byte, layers.BlockBytes)
			if err := d.readLocked(d.chain.Head(), whole, block*layers.BlockBytes); err != nil {
				return err
			}
			if err := d.files[active].WriteAt(ctx, whole, block*layers.BlockBytes, false); err != nil {
				return err
			}
		}
		if e.Enter {
			d.has[active][block] = true
		}
		return d.files[active].WriteAt(ctx, p[at:at+to-from], block*layers.BlockBytes+from, fua)
	})
}

func (d *layeredData) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.version == 1 {
		return d.files[1].Zero(ctx, off, length, flags)
	}
	return d.writeLocked(ctx, make([]byte, length), off, false)
}

func (d *layeredData) Trim(ctx context.Context, off, length int64, _ bool) error {
	return d.Zero(ctx, off, length, 0)
}

func (d *layeredData) Flush(context.Context) error { return nil }

func (d *layeredData) Extents(ctx context.Context, off, length int64) ([]nbd.Extent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.version == 1 {
		return d.files[1].Extents(ctx, off, length)
	}
	return []nbd.Extent{{Offset: off, Length: length}}, nil
}

// view returns the content at a point; the zero point is the present.
func (d *layeredData) view(p layers.Point) ([]byte, error) {
	b := make([]byte, d.size)
	return b, d.readView(p, b, 0)
}

func (d *layeredData) readView(p layers.Point, b []byte, off int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	index := d.chain.Head()
	if p.Number != 0 {
		if index = d.chain.Border(p); index < 0 {
			return &nbd.Error{Errno: nbd.EINVAL, Msg: layers.ErrNoBorder.Error()}
		}
	}
	return d.readLocked(index, b, off)
}

// shown is the chain that a test compares.
func (d *layeredData) shown() layers.Chain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.chain
}

// borders are the numbers of the borders that are flushed, and of those that are not.
func (d *layeredData) borders() (flushed, other []layers.Number) {
	for _, l := range d.shown().Layers {
		switch {
		case l.Top.Number == 0:
		case l.Top.Flushed:
			flushed = append(flushed, l.Top.Number)
		default:
			other = append(other, l.Top.Number)
		}
	}
	return flushed, other
}

// reopen simulates another opening of the replica: the top file takes changes.
func (d *layeredData) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prepared, d.attempt = false, layers.Point{}
}

// useLocked replaces the list, and creates and removes files.
func (d *layeredData) useLocked(c layers.Chain) {
	d.version, d.chain = 2, c
	listed := map[layers.File]bool{}
	for _, l := range c.Layers {
		for _, f := range l.Files {
			listed[f] = true
			if d.files[f] == nil {
				d.files[f], d.has[f] = memory.New(d.size), map[int64]bool{}
			}
		}
	}
	maps.DeleteFunc(d.files, func(f layers.File, _ *memory.Backend) bool { return !listed[f] })
}

// control carries out an operation of package points.
func (d *layeredData) control(op uint16, payload []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch op {
	case points.OpState:
		return json.Marshal(points.State{Version: d.version, Chain: d.chain, NoRoom: d.noRoom})
	case points.OpFollow:
		return serve(payload, func(m points.Follow) (any, error) {
			if d.version == 1 {
				return points.Followed{State: points.State{Version: 1, Chain: d.chain}}, nil
			}
			f := m.Line.Follow(d.chain)
			d.useLocked(f.Chain)
			if f.Chain.Border(d.attempt) < 0 {
				d.prepared, d.attempt = false, layers.Point{}
			}
			return points.Followed{State: points.State{Version: 2, Chain: d.chain}, Short: f.Short}, nil
		})
	case points.OpPrepare:
		return serve(payload, func(m points.Prepare) (any, error) { return nil, d.prepareLocked(m) })
	case points.OpSwitch:
		return serve(payload, func(p layers.Point) (any, error) {
			if d.attempt != p || d.chain.Border(p) < 0 {
				return nil, invalidPoint(layers.ErrNotPrepared)
			}
			d.prepared = false
			return nil, nil
		})
	case points.OpSeal:
		return serve(payload, func(p layers.Point) (any, error) {
			if d.prepared {
				return nil, invalidPoint(layers.ErrNotPrepared)
			}
			c, err := d.chain.Seal(p)
			if err != nil {
				return nil, invalidPoint(err)
			}
			d.useLocked(c)
			return nil, nil
		})
	case points.OpLine:
		return serve(payload, func(m points.Line) (any, error) { return nil, d.mergeLocked(m) })
	}
	return d.controlRebuildLocked(op, payload)
}

func invalidPoint(err error) error { return &nbd.Error{Errno: nbd.EINVAL, Msg: err.Error()} }

// serve decodes a request and encodes the reply.
func serve[T any](payload []byte, do func(T) (any, error)) ([]byte, error) {
	var m T
	if err := json.Unmarshal(payload, &m); err != nil {
		return nil, invalidPoint(err)
	}
	reply, err := do(m)
	if err != nil || reply == nil {
		return nil, err
	}
	if b, ok := reply.([]byte); ok {
		return b, nil
	}
	return json.Marshal(reply)
}

func (d *layeredData) prepareLocked(m points.Prepare) error {
	switch border := d.chain.Border(m.Point); {
	case border >= 0 && d.attempt == m.Point:
		return nil
	case border >= 0:
		return invalidPoint(layers.ErrBorderGiven)
	case d.prepared:
		return invalidPoint(layers.ErrBusy)
	}
	c, err := d.chain.Prepare(m.Point, m.Limit)
	if err != nil {
		return invalidPoint(err)
	}
	d.useLocked(c)
	d.prepared, d.attempt = true, m.Point
	return nil
}

// mergeLocked joins all borders that may go.
func (d *layeredData) mergeLocked(m points.Line) error {
	for _, l := range slices.Clone(d.chain.Layers) {
		p := l.Top.Point
		busy := layers.Busy{Barrier: d.attempt.Number > 0 && m.Line.State(d.attempt) == layers.Intended, Needed: m.Needed}
		if p.Number == 0 || !m.Line.MayJoin(p, busy) {
			continue
		}
		c, err := d.chain.Join(p)
		if err != nil {
			return invalidPoint(err)
		}
		d.useLocked(c)
		if d.attempt == p {
			d.prepared, d.attempt = false, layers.Point{}
		}
	}
	return nil
}

// controlRebuildLocked carries out the operations of a rebuild.
func (d *layeredData) controlRebuildLocked(op uint16, payload []byte) ([]byte, error) {
	switch op {
	case points.OpReadView:
		return serve(payload, func(m points.ReadView) (any, error) {
			index := d.chain.Head()
			if m.Point.Number != 0 {
				if index = d.chain.Border(m.Point); index < 0 {
					return nil, invalidPoint(layers.ErrNoBorder)
				}
			}
			b := make([]byte, m.Length)
			return b, d.readLocked(index, b, m.Offset)
		})
	case points.OpDiffers:
		return serve(payload, func(m points.Differs) (any, error) { return d.differsLocked(m) })
	case points.OpStartRebuild:
		return serve(payload, func(m points.StartRebuild) (any, error) {
			d.bases = append(d.bases, m.Base.Number)
			d.useLocked(layers.StartRebuild(d.chain, m.Base))
			d.prepared, d.attempt = false, layers.Point{}
			return nil, nil
		})
	case points.OpSealStage:
		return serve(payload, func(m points.SealStage) (any, error) {
			d.useLocked(m.Line.SealStage(d.chain, m.Point))
			return nil, nil
		})
	case points.OpEndRebuild:
		return serve(payload, func(m points.EndRebuild) (any, error) {
			d.useLocked(m.Line.EndRebuild(d.chain))
			return nil, nil
		})
	}
	return nil, nbd.ENOTSUP
}

// differsLocked answers in parts of at most differsBlocks blocks.
func (d *layeredData) differsLocked(m points.Differs) (points.Ranges, error) {
	first, end := 0, d.chain.Head()
	if m.From.Number != 0 {
		i := d.chain.Border(m.From)
		if i < 0 {
			return points.Ranges{Unknown: true, Next: d.size}, nil
		}
		first = i + 1
	}
	if m.To.Number != 0 {
		if end = d.chain.Border(m.To); end < 0 {
			return points.Ranges{}, invalidPoint(layers.ErrNoBorder)
		}
	}
	var r points.Ranges
	next := min(d.size, m.Offset+differsBlocks*layers.BlockBytes)
	for off := m.Offset; off < next; off += layers.BlockBytes {
		for _, l := range d.chain.Layers[first : end+1] {
			if slices.ContainsFunc(l.Files, func(f layers.File) bool { return d.hasBlock(f, off/layers.BlockBytes) }) {
				r.Ranges = append(r.Ranges, points.Range{Offset: off, Length: min(layers.BlockBytes, d.size-off)})
				break
			}
		}
	}
	r.Next = next
	return r, nil
}

const differsBlocks = 512
