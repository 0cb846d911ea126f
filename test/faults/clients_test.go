package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

const (
	// lingering is how long clients go on with a run after its successor serves.
	lingering = 20 * time.Millisecond
	// think is between two operations of a client, at most.
	think = 3 * time.Millisecond
	// notYet is how long a client waits whose block is beyond the end of the volume.
	notYet = 2 * time.Millisecond
	// clearEvery is how many changes of a client come on one that makes its block read as zeroes.
	clearEvery = 8
)

// clients are a writer and a reader of each block. They follow the engine wherever it serves.
type clients struct {
	v         *volume
	syncEvery int // see plan
	running   sync.WaitGroup
	quit      chan struct{}
	values    atomic.Uint64
}

// worker is one of them. A writer writes for a while and then rests, so that regions become quiet and are written anew.
type worker struct {
	*clients
	id    int
	rng   *rand.Rand
	tires time.Time // a writer's time to rest; zero: at once
	fresh bool      // its next write fills its whole block
}

func startClients(v *volume, seed uint64, syncEvery int) *clients {
	cs := &clients{v: v, syncEvery: syncEvery, quit: make(chan struct{})}
	for i := range 2 * blockCount {
		c := &worker{clients: cs, id: i, rng: rand.New(rand.NewPCG(seed, uint64(i))), fresh: true}
		c.tires = time.Now().Add(c.stamina())
		cs.running.Go(c.follow)
	}
	return cs
}

// end lets every client finish what it does.
func (c *clients) end() {
	close(c.quit)
	c.running.Wait()
}

// follow works on one run of the engine after the other.
func (c *worker) follow() {
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
		if r == last { // it has ended, but the control has not seen that yet
			pause(c.v.ctx, think)
		}
		last = r
		c.use(r)
	}
}

// use works on one run until it fails, was succeeded a while ago, or is to be left.
func (c *worker) use(r *run) {
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
	offered := c.v.offeredBytes()
	if end := offset(c.id/2) + blockBytes; offered < end {
		pause(ctx, notYet)
		return
	}
	b, err := c.v.connect(ctx, r)
	if err != nil {
		return
	}
	defer b.Close()
	c.v.checkConnection(r, b, offered)
	for ctx.Err() == nil && !isClosed(c.quit) && !isClosed(r.leave) {
		if !c.operate(ctx, r, b) {
			return
		}
		pause(ctx, time.Duration(c.rng.Int64N(int64(think))))
	}
}

// operate does one operation; false when this connection is good for nothing more.
func (c *worker) operate(ctx context.Context, r *run, b connection) bool {
	block := c.id / 2
	if c.id%2 == 0 {
		return c.write(ctx, r, b, block)
	}
	call := c.v.history.now()
	v, err := readBlock(ctx, b, block)
	if err == nil {
		c.v.history.add(c.id, r, input{block: block}, call, output{value: v})
	}
	return !isOver(b, err)
}

// write writes a block, whole or only its beginning, and flushes it now and then. It rests when its time has come, or there is no space.
func (c *worker) write(ctx context.Context, r *run, b connection, block int) bool {
	if time.Now().After(c.tires) && !c.rest(ctx, r, b, block) {
		return false
	}
	in := input{block: block, kind: opWrite, durable: c.rng.IntN(c.syncEvery) == 0}
	length := fsBlockBytes
	if c.fresh || c.rng.IntN(4) == 0 {
		length = blockBytes
	}
	c.fresh = false
	do := writeBlock
	if c.rng.IntN(clearEvery) == 0 {
		do = []change{trimBlock, zeroBlock}[c.rng.IntN(2)]
	} else {
		in.value = c.values.Add(1)
	}
	call := c.v.history.now()
	err := do(ctx, b, in, length)
	if errors.Is(err, nbd.ErrNotSent) {
		return false
	}
	c.v.history.add(c.id, r, in, call, output{unknown: err != nil})
	switch {
	case errors.Is(err, nbd.ENOSPC):
		c.tires = time.Time{}
		c.v.mu.Lock()
		c.v.seen.refused++
		c.v.mu.Unlock()
	case err == nil && in.value == 0:
		c.v.mu.Lock()
		c.v.seen.wiped++
		c.v.mu.Unlock()
	}
	if err == nil && c.rng.IntN(c.syncEvery) == 0 {
		call = c.v.history.now()
		if err = b.Flush(ctx); err == nil {
			c.v.history.add(c.id, r, input{block: block, kind: opFlush}, call, output{})
		}
	}
	return !isOver(b, err)
}

// rest lets the region of a block become quiet. The end of the block is a hole meanwhile, often: it then takes space to write it. It
// returns false when the run is not to be used any more.
func (c *worker) rest(ctx context.Context, r *run, b connection, block int) bool {
	if !c.tires.IsZero() && c.rng.IntN(2) == 0 {
		if err := b.Trim(ctx, offset(block)+fsBlockBytes, blockBytes-fsBlockBytes, false); isOver(b, err) {
			return false
		}
	}
	least, most := 2*quietPeriod, 8*quietPeriod
	if c.v.rate.Load() > 0 && block%3 != 0 { // for all of a slow copy, so that not every region is changed meanwhile
		least, most = time.Second, 2*time.Second
	}
	t := time.NewTimer(between(c.rng, least, most))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.leave:
		return false
	case <-c.quit:
		return false
	case <-ctx.Done():
		return false
	}
	c.tires, c.fresh = time.Now().Add(c.stamina()), true
	return true
}

// stamina is how long a writer goes on.
func (c *worker) stamina() time.Duration { return between(c.rng, 0, 3*quietPeriod) }

// isOver says whether a client should look for the engine anew.
func isOver(b connection, err error) bool {
	return isClosed(b.Done()) || err != nil && !errors.Is(err, nbd.ENOSPC)
}

// offset spreads the blocks: two are neighbours, one lies across the border of two regions, others begin one region each. The last three
// are there only when the volume has grown: one from its first end on, one across another end, one up to its last.
func offset(block int) int64 {
	switch block {
	case 0:
		return blockBytes
	case 4:
		return 3*regionBytes - blockBytes/2
	case 6:
		return volumeSizes[0]
	case 7:
		return volumeSizes[2] - blockBytes/2
	case 8:
		return volumeSizes[len(volumeSizes)-1] - blockBytes
	}
	return int64(block-1) * regionBytes
}

// change is what a writer does to the beginning of its block.
type change func(ctx context.Context, b nbd.Backend, in input, length int) error

// trimBlock and zeroBlock make it read as zeroes.
func trimBlock(ctx context.Context, b nbd.Backend, in input, length int) error {
	return b.Trim(ctx, offset(in.block), int64(length), in.durable)
}

func zeroBlock(ctx context.Context, b nbd.Backend, in input, length int) error {
	var flags nbd.ZeroFlags
	if in.durable {
		flags = nbd.ZeroFUA
	}
	return b.Zero(ctx, offset(in.block), int64(length), flags)
}

// writeBlock writes the beginning of a block, at least what has its value.
func writeBlock(ctx context.Context, b nbd.Backend, in input, length int) error {
	p := make([]byte, length)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], in.value)
	}
	return b.WriteAt(ctx, p, offset(in.block), in.durable)
}

// readBlock returns the value at the beginning of a block. The rest is looked at only when no client writes: file systems do not promise
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
