package mounts

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

const (
	replicaBytes = 16 * mib
	blockBytes   = 4096
	blockCount   = replicaBytes / blockBytes
	writePause   = 300 * time.Microsecond // between two writes, so that the machine can do other work too
)

// content is the expected content of a replica: the stamp of each block, and a second possible stamp if a write of the
// block has no answer.
type content struct {
	mark    uint64 // distinguishes replicas
	stamps  map[int64]uint64
	pending map[int64]uint64
}

func newContent(mark uint64) *content {
	return &content{mark: mark, stamps: map[int64]uint64{}, pending: map[int64]uint64{}}
}

// block returns the content of a block with a stamp.
func (c *content) block(number int64, stamp uint64) []byte {
	p := make([]byte, blockBytes)
	for i := 0; i < blockBytes; i += 32 {
		binary.LittleEndian.PutUint64(p[i:], c.mark)
		binary.LittleEndian.PutUint64(p[i+8:], uint64(number))
		binary.LittleEndian.PutUint64(p[i+16:], stamp)
		binary.LittleEndian.PutUint64(p[i+24:], stamp*0x9e3779b97f4a7c15)
	}
	return p
}

// check reads all blocks that were ever written. After that it expects the result of a pending write in later checks
// too.
func (c *content) check(b nbd.Backend) error {
	got := make([]byte, blockBytes)
	numbers := map[int64]bool{}
	for n := range c.stamps {
		numbers[n] = true
	}
	for n := range c.pending {
		numbers[n] = true
	}
	for n := range numbers {
		if err := b.ReadAt(context.Background(), got, n*blockBytes); err != nil {
			return fmt.Errorf("read block %d: %w", n, err)
		}
		stamp, written := c.stamps[n]
		pending, unanswered := c.pending[n]
		switch {
		case unanswered && bytes.Equal(got, c.block(n, pending)):
			c.stamps[n] = pending
		case written && bytes.Equal(got, c.block(n, stamp)):
		case !written && bytes.Equal(got, make([]byte, blockBytes)):
		default:
			return fmt.Errorf("block %d holds % x…, which is not what was acknowledged (stamp %d)", n, got[:32], stamp)
		}
	}
	clear(c.pending)
	return nil
}

// writer writes random blocks of a replica until it is stopped or a write fails.
type writer struct {
	client  *nbd.Client
	content *content
	acked   atomic.Int64
	quit    chan struct{}
	done    chan struct{} // closed when no write is under way any longer
	err     error         // set before done is closed; nil if the writer was stopped
}

func startWriter(c *nbd.Client, content *content, seed uint64) *writer {
	w := &writer{client: c, content: content, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = w.write(rand.New(rand.NewPCG(seed, content.mark)))
	}()
	return w
}

func (w *writer) write(rng *rand.Rand) error {
	pause := time.NewTicker(writePause)
	defer pause.Stop()
	for i := 0; ; i++ {
		select {
		case <-w.quit:
			return nil
		case <-pause.C:
		}
		number, stamp := rng.Int64N(blockCount), rng.Uint64()
		if err := w.client.WriteAt(context.Background(), w.content.block(number, stamp), number*blockBytes, i%64 == 0); err != nil {
			w.content.pending[number] = stamp
			return err
		}
		w.content.stamps[number] = stamp
		w.acked.Add(1)
	}
}

// goesOn waits until n further writes were acknowledged.
func (w *writer) goesOn(n int64) error {
	until := w.acked.Load() + n
	return poll("the writer does not go on", func() error {
		select {
		case <-w.done:
			return fmt.Errorf("it has ended: %w", w.err)
		default:
		}
		if now := w.acked.Load(); now < until {
			return fmt.Errorf("%d writes short", until-now)
		}
		return nil
	})
}

// stop stops the writer and closes its connection. It returns the reason if the writer had stopped before.
func (w *writer) stop() error {
	close(w.quit)
	<-w.done
	_ = w.client.Close()
	return w.err
}

// churn creates and removes a replica repeatedly until it is stopped. It ignores refusals.
type churn struct {
	end    context.CancelFunc
	ending sync.WaitGroup
	made   atomic.Int64
}

func startChurn(m *manager, s *proto.ReplicaSpec) *churn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &churn{end: cancel}
	calls := m.Client // of the process that runs now
	c.ending.Go(func() {
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			if _, err := calls.ReplicaCreate(ctx, s); err == nil {
				c.made.Add(1)
			}
			_, _ = calls.ReplicaRemove(ctx, s)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	})
	return c
}

func (c *churn) stop() {
	c.end()
	c.ending.Wait()
}
