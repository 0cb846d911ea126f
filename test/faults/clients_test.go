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
	// lingering is how long clients continue to use a run after its successor serves.
	lingering = 20 * time.Millisecond
	// think is the longest pause between two operations of a client.
	think = 3 * time.Millisecond
	// notYet is how long a client waits if its block is beyond the end of the volume.
	notYet = 2 * time.Millisecond
	// clearEvery is the average number of changes of a client among which one makes its block read as zeroes.
	clearEvery = 8
)

// clients are a writer and a reader of each block. They use the engine on any node where it serves.
type clients struct {
	v         *volume
	syncEvery int // see plan
	running   sync.WaitGroup
	quit      chan struct{}
	values    atomic.Uint64
}

// worker is one client. A writer writes for a while and then rests, so that regions become quiet and are then written
// again.
type worker struct {
	*clients
	id    int
	rng   *rand.Rand
	tires time.Time // the time when a writer rests; zero: at once
	fresh bool      // its next write fills the whole block
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

// end stops the clients after each has finished its operation.
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

// use works on one run. It returns when the run fails, when it was succeeded a while ago, or when clients must leave
// it.
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

// operate performs one operation. It returns false if this connection can no longer be used.
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

// write writes a block, completely or only its start, and sometimes flushes it. It rests when its time has come, or if
// there is no space.
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

// rest lets the region of a block become quiet. During that time the end of the block is often a hole: then a write
// needs new space. rest returns false if the run must no longer be used.
func (c *worker) rest(ctx context.Context, r *run, b connection, block int) bool {
	if !c.tires.IsZero() && c.rng.IntN(2) == 0 {
		if err := b.Trim(ctx, offset(block)+fsBlockBytes, blockBytes-fsBlockBytes, false); isOver(b, err) {
			return false
		}
	}
	least, most := 2*quietPeriod, 8*quietPeriod
	if c.v.rate.Load() > 0 && block%3 != 0 { // for a whole slow copy, so that not every region changes during the copy
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

// stamina returns how long a writer works before it rests.
func (c *worker) stamina() time.Duration { return between(c.rng, 0, 3*quietPeriod) }

// isOver reports whether a client should look up the engine again.
func isOver(b connection, err error) bool {
	return isClosed(b.Done()) || err != nil && !errors.Is(err, nbd.ENOSPC)
}

// offset spreads the blocks. Two are neighbours, one crosses the border of two regions, and the others start one region
// each. The last three exist only after the volume has grown: one starts at its first end, one crosses another end, and
// one ends at its last end.
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

// change is a writer's change to the start of its block.
type change func(ctx context.Context, b nbd.Backend, in input, length int) error

// trimBlock and zeroBlock make the range read as zeroes.
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

// writeBlock writes the start of a block, at least the part with its value.
func writeBlock(ctx context.Context, b nbd.Backend, in input, length int) error {
	p := make([]byte, length)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], in.value)
	}
	return b.WriteAt(ctx, p, offset(in.block), in.durable)
}

// readBlock returns the value at the start of a block. The rest is checked only when no client writes: file systems do
// not guarantee that a read sees a page in the state after a single write.
func readBlock(ctx context.Context, b nbd.Backend, block int) (uint64, error) {
	p := make([]byte, 8)
	at := make([]byte, 512)
	if err := b.ReadAt(ctx, at, offset(block)); err != nil {
		return 0, err
	}
	copy(p, at)
	return binary.LittleEndian.Uint64(p), nil
}
