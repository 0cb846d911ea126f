package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// These constants limit the work of a resync. resyncChunk bytes are compared at once. The members are asked for the
// holes of resyncStep bytes before that. resyncWorkers steps run concurrently. So memory stays below 2 × workers ×
// chunk.
const (
	resyncChunk   = 1 << 20
	resyncStep    = 64 << 20
	resyncWorkers = 4
)

// equalize makes the members equal in every region that any of them has marked, and clears all marks. It runs before
// the gate opens, so nothing else changes. It may be repeated after a crash at any line. Marks are cleared last, when
// every member has flushed and no epoch lists a member that has not.
//
// The content of a marked region is correct on any member. An acknowledged write is on all of them. Of the other writes
// any may be kept, sector by sector. After a loss of power, a machine may lack writes that it had only in memory. So
// the source is a replica that has lost nothing, if there is one. A member that may have lost something is written,
// whatever it reads (resync): after a failed sync its kernel may show content that its disk does not have. If a member
// fails, the others start again without it.
//
// If users of an earlier engine wait (Config.HasUsers), a source that has lost writes ends the start: see
// errWritesLost.
func (e *Engine) equalize(members candidates) *failure {
	m := e.mirror
	for {
		if !e.updateEpoch(e.quit) {
			return interrupted(e.ctx)
		}
		ro := m.roster.Load()
		err := e.equalizeOnce(ro, members)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errWritesLost):
			return &failure{reason: ReasonWritesLost, err: err}
		case e.ctx.Err() != nil || m.roster.Load() == ro:
			return &failure{reason: ReasonResyncFailed, err: fmt.Errorf("equalize the replicas: %w", err)}
		}
	}
}

// errWritesLost ends the start of an engine that would take over a device if users of the device may rely on lost
// writes:
//
//	a user writes, a member cannot write it out, the process exits before the engine has failed, and its successor starts
//
// During this the users wait. The successor would answer them as if nothing had happened. Their next sync would
// succeed, and their earlier writes would be missing. So the successor must not serve them, just as an engine that
// loses its last member does not serve its users. No mark is cleared before that: because of the marks, a further
// successor finds the same.
//
// Two conditions must hold. The source is known to have lost something (membership.State.WritesLost). And there are
// marked regions: the changes in any other region were flushed by all members.
var errWritesLost = errors.New("writes were lost, and users of the kept device may rely on them")

func (e *Engine) equalizeOnce(ro *roster, members candidates) error {
	m := e.mirror
	marked, err := m.marked(ro)
	if err != nil || marked.count() == 0 {
		return err
	}
	r := newResync(m, ro, members)
	source := ro.serving[r.source].name
	if e.cfg.HasUsers && r.lost {
		return fmt.Errorf("%w: no replica has all data; replica %s was restarted with its node, or its disk failed", errWritesLost, source)
	}
	e.log.WithFields(logrus.Fields{"regions": marked.count(), "source": source}).Info("Equalizing the replicas after an unclean stop")
	if r.isNeeded() {
		if err := r.copyRuns(e.ctx, marked.runs()); err != nil {
			return err
		}
	}
	if err := m.onServing(ro, func(b *member) error { return b.Flush(background) }); err != nil {
		return fmt.Errorf("flush the replicas: %w", err)
	}
	if m.roster.Load() != ro {
		return errMembersChanging
	}
	return m.clearOn(ro, marked.indexes())
}

// resync makes the serving members equal to one of them.
type resync struct {
	mirror *mirror
	ro     *roster
	source int
	// rewrite contains, for each serving member, whether it is written even where it reads the same as the source.
	rewrite []bool
	// lost means that the source is known to lack writes.
	lost bool
}

func newResync(m *mirror, ro *roster, members candidates) *resync {
	r := &resync{mirror: m, ro: ro, rewrite: make([]bool, len(ro.serving))}
	states := make([]membership.State, len(ro.serving))
	for i, b := range ro.serving {
		if at := slices.IndexFunc(members, func(c *candidate) bool { return c.Name == b.name }); at >= 0 {
			states[i] = members[at].state
		}
	}
	r.source = chooseSource(states)
	r.lost = states[r.source].WritesLost
	for i, s := range states {
		r.rewrite[i] = isRewritten(s, i == r.source)
	}
	return r
}

// isRewritten reports whether a member is written even where it reads the same as the source:
//
//	closed cleanly                          no: it reads the content of its disk
//	does not report that it reads its disk  yes: after a failed sync it may read content that only its cache has,
//	                                        and a comparison would use that. It may not know of the failure, so CacheKept
//	                                        does not count
//	has lost nothing                        no: it reads content that its disk has or will have
//	may have lost something                 yes, unless it is the source: its content wins, and is on its disk
func isRewritten(s membership.State, isSource bool) bool {
	switch {
	case s.Clean:
		return false
	case !s.ReadsDisk:
		return true
	}
	return !s.CacheKept && !isSource
}

// isNeeded reports whether there is anything to compare or to write.
func (r *resync) isNeeded() bool { return len(r.ro.serving) > 1 || r.rewrite[r.source] }

// chooseSource returns the member that the others are made equal to. It is the first that was closed cleanly, else the
// first that has lost nothing, else the first that does not know, else the first member.
func chooseSource(states []membership.State) int {
	best, rank := 0, 0
	for i, s := range states {
		r := 0
		switch {
		case s.Clean:
			r = 3
		case s.CacheKept:
			r = 2
		case !s.WritesLost:
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
		return nil, fmt.Errorf("read the intent marks: %w", err)
	}
	return union, nil
}

// marks asks a replica for its marks, of which there can be at most count.
func (m *member) marks(count int64) ([]int64, error) {
	reply, err := m.Control(background, membership.OpIntents, nil)
	if err != nil {
		return nil, err
	}
	return decodeRegions(m.name, reply, count)
}

// decodeRegions reads a replica's reply that lists regions; the volume has count of them. A replica that is larger than
// the volume may list further regions; these are ignored.
func decodeRegions(replica string, reply []byte, count int64) ([]int64, error) {
	var r membership.Regions
	if err := json.Unmarshal(reply, &r); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(r.Indexes, func(n int64) bool { return n < 0 }); i >= 0 {
		return nil, fmt.Errorf("replica %s reports a mark for region %d, which does not exist", replica, r.Indexes[i])
	}
	return slices.DeleteFunc(r.Indexes, func(n int64) bool { return n >= count }), nil
}

// copyRuns makes the runs equal to the source.
func (r *resync) copyRuns(ctx context.Context, runs []run) error {
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(resyncWorkers)
	for _, q := range runs {
		b := r.mirror.regions.bytesOf(q, r.mirror.size.Load())
		for off, end := b.from, b.to; off < end; off += resyncStep {
			if failed.Err() != nil {
				break
			}
			length := min(resyncStep, end-off)
			group.Go(func() error { return r.copyStep(failed, off, length) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// copyStep makes one step equal to the source. Parts that no member has allocated are already equal, and need not be
// read: a discard of a whole volume marks all of it. A member that is written in any case gets the hole again.
func (r *resync) copyStep(ctx context.Context, off, length int64) error {
	if r.mirror.isZeroEverywhere(r.ro.serving, off, length) {
		return r.put(off, length, func(i int) (bool, error) { return r.rewrite[i], nil }, func(b *member) error {
			return b.Zero(background, off, length, 0)
		})
	}
	for end := off + length; off < end && ctx.Err() == nil; off += resyncChunk {
		if err := r.copyChunk(off, min(resyncChunk, end-off)); err != nil {
			return err
		}
	}
	return nil
}

// isZeroEverywhere reports whether all members are known to hold zeroes. It may return false for zeroes, for example
// because of an error.
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

// copyChunk makes one chunk equal to the source. It writes only to members that differ or that are written in any case.
func (r *resync) copyChunk(off, length int64) error {
	m, from := r.mirror, r.ro.serving[r.source]
	want, have := make([]byte, length), make([]byte, length) // not reused: a request that hangs in a disk may use them
	if err := m.watchdog.whileProbed(from, off, length, func() error { return from.ReadAt(background, want, off) }); err != nil {
		return r.fault(from, fmt.Errorf("read %d bytes at offset %d: %w", length, off, err))
	}
	differs := func(i int) (bool, error) {
		if i == r.source || r.rewrite[i] {
			return r.rewrite[i], nil
		}
		b := r.ro.serving[i]
		err := m.watchdog.whileOthersWait(b, func() error { return b.ReadAt(background, have, off) })
		return err == nil && !bytes.Equal(want, have), err
	}
	return r.put(off, length, differs, func(b *member) error { return putChunk(b, want, off) })
}

// put writes a range of each serving member for which differs returns true. A member that returns an error has failed.
func (r *resync) put(off, length int64, differs func(i int) (bool, error), write func(*member) error) error {
	for i, b := range r.ro.serving {
		is, err := differs(i)
		if err != nil {
			return r.fault(b, fmt.Errorf("read %d bytes at offset %d: %w", length, off, err))
		}
		if !is {
			continue
		}
		if err := r.mirror.watchdog.whileOthersWait(b, func() error { return write(b) }); err != nil {
			return r.fault(b, fmt.Errorf("write %d bytes at offset %d: %w", length, off, err))
		}
	}
	return nil
}

func (r *resync) fault(b *member, err error) error {
	r.mirror.failed(b, err)
	return fmt.Errorf("replica %s: %w", b.name, err)
}

// putChunk writes a chunk, as a hole if it has only zeroes.
func putChunk(b nbd.Backend, p []byte, off int64) error {
	if isZero(p) {
		return b.Zero(background, off, int64(len(p)), 0)
	}
	return b.WriteAt(background, p, off, false)
}

func isZero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:])
}
