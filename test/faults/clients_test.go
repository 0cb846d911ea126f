package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

const (
	// lingering is how long clients go on with a run after its successor serves.
	lingering = 20 * time.Millisecond
	// think is between two operations of a client, at most.
	think = 2 * time.Millisecond
)

// clients are a writer and a reader of each block. They follow the engine wherever it serves.
type clients struct {
	v       *volume
	running sync.WaitGroup
	quit    chan struct{}
	values  atomic.Uint64
}

func startClients(v *volume, seed uint64) *clients {
	c := &clients{v: v, quit: make(chan struct{})}
	for i := range 2 * blockCount {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		c.running.Go(func() { c.follow(i, rng) })
	}
	return c
}

// end lets every client finish what it does.
func (c *clients) end() {
	close(c.quit)
	c.running.Wait()
}

// follow is one client: it works on one run of the engine after the other.
func (c *clients) follow(id int, rng *rand.Rand) {
	var last *run
	for !isClosed(c.quit) {
		r, changed := c.v.current()
		if r == nil || !isClosed(r.served) || isClosed(r.leave) {
			select {
			case <-changed:
			case <-c.quit:
			}
			continue
		}
		if r == last { // it has ended, but nobody has seen that yet
			pause(c.v.ctx, think)
		}
		last = r
		c.use(id, r, rng)
	}
}

// use works on one run until it fails, was succeeded a while ago, or is to be left.
func (c *clients) use(id int, r *run, rng *rand.Rand) {
	ctx, cancel := context.WithCancel(c.v.ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-r.succeeded:
			pause(ctx, lingering)
			cancel()
		case <-ctx.Done():
		}
	})
	b, err := r.node.dial(ctx, "engine/"+c.v.name)
	if err != nil {
		return
	}
	defer b.Close()
	for ctx.Err() == nil && !isClosed(c.quit) && !isClosed(r.leave) {
		if !c.operate(ctx, id, r, b, rng) {
			return
		}
		pause(ctx, time.Duration(rng.Int64N(int64(think))))
	}
}

// operate does one operation; false when this connection is good for nothing more.
func (c *clients) operate(ctx context.Context, id int, r *run, b *nbd.Client, rng *rand.Rand) bool {
	block, isWriter := id/2, id%2 == 0
	h := c.v.history
	call := h.now()
	if !isWriter {
		v, err := readBlock(ctx, b, block)
		if err == nil {
			h.add(id, r, input{block: block}, call, output{value: v})
		}
		return !isOver(b, err)
	}
	value := c.values.Add(1)
	err := writeBlock(ctx, b, block, value, rng.IntN(8) == 0)
	if errors.Is(err, nbd.ErrNotSent) {
		return false
	}
	h.add(id, r, input{block: block, isWrite: true, value: value}, call, output{unknown: err != nil})
	if err == nil && rng.IntN(8) == 0 {
		err = b.Flush(ctx)
	}
	return !isOver(b, err)
}

// isOver says whether a client should look for the engine anew.
func isOver(b *nbd.Client, err error) bool {
	return isClosed(b.Done()) || err != nil && !errors.Is(err, nbd.ENOSPC)
}

// offset spreads the blocks: two in one page-sized neighbourhood, the others over all regions.
func offset(block int) int64 {
	if block == 0 {
		return blockBytes
	}
	return int64(block-1) * (volumeBytes / blockCount)
}

func writeBlock(ctx context.Context, b nbd.Backend, block int, value uint64, fua bool) error {
	p := make([]byte, blockBytes)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], value)
	}
	return b.WriteAt(ctx, p, offset(block), fua)
}

// readBlock returns the value at the beginning of a block. The rest is looked at only when nobody writes: file systems do not promise
// that a read sees a page as one write left it.
func readBlock(ctx context.Context, b nbd.Backend, block int) (uint64, error) {
	p := make([]byte, 8)
	at := make([]byte, 512)
	if err := b.ReadAt(ctx, at, offset(block)); err != nil {
		return 0, err
	}
	copy(p, at)
	return binary.LittleEndian.Uint64(p), nil
}

// wholeBlock returns the value of a block that nobody writes.
func wholeBlock(content []byte, block int) (uint64, error) {
	p := content[offset(block) : offset(block)+blockBytes]
	first := binary.LittleEndian.Uint64(p)
	for i := 8; i < len(p); i += 8 {
		if v := binary.LittleEndian.Uint64(p[i:]); v != first {
			return 0, fmt.Errorf("block %d is torn: %d at its beginning, %d at byte %d", block, first, v, i)
		}
	}
	return first, nil
}

// readAll returns the content of an export.
func readAll(ctx context.Context, b nbd.Backend) ([]byte, error) {
	content := make([]byte, volumeBytes)
	const step = 1 << 20
	for off := 0; off < volumeBytes; off += step {
		if err := b.ReadAt(ctx, content[off:min(off+step, volumeBytes)], int64(off)); err != nil {
			return nil, err
		}
	}
	return content, nil
}
