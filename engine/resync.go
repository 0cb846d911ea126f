package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// resyncChunk is how much is compared at once, in bytes; resyncStep how much is asked about before; and resyncWorkers how many
// steps run side by side. So memory stays below 2 × workers × chunk.
const (
	resyncChunk   = 1 << 20
	resyncStep    = 64 << 20
	resyncWorkers = 4
)

// equalize makes the members equal in every region that any of them has marked, and clears all marks. It runs before the gate
// opens, so nothing else changes. It may be repeated after a crash at any line: marks are cleared last, when every member has
// flushed, and no epoch lists one that has not.
//
// Any member's content of a marked region is a right one: an acknowledged write is on all of them, and of the others any may be
// kept, sector by sector. What a machine lost with its power may be missing in what it kept in memory only; so the source is a
// replica that has lost nothing, if there is one. A member that fails is left behind, and the rest begins again.
func (e *Engine) equalize(members candidates) *failure {
	m := e.mirror
	for {
		if !e.settle(e.quit) {
			return interrupted(e.ctx)
		}
		ro := m.roster.Load()
		err := m.equalizeOnce(e.ctx, ro, members, e.log)
		if err == nil {
			return nil
		}
		if e.ctx.Err() != nil || m.roster.Load() == ro {
			return &failure{reason: ReasonResyncFailed, err: fmt.Errorf("make replicas equal: %w", err)}
		}
	}
}

func (m *mirror) equalizeOnce(ctx context.Context, ro *roster, members candidates, log *logrus.Entry) error {
	marked, err := m.marked(ro)
	if err != nil || marked.count() == 0 {
		return err
	}
	source := chooseSource(ro, members)
	log.WithFields(logrus.Fields{"regions": marked.count(), "source": ro.serving[source].name}).Info("Making replicas equal after an unclean stop")
	if len(ro.serving) > 1 {
		if err := m.copyRuns(ctx, ro, marked.runs(), source); err != nil {
			return err
		}
	}
	if err := m.onServing(ro, func(b *member) error { return b.Flush(background) }); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if m.roster.Load() != ro {
		return errUnsettled
	}
	return m.clearOn(ro, marked.indexes())
}

// chooseSource returns the serving member that the others are made equal to: the first that was closed cleanly, else the first
// whose machine has lost nothing, else the first.
func chooseSource(ro *roster, members candidates) int {
	best, rank := 0, 0
	for i, b := range ro.serving {
		at := slices.IndexFunc(members, func(c *candidate) bool { return c.Name == b.name })
		if at < 0 {
			continue
		}
		r := 0
		switch s := members[at].state; {
		case s.Clean:
			r = 2
		case s.CacheKept:
			r = 1
		}
		if r > rank {
			best, rank = i, r
		}
	}
	return best
}

// marked returns the union of all members' marks.
func (m *mirror) marked(ro *roster) (bitmap, error) {
	count := m.regions.count()
	union := newBitmap(int(count))
	var mu sync.Mutex
	err := m.onServing(ro, func(b *member) error {
		indexes, err := b.marks(count)
		mu.Lock()
		defer mu.Unlock()
		union.add(indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for marks: %w", err)
	}
	return union, nil
}

// marks asks a replica for its marks, of which there can be count.
func (m *member) marks(count int64) ([]int64, error) {
	reply, err := m.Control(background, membership.OpIntents, nil)
	if err != nil {
		return nil, err
	}
	return decodeRegions(m.name, reply, count)
}

// decodeRegions reads a reply of a replica that lists regions, of which there are count. A replica that is larger than the volume may have
// others, too: they are nobody's yet.
func decodeRegions(replica string, reply []byte, count int64) ([]int64, error) {
	var r membership.Regions
	if err := json.Unmarshal(reply, &r); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(r.Indexes, func(n int64) bool { return n < 0 }); i >= 0 {
		return nil, fmt.Errorf("replica %s has marked region %d", replica, r.Indexes[i])
	}
	return slices.DeleteFunc(r.Indexes, func(n int64) bool { return n >= count }), nil
}

// copyRuns makes the runs equal to the source.
func (m *mirror) copyRuns(ctx context.Context, ro *roster, runs []run, source int) error {
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(resyncWorkers)
	for _, q := range runs {
		b := m.regions.bytesOf(q, m.size.Load())
		for off, end := b.from, b.to; off < end; off += resyncStep {
			if failed.Err() != nil {
				break
			}
			length := min(resyncStep, end-off)
			group.Go(func() error { return m.copyStep(failed, ro, source, off, length) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// copyStep makes one step equal to the source. What no member has allocated is equal already: a discard of a whole volume marks all
// of it, and need not make all of it read.
func (m *mirror) copyStep(ctx context.Context, ro *roster, source int, off, length int64) error {
	if m.isZeroEverywhere(ro.serving, off, length) {
		return nil
	}
	for end := off + length; off < end && ctx.Err() == nil; off += resyncChunk {
		if err := m.copyChunk(ro, source, off, min(resyncChunk, end-off)); err != nil {
			return err
		}
	}
	return nil
}

// isZeroEverywhere says whether all members are known to hold zeroes. It may miss that, also because of an error.
func (m *mirror) isZeroEverywhere(members []*member, off, length int64) bool {
	for _, b := range members {
		for at := off; at < off+length; {
			extents, err := m.extents(b, at, off+length-at)
			if err != nil || len(extents) == 0 {
				return false
			}
			for _, e := range extents {
				if e.Flags&nbd.ExtentZero == 0 || e.Length <= 0 {
					return false
				}
				at += e.Length
			}
		}
	}
	return true
}

// copyChunk makes one chunk equal to the source; only what differs is written. A member that returns an error has failed.
func (m *mirror) copyChunk(ro *roster, source int, off, length int64) error {
	fault := func(b *member, err error) error {
		m.failed(b, err)
		return fmt.Errorf("replica %s: %w", b.name, err)
	}
	want, have := make([]byte, length), make([]byte, length) // not used again: what hangs in a disk may still be at them
	from := ro.serving[source]
	if err := m.watchdog.whileProbed(from, off, length, func() error { return from.ReadAt(background, want, off) }); err != nil {
		return fault(from, fmt.Errorf("read %d bytes at %d: %w", length, off, err))
	}
	for i, b := range ro.serving {
		if i == source {
			continue
		}
		if err := m.watchdog.whileOthersWait(b, func() error { return b.ReadAt(background, have, off) }); err != nil {
			return fault(b, fmt.Errorf("read %d bytes at %d: %w", length, off, err))
		}
		if bytes.Equal(want, have) {
			continue
		}
		if err := m.watchdog.whileOthersWait(b, func() error { return putChunk(b, want, off) }); err != nil {
			return fault(b, fmt.Errorf("write %d bytes at %d: %w", length, off, err))
		}
	}
	return nil
}

// putChunk writes a chunk, as a hole if it is all zeroes.
func putChunk(b nbd.Backend, p []byte, off int64) error {
	if isZero(p) {
		return b.Zero(background, off, int64(len(p)), 0)
	}
	return b.WriteAt(background, p, off, false)
}

func isZero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:])
}
