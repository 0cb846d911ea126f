package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

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
// flushed.
//
// Any member's content of a marked region is a right one: an acknowledged write is on all of them, and of the others any may be
// kept, sector by sector. What a machine lost with its power may still be missing in its page cache only; so the source is a
// replica that was closed cleanly, if there is one.
func (m *mirror) equalize(ctx context.Context, members candidates, log *logrus.Entry) error {
	marked, err := m.marked()
	if err != nil || len(marked.runs()) == 0 {
		return err
	}
	source := chooseSource(members)
	log.WithFields(logrus.Fields{"regions": marked.count(), "source": m.members[source].name}).Info("Making replicas equal after an unclean stop")
	if len(m.members) > 1 {
		if err := m.copyRuns(ctx, marked.runs(), source); err != nil {
			return err
		}
	}
	if err := m.onAll(func(b *member) error { return b.Flush(background) }); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	payload, err := json.Marshal(membership.Regions{Indexes: marked.indexes()})
	if err != nil {
		return fmt.Errorf("encode regions: %w", err)
	}
	return m.onAll(func(b *member) error {
		_, err := b.Control(background, membership.OpClearIntents, payload)
		return err
	})
}

// chooseSource returns the member that the others are made equal to.
func chooseSource(members candidates) int {
	for i, c := range members {
		if c.state.Clean {
			return i
		}
	}
	return 0
}

// marked returns the union of all members' marks.
func (m *mirror) marked() (bitmap, error) {
	replies := make([]membership.Regions, len(m.members))
	index := map[*member]int{}
	for i, b := range m.members {
		index[b] = i
	}
	err := m.onAll(func(b *member) error {
		reply, err := b.Control(background, membership.OpIntents, nil)
		if err != nil {
			return err
		}
		return json.Unmarshal(reply, &replies[index[b]])
	})
	if err != nil {
		return nil, fmt.Errorf("ask for marks: %w", err)
	}
	count := (m.size + m.regions.regionBytes - 1) / m.regions.regionBytes
	union := newBitmap(int(count))
	for i, r := range replies {
		for _, n := range r.Indexes {
			if n < 0 || n >= count {
				return nil, fmt.Errorf("replica %s has marked region %d of %d", m.members[i].name, n, count)
			}
			union.set(int(n), int(n)+1)
		}
	}
	return union, nil
}

// copyRuns makes the runs equal to the source.
func (m *mirror) copyRuns(ctx context.Context, runs []run, source int) error {
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(resyncWorkers)
	for _, q := range runs {
		end := min(int64(q.to)*m.regions.regionBytes, m.size)
		for off := int64(q.from) * m.regions.regionBytes; off < end; off += resyncStep {
			if failed.Err() != nil {
				break
			}
			length := min(resyncStep, end-off)
			group.Go(func() error { return m.copyStep(failed, source, off, length) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// copyStep makes one step equal to the source. What no member has allocated is equal already: a discard of a whole volume marks all
// of it, and need not make all of it read.
func (m *mirror) copyStep(ctx context.Context, source int, off, length int64) error {
	if m.isZeroEverywhere(off, length) {
		return nil
	}
	for end := off + length; off < end && ctx.Err() == nil; off += resyncChunk {
		if err := m.copyChunk(source, off, min(resyncChunk, end-off)); err != nil {
			return err
		}
	}
	return nil
}

// isZeroEverywhere says whether all members are known to hold zeroes. It may miss that, also because of an error.
func (m *mirror) isZeroEverywhere(off, length int64) bool {
	for _, b := range m.members {
		for at := off; at < off+length; {
			extents, err := b.Extents(background, at, off+length-at)
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

// copyChunk makes one chunk equal to the source; only what differs is written.
func (m *mirror) copyChunk(source int, off, length int64) error {
	want, have := make([]byte, length), make([]byte, length)
	if err := m.members[source].ReadAt(background, want, off); err != nil {
		return fmt.Errorf("read %d bytes at %d from %s: %w", length, off, m.members[source].name, err)
	}
	for i, b := range m.members {
		if i == source {
			continue
		}
		if err := b.ReadAt(background, have, off); err != nil {
			return fmt.Errorf("read %d bytes at %d from %s: %w", length, off, b.name, err)
		}
		if bytes.Equal(want, have) {
			continue
		}
		if err := putChunk(b, want, off); err != nil {
			return fmt.Errorf("write %d bytes at %d to %s: %w", length, off, b.name, err)
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
